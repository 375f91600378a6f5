//! Tracks since when scale targets deviate from their decisions.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::tokens::capacity::Memory;

/// Time after the last attempt during which a scale target that did not follow is not asked first.
const ANOTHER_TRY: SignedDuration = SignedDuration::from_hours(1);

/// Time that all replicas have to be ready before their unready time is forgotten: a crash-looping container is ready
/// for moments.
const WHOLE: SignedDuration = SignedDuration::from_mins(3);

/// Timers of one scale target. Each holds the value it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleProgress {
    /// `spec.replicas`, while some replicas are not ready.
    pub short: Option<(i32, Timestamp)>,
    /// Since when all replicas are ready again.
    pub whole: Option<Timestamp>,
    /// `spec.replicas`, while more pods are ready.
    pub over: Option<(i32, Timestamp)>,
    /// `spec.replicas`, while any larger number is decided.
    pub above: Option<(i32, Timestamp)>,
    /// The smaller number that is decided, and `spec.replicas`.
    pub below: Option<((i32, i32), Timestamp)>,
    pub ignored_target: Option<IgnoredTarget>,
}

/// A scale-up that a scale target did not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredTarget {
    pub asked: i32,
    /// `spec.replicas`, which did not change.
    pub stayed: i32,
    /// When it was last requested.
    pub last: Timestamp,
}

/// The deviations of a scale target.
#[derive(Clone, Copy, Debug)]
pub struct ObservedScale {
    /// `spec.replicas`.
    pub current: i32,
    /// Some replicas are not ready.
    pub short: bool,
    /// More pods are ready.
    pub over: bool,
    /// The decided number, if it is another one.
    pub desired: Option<i32>,
}

impl Memory {
    /// Updates the timers. A timer restarts when its value changes.
    pub fn wait(&mut self, key: &str, awaited: ObservedScale, now: Timestamp) -> ScaleProgress {
        let mut before = self.progress.remove(key).unwrap_or_default();
        if before.whole.is_some_and(|since| now.duration_since(since) >= WHOLE) {
            (before.short, before.whole) = (None, None);
        }
        let ObservedScale { current, .. } = awaited;
        // A changed number means other replicas, so the timer does not carry over.
        let whole = before.short.filter(|(count, _)| !awaited.short && *count == current);
        let above = awaited.desired.filter(|desired| *desired > current);
        let below = awaited.desired.filter(|desired| *desired < current);
        let waits = ScaleProgress {
            short: whole.or_else(|| since(before.short, awaited.short.then_some(current), now)),
            whole: whole.map(|_| before.whole.unwrap_or(now)),
            over: since(before.over, awaited.over.then_some(current), now),
            above: since(before.above, above.map(|_| current), now),
            below: since(before.below, below.map(|desired| (desired, current)), now),
            ignored_target: before.ignored_target.filter(|known| now.duration_since(known.last) <= ANOTHER_TRY),
        };
        if waits != ScaleProgress::default() {
            self.progress.insert(key.to_owned(), waits.clone());
        }
        waits
    }

    /// The number that the scale target was asked for and did not follow, until it moves. `asked`: the decided number
    /// above `current`; `in_vain`: a larger number has been decided for too long.
    pub fn ignored_target(
        &mut self,
        key: &str,
        current: i32,
        asked: Option<i32>,
        in_vain: bool,
        now: Timestamp,
    ) -> Option<i32> {
        let waits = self.progress.get_mut(key)?;
        let known = waits.ignored_target.filter(|known| known.stayed == current);
        waits.ignored_target = match (known, asked) {
            (Some(known), Some(_)) => Some(IgnoredTarget { last: now, ..known }),
            (None, Some(asked)) if in_vain => Some(IgnoredTarget { asked, stayed: current, last: now }),
            (known, _) => known,
        };
        waits.ignored_target.map(|known| known.asked)
    }
}

fn since<T: PartialEq>(before: Option<(T, Timestamp)>, awaited: Option<T>, now: Timestamp) -> Option<(T, Timestamp)> {
    let awaited = awaited?;
    Some(before.filter(|(known, _)| *known == awaited).unwrap_or((awaited, now)))
}
