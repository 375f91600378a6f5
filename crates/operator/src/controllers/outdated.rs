//! Versions of objects that we have written over ourselves.
//! Comes in: each such write; goes out: whether what the watch has of an object is older than our own last word on it. A
//! pass on that would tell once more what was told, and its status would be refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wakes::Place;

/// A watch brings our own write at once. One that does not is not waited for: a pass then finds out by itself.
pub const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Outdated {
    versions: Mutex<HashMap<Place, (String, Instant)>>,
}

impl Outdated {
    /// This version of the object is no more.
    pub fn note(&self, place: Place, version: String) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(place, (version, Instant::now()));
    }

    pub fn is(&self, place: &Place, version: Option<&str>) -> bool {
        let known = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(place).is_some_and(|(old, since)| Some(old.as_str()) == version && since.elapsed() < PATIENCE)
    }

    pub fn forget(&self, place: &Place) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_was_written_over_last_is_outdated() {
        let outdated = Outdated::default();
        let place = |name: &str| ("team-a".to_owned(), name.to_owned());
        outdated.note(place("qwen"), "5".into());
        assert!(outdated.is(&place("qwen"), Some("5")));
        assert!(!outdated.is(&place("qwen"), Some("6")) && !outdated.is(&place("qwen"), None));
        assert!(!outdated.is(&place("other"), Some("5")));
        outdated.note(place("qwen"), "6".into());
        assert!(!outdated.is(&place("qwen"), Some("5")));
        outdated.forget(&place("qwen"));
        assert!(!outdated.is(&place("qwen"), Some("6")));
    }
}
