//! Versions of objects that our own writes replaced, so that an object in a lagging cache is recognized as stale. A reconcile
//! of a stale object would publish its events twice, and its status would be refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steersman_reconcile::NamespacedName;

/// A watch delivers our own write at once. After this time a reconcile finds out by itself whether the object is stale.
pub const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Expectations {
    replaced: Mutex<HashMap<NamespacedName, (Vec<String>, Instant)>>,
}

impl Expectations {
    /// The cache is expected to have another version than these soon. One reconcile may write an object twice: its fields, and
    /// then its status.
    pub fn expect_newer_than(&self, object: NamespacedName, versions: Vec<String>) {
        self.replaced().insert(object, (versions, Instant::now()));
    }

    pub fn is_stale(&self, object: &NamespacedName, version: Option<&str>) -> bool {
        let replaced = self.replaced();
        let Some((versions, since)) = replaced.get(object) else { return false };
        versions.iter().any(|old| Some(old.as_str()) == version) && since.elapsed() < EXPECTATION_TIMEOUT
    }

    pub fn forget(&self, object: &NamespacedName) {
        self.replaced().remove(object);
    }

    fn replaced(&self) -> MutexGuard<'_, HashMap<NamespacedName, (Vec<String>, Instant)>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_replaced_last_are_stale() {
        let expectations = Expectations::default();
        let object = |name: &str| NamespacedName::new("team-a", name);
        expectations.expect_newer_than(object("qwen"), vec!["4".into(), "5".into()]);
        assert!(expectations.is_stale(&object("qwen"), Some("4")));
        assert!(expectations.is_stale(&object("qwen"), Some("5")));
        assert!(!expectations.is_stale(&object("qwen"), Some("6")) && !expectations.is_stale(&object("qwen"), None));
        assert!(!expectations.is_stale(&object("other"), Some("5")));
        expectations.expect_newer_than(object("qwen"), vec!["6".into()]);
        assert!(!expectations.is_stale(&object("qwen"), Some("5")));
        expectations.forget(&object("qwen"));
        assert!(!expectations.is_stale(&object("qwen"), Some("6")));
    }
}
