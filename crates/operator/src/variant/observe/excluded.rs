//! Objects of namespaces that are left alone from now on.
//! Comes in: what is written on namespaces; goes out: the objects that have to be told so, each once.
//!
//! Only when a namespace becomes excluded, and at the start, as it may have become so while nobody looked: another operator may
//! act there by then (`--watch-namespace`), and must not be contradicted with every pass.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use steersman_plan::variant::VariantSeen;
use steersman_reconcile::NamespacedName;

use super::Fleet;
use super::look::Stamp;
use super::maps::Marks;
use steersman_runtime::store::Change;

impl Fleet {
    pub(super) fn excluded(&self) -> BTreeSet<String> {
        let mut excluded = BTreeSet::new();
        self.namespaces.each(|_, name, marks| excluded.extend(marks.excluded.then(|| name.to_owned())));
        excluded
    }

    /// Whoever was decided on and is not any more, in this namespace or in all. Where it is one that has just become excluded,
    /// the first status of an object may be on its way.
    pub fn note_excluded(&self, only: Option<&str>) {
        let excluded = self.excluded();
        let mut places = Vec::new();
        self.variants.each(|namespace, name, variant| {
            let here = excluded.contains(namespace) && only.is_none_or(|only| only == namespace);
            let decided = || variant.seen.as_ref().is_ok_and(|seen| seen.status.is_some());
            if here && self.is_ours(variant) && (only.is_some() || decided()) {
                places.push(NamespacedName::new(namespace, name));
            }
        });
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(places);
    }

    pub(super) fn marks_changed(&self, change: &Change<Marks>) {
        let excluded = |marks: Option<&Marks>| marks.is_some_and(|marks| marks.excluded);
        if excluded(change.after.as_ref()) && !excluded(change.before.as_ref()) {
            self.note_excluded(Some(&change.object.name));
        }
    }

    pub fn has_untold(&self) -> bool {
        !self.untold.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Those that are still to be told, as they are now. Who could not be told is given `back`.
    pub fn untold(&self) -> Vec<(VariantSeen, Stamp)> {
        let places = std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
        let now = |place: NamespacedName| {
            let variant =
                self.variants.get(&place).filter(|known| self.is_excluded(&place.namespace) && self.is_ours(known))?;
            let stamp = Stamp { uid: variant.uid, version: variant.version, strange: variant.strange, target: None };
            Some((variant.seen.ok()?, stamp))
        };
        places.into_iter().filter_map(now).collect()
    }

    pub fn back(&self, seen: &VariantSeen) {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).insert(seen.key.clone());
    }
}
