//! Logs the fields that a conversion drops, once for each object, generation and version: a conversion cannot warn its user,
//! and objects are read thousands of times.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use crate::webhooks::case::shortened;
use crate::webhooks::conversion::ObjectRevision;

/// Most entries, at eight bytes each. A full set is cleared, so that a line may be logged again.
const MAX_REMEMBERED: usize = 10_000;

/// Most fields in one line.
const MAX_FIELDS: usize = 50;

#[derive(Debug, Default)]
pub struct Losses {
    hasher: RandomState,
    logged: Mutex<HashSet<u64>>,
}

impl Losses {
    pub fn log_once(&self, object: &ObjectRevision, to: &str, lost: &[String]) {
        if lost.is_empty() || !self.is_new(object, to) {
            return;
        }
        tracing::warn!(
            kind = object.kind,
            namespace = object.namespace,
            name = object.name,
            generation = object.generation,
            to,
            lost = shortened(lost[..lost.len().min(MAX_FIELDS)].join("; ")),
            fields = lost.len(),
            "the conversion drops fields that the version cannot represent"
        );
    }

    fn is_new(&self, object: &ObjectRevision, to: &str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_REMEMBERED {
            logged.clear();
        }
        logged.insert(self.hasher.hash_one((object, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_new_once_per_generation_and_version() {
        let losses = Losses::default();
        let object = ObjectRevision { name: "a".into(), uid: "1".into(), generation: 1, ..ObjectRevision::default() };
        assert!(losses.is_new(&object, "v1"));
        assert!(!losses.is_new(&object, "v1"));
        assert!(losses.is_new(&object, "v2"));
        assert!(losses.is_new(&ObjectRevision { generation: 2, ..object.clone() }, "v1"));
        assert!(losses.is_new(&ObjectRevision { uid: "2".into(), ..object }, "v1"));
    }

    #[test]
    fn memory_is_bounded() {
        let losses = Losses::default();
        for generation in 0..3 * i64::try_from(MAX_REMEMBERED).unwrap() {
            assert!(losses.is_new(&ObjectRevision { generation, ..ObjectRevision::default() }, "v1"));
            assert!(losses.logged.lock().unwrap().len() <= MAX_REMEMBERED);
        }
    }
}
