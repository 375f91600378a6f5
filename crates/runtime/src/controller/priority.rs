//! Order of reconciles while many objects start at once: objects that nothing runs for yet go before objects that only have
//! their status to update.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steersman_reconcile::NamespacedName;

/// When a deferred reconcile is tried again.
pub const DEFER_INTERVAL: Duration = Duration::from_secs(1);

/// Longest deferral. A status must not become arbitrarily old in a cluster where some object is always starting.
const MAX_DEFERRAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Priority {
    /// Reconciles in progress that could not be deferred.
    urgent: AtomicUsize,
    deferred_since: Mutex<HashMap<NamespacedName, Instant>>,
}

/// Held while a reconcile is in progress.
pub struct Permit<'a>(Option<&'a AtomicUsize>);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(urgent) = self.0 {
            urgent.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Priority {
    /// Admits a reconcile. `None` defers it, because objects with higher priority are being reconciled.
    pub fn admit(&self, object: &NamespacedName, deferrable: bool, now: Instant) -> Option<Permit<'_>> {
        if !deferrable {
            self.forget(object);
            self.urgent.fetch_add(1, Ordering::Relaxed);
            return Some(Permit(Some(&self.urgent)));
        }
        let mut deferred = self.deferred_since();
        let since = *deferred.get(object).unwrap_or(&now);
        if self.urgent.load(Ordering::Relaxed) > 0 && now.duration_since(since) < MAX_DEFERRAL {
            deferred.insert(object.clone(), since);
            return None;
        }
        deferred.remove(object);
        Some(Permit(None))
    }

    pub fn forget(&self, object: &NamespacedName) {
        self.deferred_since().remove(object);
    }

    fn deferred_since(&self) -> MutexGuard<'_, HashMap<NamespacedName, Instant>> {
        self.deferred_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferrable_object_waits_for_urgent_ones() {
        let object = |name: &str| NamespacedName::new("ns", name);
        let (priority, now) = (Priority::default(), Instant::now());
        assert!(priority.admit(&object("old"), true, now).is_some(), "nothing is urgent");
        let first = priority.admit(&object("new"), false, now);
        let second = priority.admit(&object("newer"), false, now);
        assert!(priority.admit(&object("old"), true, now).is_none());
        drop(first);
        assert!(priority.admit(&object("old"), true, now + DEFER_INTERVAL).is_none(), "one is still urgent");
        assert!(priority.admit(&object("old"), true, now + MAX_DEFERRAL).is_some(), "deferred long enough");
        assert!(priority.admit(&object("old"), true, now + MAX_DEFERRAL).is_none(), "and deferred again");
        drop(second);
        assert!(priority.admit(&object("old"), true, now + MAX_DEFERRAL).is_some());
        assert!(priority.deferred_since().is_empty(), "an admitted object leaves no entry");
    }
}
