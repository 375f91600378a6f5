//! Who goes first while many objects begin at once: those that nothing runs for yet, before those that only have news to tell.
//! Comes in: a pass, and whether it can wait; goes out: its turn, or that it shall come again in a moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wakes::Place;

/// How soon a pass that waits comes again.
pub const LATER: Duration = Duration::from_secs(1);

/// How long a pass waits at most: news get old, and there may be somebody beginning all the time.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Turns {
    /// Passes under way that could not wait.
    beginning: AtomicUsize,
    /// Since when others wait.
    waiting: Mutex<HashMap<Place, Instant>>,
}

/// Held for as long as a pass is under way.
pub struct Turn<'a>(Option<&'a AtomicUsize>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(beginning) = self.0 {
            beginning.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Turns {
    /// None: others go first.
    pub fn take(&self, place: &Place, can_wait: bool, now: Instant) -> Option<Turn<'_>> {
        if !can_wait {
            self.forget(place);
            self.beginning.fetch_add(1, Ordering::Relaxed);
            return Some(Turn(Some(&self.beginning)));
        }
        let mut waiting = self.waiting();
        let since = *waiting.get(place).unwrap_or(&now);
        if self.beginning.load(Ordering::Relaxed) > 0 && now.duration_since(since) < LONGEST {
            waiting.insert(place.clone(), since);
            return None;
        }
        waiting.remove(place);
        Some(Turn(None))
    }

    pub fn forget(&self, place: &Place) {
        self.waiting().remove(place);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Place, Instant>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        ("ns".to_owned(), name.to_owned())
    }

    #[test]
    fn news_wait_while_somebody_begins_and_not_for_ever() {
        let (turns, now) = (Turns::default(), Instant::now());
        assert!(turns.take(&place("old"), true, now).is_some(), "nobody begins");
        let first = turns.take(&place("new"), false, now);
        let second = turns.take(&place("newer"), false, now);
        assert!(turns.take(&place("old"), true, now).is_none());
        drop(first);
        assert!(turns.take(&place("old"), true, now + LATER).is_none(), "one still begins");
        assert!(turns.take(&place("old"), true, now + LONGEST).is_some(), "it has waited long enough");
        assert!(turns.take(&place("old"), true, now + LONGEST).is_none(), "and begins to wait anew");
        drop(second);
        assert!(turns.take(&place("old"), true, now + LONGEST).is_some());
        assert!(turns.waiting().is_empty(), "nothing is kept of who has had their turn");
    }
}
