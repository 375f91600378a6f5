//! Workloads that are not as they are to be.
//! Comes in: what is awaited of one; goes out: since when it is seen so, which is kept from one pass to the next.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::tokens::capacity::Memory;

/// For so long after it was last asked in vain, a workload is not the first one that is asked for more.
const ANOTHER_TRY: SignedDuration = SignedDuration::from_hours(1);

/// So long all have to be ready until it is forgotten that some were not: a container that crashes again and again is ready for
/// moments.
const WHOLE: SignedDuration = SignedDuration::from_mins(3);

/// What is awaited of a workload, and since when it is seen so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Replicas that it is to have, of which some are not ready.
    pub short: Option<(i32, Timestamp)>,
    /// Since when all of them are ready again.
    pub whole: Option<Timestamp>,
    /// Replicas that it is to have, while more are ready.
    pub over: Option<(i32, Timestamp)>,
    /// The number that was decided, and the one that it is told to have.
    pub away: Option<((i32, i32), Timestamp)>,
    /// Replicas beyond which it has not gone although it was to, and when it last was.
    pub unfollowed: Option<(i32, Timestamp)>,
}

/// What a workload is not yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awaited {
    pub short: Option<i32>,
    pub over: Option<i32>,
    pub away: Option<(i32, i32)>,
}

impl Memory {
    /// Since when it is awaited. Whatever has changed meanwhile is awaited anew.
    pub fn wait(&mut self, key: &str, awaited: Awaited, now: Timestamp) -> Waits {
        let mut before = self.waits.remove(key).unwrap_or_default();
        if before.whole.is_some_and(|since| now.duration_since(since) >= WHOLE) {
            (before.short, before.whole) = (None, None);
        }
        let whole = before.short.filter(|_| awaited.short.is_none());
        let waits = Waits {
            short: whole.or_else(|| since(before.short, awaited.short, now)),
            whole: whole.map(|_| before.whole.unwrap_or(now)),
            over: since(before.over, awaited.over, now),
            away: since(before.away, awaited.away, now),
            unfollowed: before.unfollowed.filter(|(_, last)| now.duration_since(*last) <= ANOTHER_TRY),
        };
        if waits != Waits::default() {
            self.waits.insert(key.to_owned(), waits.clone());
        }
        waits
    }

    /// Whether a workload does not follow numbers above what it has. `asked`: it is to have more by now; `in_vain`: for too long.
    /// Numbers above it are published all the same, so that it is seen at once when it follows again.
    pub fn unfollowed(&mut self, key: &str, current: i32, asked: bool, in_vain: bool, now: Timestamp) -> bool {
        let Some(waits) = self.waits.get_mut(key) else { return false };
        let known = waits.unfollowed.filter(|(stayed, _)| *stayed == current);
        waits.unfollowed = if asked && (in_vain || known.is_some()) { Some((current, now)) } else { known };
        waits.unfollowed.is_some()
    }
}

fn since<T: PartialEq>(before: Option<(T, Timestamp)>, awaited: Option<T>, now: Timestamp) -> Option<(T, Timestamp)> {
    let awaited = awaited?;
    Some(before.filter(|(known, _)| *known == awaited).unwrap_or((awaited, now)))
}
