//! Selects the changes that trigger a reconcile.

use steersman_reconcile::NamespacedName;

use super::Fleet;
use super::targets::{TargetKind, TargetRecord};
use super::variants::VariantRecord;
use steersman_runtime::store::Change;

/// A change that triggers a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// An object is new, has another spec or is being deleted.
    VariantChanged(NamespacedName),
    /// An object is deleted, or no longer ours.
    VariantDeleted(NamespacedName),
    /// A ConfigMap with settings has changed.
    ConfigMapChanged(NamespacedName),
    /// A scale target is new or deleted, or its replicas were changed.
    TargetChanged(NamespacedName),
    /// The annotations of a namespace have changed.
    NamespaceChanged(String),
}

impl Fleet {
    pub(super) fn variant_changed(&self, change: &Change<VariantRecord>) -> Vec<Trigger> {
        let ours = |variant: &&VariantRecord| self.is_ours(variant) && !self.is_excluded(&change.object.namespace);
        let before = change.before.as_ref().filter(ours);
        let after = change.after.as_ref().filter(ours);
        match (before, after) {
            (Some(_), None) => vec![Trigger::VariantDeleted(change.object.clone())],
            (None, Some(_)) => vec![Trigger::VariantChanged(change.object.clone())],
            // A relist shows another object under the same name.
            (Some(before), Some(after)) if before.uid != after.uid => {
                vec![Trigger::VariantDeleted(change.object.clone()), Trigger::VariantChanged(change.object.clone())]
            }
            (Some(before), Some(after)) => {
                let same = match (&before.variant, &after.variant) {
                    (Ok(before), Ok(after)) => before.spec == after.spec && before.deleting == after.deleting,
                    (before, after) => before == after,
                };
                if same { Vec::new() } else { vec![Trigger::VariantChanged(change.object.clone())] }
            }
            (None, None) => Vec::new(),
        }
    }

    pub(super) fn target_changed(&self, kind: &TargetKind, change: &Change<TargetRecord>) -> Option<Trigger> {
        if !TargetRecord::is_trigger(change.before.as_ref(), change.after.as_ref()) {
            return None;
        }
        let NamespacedName { namespace, name } = &change.object;
        let is_referenced = self.variants.any(namespace, |record| {
            let target = record.variant.as_ref().ok().and_then(|observed| observed.spec.scale_target_ref.as_ref());
            target.is_some_and(|target| target.name == *name && TargetKind::of(target) == *kind)
        });
        is_referenced.then(|| Trigger::TargetChanged(change.object.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Options, variants};
    use super::*;
    use crate::installation::Installation;
    use steersman_runtime::store::Scope;

    #[test]
    fn recreated_object_is_deleted_and_added() {
        let fleet = Fleet::new(&Installation::default(), &Options::default(), &Scope::Cluster);
        let stored = |uid: &str, model: &str| {
            let object = json!({ "metadata": { "namespace": "n", "name": "v", "uid": uid },
                "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "decode" }, "modelID": model } });
            Some(variants::variant(&serde_json::from_value(object).unwrap()))
        };
        let place = NamespacedName::new("n", "v");
        let (deleted, changed) = (Trigger::VariantDeleted(place.clone()), Trigger::VariantChanged(place.clone()));
        for (before, after, expected) in [
            (None, stored("1", "m"), vec![changed.clone()]),
            (stored("1", "m"), None, vec![deleted.clone()]),
            (stored("1", "m"), stored("1", "m"), vec![]),
            (stored("1", "m"), stored("1", "other"), vec![changed.clone()]),
            (stored("1", "m"), stored("2", "m"), vec![deleted, changed]),
        ] {
            let change = Change { object: place.clone(), before, after };
            assert_eq!(fleet.variant_changed(&change), expected, "{change:?}");
        }
    }
}
