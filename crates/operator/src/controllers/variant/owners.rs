//! Ties objects to their workloads, where they ask for it.
//! Comes in: the objects of a pass; goes out: an owner reference on each that asks for one, and how many could not be written.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;
use steersman_plan::variant::VariantSeen;

use super::Variants;
use crate::observe::variant::{MANAGER, variant_resource};

impl Variants {
    /// After the statuses: the object is another version by it.
    pub async fn tie(&self, all: &[VariantSeen]) -> usize {
        let mut failed = 0;
        for seen in all.iter().filter(|seen| !seen.deleting) {
            let Some((uid, owner)) = self.fleet.untied(seen) else { continue };
            let resource = variant_resource();
            let (namespace, name) = (&seen.key.namespace, &seen.key.name);
            let objects: Api<DynamicObject> = Api::namespaced_with(self.server.client.clone(), namespace, &resource);
            let wish = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "metadata": { "name": name, "uid": uid, "ownerReferences": [owner] },
            });
            let (ours, wish) = (PatchParams::apply(MANAGER).force(), Patch::Apply(&wish));
            match self.server.call(objects.patch(name, &ours, &wish)).await {
                Ok(_) => tracing::info!(namespace, name, owner = owner.name, "tied to its workload"),
                Err(error) => {
                    failed += 1;
                    tracing::warn!(namespace, name, %error, "could not be tied to its workload");
                }
            }
        }
        failed
    }
}
