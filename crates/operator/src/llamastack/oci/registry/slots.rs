//! Caches the results of registry reads, least recently used first out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::ImageLabels;

/// Most entries: there are few distributions, with some images of each.
const MAX_SLOTS: usize = 64;

/// Result of one image. A second reader waits for the first; a failure leaves the slot empty.
type Slot = Arc<OnceCell<ImageLabels>>;

#[derive(Default)]
pub struct Slots(Mutex<SlotMap>);

#[derive(Default)]
struct SlotMap {
    uses: u64,
    by_name: BTreeMap<Vec<String>, (u64, Slot)>,
}

impl Slots {
    /// The slot of an image. A full cache drops the slot that was unused for longest.
    pub fn get(&self, name: &[&str]) -> Slot {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let uses = inner.uses;
        let name: Vec<String> = name.iter().map(ToString::to_string).collect();
        let known = inner.by_name.entry(name).or_default();
        known.0 = uses;
        let slot = known.1.clone();
        if inner.by_name.len() > MAX_SLOTS {
            let oldest = inner.by_name.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone());
            oldest.map(|name| inner.by_name.remove(&name));
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_image_is_dropped() {
        let slots = Slots::default();
        let name = |number: usize| number.to_string();
        let put = |number: usize| {
            let labelled = ImageLabels { digest: name(number), base: Ok(None) };
            slots.get(&[&name(number)]).set(labelled).unwrap();
        };
        (0..MAX_SLOTS).for_each(put);
        assert!(slots.get(&[&name(0)]).get().is_some());
        put(MAX_SLOTS);
        assert_eq!(slots.0.lock().unwrap().by_name.len(), MAX_SLOTS);
        assert!(slots.get(&[&name(0)]).get().is_some(), "it was asked for again");
        assert!(slots.get(&[&name(1)]).get().is_none());
    }
}
