//! What was read before.
//! Comes in: the names of an image; goes out: its place, in which a result is put at most once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::Labelled;

/// Distributions are few; an operator sees some images of each.
const MOST: usize = 64;

/// A place for one result. Who comes while another is reading waits for that result; a failure leaves the place empty.
type Slot = Arc<OnceCell<Labelled>>;

#[derive(Default)]
pub struct Slots(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    uses: u64,
    by_name: BTreeMap<Vec<String>, (u64, Slot)>,
}

impl Slots {
    /// The place of an image. Where there are too many, the one that was not asked for longest goes.
    pub fn get(&self, name: &[&str]) -> Slot {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let uses = inner.uses;
        let name: Vec<String> = name.iter().map(ToString::to_string).collect();
        let known = inner.by_name.entry(name).or_default();
        known.0 = uses;
        let slot = known.1.clone();
        if inner.by_name.len() > MOST {
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
    fn the_image_not_asked_for_longest_is_forgotten_first() {
        let slots = Slots::default();
        let name = |number: usize| number.to_string();
        let put = |number: usize| {
            let labelled = Labelled { digest: name(number), base: Ok(None) };
            slots.get(&[&name(number)]).set(labelled).unwrap();
        };
        (0..MOST).for_each(put);
        assert!(slots.get(&[&name(0)]).get().is_some());
        put(MOST);
        assert_eq!(slots.0.lock().unwrap().by_name.len(), MOST);
        assert!(slots.get(&[&name(0)]).get().is_some(), "it was asked for again");
        assert!(slots.get(&[&name(1)]).get().is_none());
    }
}
