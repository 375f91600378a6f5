//! Tracks objects whose namespace was excluded and whose status does not report it yet. They are collected when a
//! namespace becomes excluded and once at the start, and never again: another operator may act there by then
//! (`--watch-namespace`) and must not be contradicted in every reconcile.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

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

    /// Collects objects of one namespace, or at the start of all. If the namespace was excluded just now, an object
    /// without a status is included, because its first status may be on its way.
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
        self.lock_untold().extend(places);
    }

    pub(super) fn marks_changed(&self, change: &Change<Marks>) {
        let excluded = |marks: Option<&Marks>| marks.is_some_and(|marks| marks.excluded);
        if excluded(change.after.as_ref()) && !excluded(change.before.as_ref()) {
            self.note_excluded(Some(&change.object.name));
        }
    }

    pub fn has_untold(&self) -> bool {
        !self.lock_untold().is_empty()
    }

    /// Takes the collected objects in their current state. Those that could not be written are returned by `back`.
    pub fn untold(&self) -> Vec<(VariantSeen, Stamp)> {
        let places = std::mem::take(&mut *self.lock_untold());
        let now = |place: NamespacedName| {
            let variant =
                self.variants.get(&place).filter(|known| self.is_excluded(&place.namespace) && self.is_ours(known))?;
            let stamp = Stamp { uid: variant.uid, version: variant.version, strange: variant.strange, target: None };
            Some((variant.seen.ok()?, stamp))
        };
        places.into_iter().filter_map(now).collect()
    }

    fn lock_untold(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn back(&self, seen: &VariantSeen) {
        self.lock_untold().insert(seen.key.clone());
    }
}
