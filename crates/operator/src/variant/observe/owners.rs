//! Computes missing owner references from objects to their scale targets. They are opt-in, because a user who deletes a
//! Deployment rarely wants to delete the object that scales it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use steersman_plan::variant::VariantSeen;
use steersman_plan::variant::target::GROUPS;

use super::Fleet;
use super::targets::Way;

impl Fleet {
    /// The object's uid and the missing reference. `None` if the object does not request one, has it, has another
    /// controller, or has no scale target.
    pub fn untied(&self, seen: &VariantSeen) -> Option<(String, OwnerReference)> {
        let asks = self.variants.with(&seen.key, |now| now.tied.then(|| (now.uid.clone(), now.owners.clone())));
        let (own, owners) = asks.flatten()?;
        let target = seen.spec.scale_target_ref.as_ref()?;
        let api_version = match Way::to(target) {
            Way::Deployment | Way::StatefulSet => "apps/v1".to_owned(),
            Way::LeaderWorkerSet => format!("{GROUPS}/v1"),
            Way::Scale(_) | Way::Unclear(_) => return None,
        };
        let uid = self.watched(seen, |found| found.uid.clone())?;
        // The API server rejects a second controller. A recreated scale target replaces the reference to the deleted
        // one.
        let ours = |one: &OwnerReference| one.kind == target.kind && one.name == target.name;
        let anothers = owners.iter().any(|one| one.controller == Some(true) && !ours(one));
        if anothers || owners.iter().any(|one| one.uid == uid) {
            return None;
        }
        let reference = OwnerReference {
            api_version,
            kind: target.kind.clone(),
            name: target.name.clone(),
            uid,
            controller: Some(true),
            block_owner_deletion: Some(false),
        };
        Some((own, reference))
    }
}
