//! Selects the changes that trigger a reconcile.

use steersman_reconcile::NamespacedName;

use super::Fleet;
use super::objects::Variant;
use super::targets::{Way, Workload};
use steersman_runtime::store::Change;

/// A change that triggers a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An object is new, has another spec or is being deleted.
    Variant(NamespacedName),
    /// An object is deleted, or no longer ours.
    Gone(NamespacedName),
    /// A ConfigMap with settings has changed.
    Map(NamespacedName),
    /// A scale target is new or deleted, or its replicas were changed.
    Target(NamespacedName),
    /// The annotations of a namespace have changed.
    Namespace(String),
}

impl Fleet {
    pub(super) fn variant_changed(&self, change: &Change<Variant>) -> Vec<News> {
        let ours = |variant: &&Variant| self.is_ours(variant) && !self.is_excluded(&change.object.namespace);
        let before = change.before.as_ref().filter(ours);
        let after = change.after.as_ref().filter(ours);
        match (before, after) {
            (Some(_), None) => vec![News::Gone(change.object.clone())],
            (None, Some(_)) => vec![News::Variant(change.object.clone())],
            // A relist shows another object under the same name.
            (Some(before), Some(after)) if before.uid != after.uid => {
                vec![News::Gone(change.object.clone()), News::Variant(change.object.clone())]
            }
            (Some(before), Some(after)) => {
                let same = match (&before.seen, &after.seen) {
                    (Ok(before), Ok(after)) => before.spec == after.spec && before.deleting == after.deleting,
                    (before, after) => before == after,
                };
                if same { Vec::new() } else { vec![News::Variant(change.object.clone())] }
            }
            (None, None) => Vec::new(),
        }
    }

    pub(super) fn target_changed(&self, way: &Way, change: &Change<Workload>) -> Option<News> {
        if !Workload::is_news(change.before.as_ref(), change.after.as_ref()) {
            return None;
        }
        let NamespacedName { namespace, name } = &change.object;
        let wanted = self.variants.any(namespace, |variant| {
            let target = variant.seen.as_ref().ok().and_then(|seen| seen.spec.scale_target_ref.as_ref());
            target.is_some_and(|target| target.name == *name && Way::to(target) == *way)
        });
        wanted.then(|| News::Target(change.object.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Options, objects};
    use super::*;
    use crate::installation::Installation;
    use steersman_runtime::store::Scope;

    #[test]
    fn recreated_object_is_deleted_and_added() {
        let fleet = Fleet::new(&Installation::default(), &Options::default(), &Scope::Cluster);
        let stored = |uid: &str, model: &str| {
            let object = json!({ "metadata": { "namespace": "n", "name": "v", "uid": uid },
                "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "decode" }, "modelID": model } });
            Some(objects::variant(&serde_json::from_value(object).unwrap()))
        };
        let place = NamespacedName::new("n", "v");
        let (gone, new) = (News::Gone(place.clone()), News::Variant(place.clone()));
        for (before, after, expected) in [
            (None, stored("1", "m"), vec![new.clone()]),
            (stored("1", "m"), None, vec![gone.clone()]),
            (stored("1", "m"), stored("1", "m"), vec![]),
            (stored("1", "m"), stored("1", "other"), vec![new.clone()]),
            (stored("1", "m"), stored("2", "m"), vec![gone, new]),
        ] {
            let change = Change { object: place.clone(), before, after };
            assert_eq!(fleet.variant_changed(&change), expected, "{change:?}");
        }
    }
}
