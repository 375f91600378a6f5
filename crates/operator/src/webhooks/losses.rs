//! Logs the fields that a conversion drops, once for each object, generation and version: a conversion cannot warn its user,
//! and objects are read thousands of times.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use crate::webhooks::conversion::Named;

/// Most entries, at eight bytes each. A full set is cleared, so that a line may be logged again.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub struct Losses {
    hasher: RandomState,
    said: Mutex<HashSet<u64>>,
}

impl Losses {
    pub fn log_once(&self, object: &Named, to: &str, lost: &[String]) {
        if lost.is_empty() || !self.is_new(object, to) {
            return;
        }
        tracing::warn!(
            kind = object.kind,
            namespace = object.namespace,
            name = object.name,
            generation = object.generation,
            to,
            lost = lost.join("; "),
            "a conversion cannot keep everything"
        );
    }

    fn is_new(&self, object: &Named, to: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert(self.hasher.hash_one((object, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_new_once_per_generation_and_version() {
        let losses = Losses::default();
        let object = Named { name: "a".into(), uid: "1".into(), generation: 1, ..Named::default() };
        assert!(losses.is_new(&object, "v1"));
        assert!(!losses.is_new(&object, "v1"));
        assert!(losses.is_new(&object, "v2"));
        assert!(losses.is_new(&Named { generation: 2, ..object.clone() }, "v1"));
        assert!(losses.is_new(&Named { uid: "2".into(), ..object }, "v1"));
    }

    #[test]
    fn memory_is_bounded() {
        let losses = Losses::default();
        for generation in 0..3 * i64::try_from(REMEMBERED).unwrap() {
            assert!(losses.is_new(&Named { generation, ..Named::default() }, "v1"));
            assert!(losses.said.lock().unwrap().len() <= REMEMBERED);
        }
    }
}
