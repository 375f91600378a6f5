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
    /// Replicas that it is told to have, while a larger number is decided, whichever that is.
    pub above: Option<(i32, Timestamp)>,
    /// A smaller number that is decided, and the one that it is told to have.
    pub below: Option<((i32, i32), Timestamp)>,
    pub unfollowed: Option<Unfollowed>,
}

/// A number that a workload was asked for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfollowed {
    pub asked: i32,
    /// What it has stayed at.
    pub stayed: i32,
    /// When it was last asked.
    pub last: Timestamp,
}

/// A workload, and what it is not yet.
#[derive(Clone, Copy, Debug)]
pub struct Awaited {
    /// Replicas that it is told to have.
    pub current: i32,
    /// Some of them are not ready.
    pub short: bool,
    /// More are ready.
    pub over: bool,
    /// Another number is decided.
    pub desired: Option<i32>,
}

impl Memory {
    /// Since when it is awaited. Whatever has changed meanwhile is awaited anew.
    pub fn wait(&mut self, key: &str, awaited: Awaited, now: Timestamp) -> Waits {
        let mut before = self.waits.remove(key).unwrap_or_default();
        if before.whole.is_some_and(|since| now.duration_since(since) >= WHOLE) {
            (before.short, before.whole) = (None, None);
        }
        let Awaited { current, .. } = awaited;
        // Those of another count are others.
        let whole = before.short.filter(|(count, _)| !awaited.short && *count == current);
        let above = awaited.desired.filter(|desired| *desired > current);
        let below = awaited.desired.filter(|desired| *desired < current);
        let waits = Waits {
            short: whole.or_else(|| since(before.short, awaited.short.then_some(current), now)),
            whole: whole.map(|_| before.whole.unwrap_or(now)),
            over: since(before.over, awaited.over.then_some(current), now),
            above: since(before.above, above.map(|_| current), now),
            below: since(before.below, below.map(|desired| (desired, current)), now),
            unfollowed: before.unfollowed.filter(|known| now.duration_since(known.last) <= ANOTHER_TRY),
        };
        if waits != Waits::default() {
            self.waits.insert(key.to_owned(), waits.clone());
        }
        waits
    }

    /// The number that a workload was asked for in vain, until it moves. `asked`: the number above `current` that it is to have by
    /// now; `in_vain`: it is to have more for too long.
    pub fn unfollowed(
        &mut self,
        key: &str,
        current: i32,
        asked: Option<i32>,
        in_vain: bool,
        now: Timestamp,
    ) -> Option<i32> {
        let waits = self.waits.get_mut(key)?;
        let known = waits.unfollowed.filter(|known| known.stayed == current);
        waits.unfollowed = match (known, asked) {
            (Some(known), Some(_)) => Some(Unfollowed { last: now, ..known }),
            (None, Some(asked)) if in_vain => Some(Unfollowed { asked, stayed: current, last: now }),
            (known, _) => known,
        };
        waits.unfollowed.map(|known| known.asked)
    }
}

fn since<T: PartialEq>(before: Option<(T, Timestamp)>, awaited: Option<T>, now: Timestamp) -> Option<(T, Timestamp)> {
    let awaited = awaited?;
    Some(before.filter(|(known, _)| *known == awaited).unwrap_or((awaited, now)))
}
