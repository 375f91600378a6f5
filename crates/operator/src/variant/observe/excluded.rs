//! Tracks objects whose namespace was excluded and whose status does not report it yet. They are collected when a
//! namespace becomes excluded and once at the start, and never again: another operator may act there by then
//! (`--watch-namespace`) and must not be contradicted in every reconcile.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use steersman_plan::variant::ObservedVariant;
use steersman_reconcile::NamespacedName;

use super::Fleet;
use super::config_maps::NamespaceRecord;
use super::snapshot::ObservedVersion;
use steersman_runtime::store::Change;

impl Fleet {
    pub(super) fn excluded(&self) -> BTreeSet<String> {
        let mut excluded = BTreeSet::new();
        self.namespaces.each(|_, name, record| excluded.extend(record.excluded.then(|| name.to_owned())));
        excluded
    }

    /// Collects objects of one namespace, or at the start of all. If the namespace was excluded just now, an object
    /// without a status is included, because its first status may be on its way.
    pub fn collect_excluded(&self, only: Option<&str>) {
        let excluded = self.excluded();
        let mut keys = Vec::new();
        self.variants.each(|namespace, name, variant| {
            let here = excluded.contains(namespace) && only.is_none_or(|only| only == namespace);
            let decided = || variant.variant.as_ref().is_ok_and(|variant| variant.status.is_some());
            if here && self.is_ours(variant) && (only.is_some() || decided()) {
                keys.push(NamespacedName::new(namespace, name));
            }
        });
        self.lock_exclusions().extend(keys);
    }

    pub(super) fn namespace_changed(&self, change: &Change<NamespaceRecord>) {
        let excluded = |record: Option<&NamespaceRecord>| record.is_some_and(|record| record.excluded);
        if excluded(change.after.as_ref()) && !excluded(change.before.as_ref()) {
            self.collect_excluded(Some(&change.object.name));
        }
    }

    pub fn has_pending_exclusions(&self) -> bool {
        !self.lock_exclusions().is_empty()
    }

    /// Takes the collected objects in their current state. Those that could not be written are returned by `back`.
    pub fn pending_exclusions(&self) -> Vec<(ObservedVariant, ObservedVersion)> {
        let keys = std::mem::take(&mut *self.lock_exclusions());
        let now = |key: NamespacedName| {
            let record =
                self.variants.get(&key).filter(|known| self.is_excluded(&key.namespace) && self.is_ours(known))?;
            let version = ObservedVersion {
                uid: record.uid,
                version: record.version,
                unknown_status: record.unknown_status,
                target: None,
            };
            Some((record.variant.ok()?, version))
        };
        keys.into_iter().filter_map(now).collect()
    }

    fn lock_exclusions(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.pending_exclusions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn retry_exclusion(&self, variant: &ObservedVariant) {
        self.lock_exclusions().insert(variant.key.clone());
    }
}
