//! Objects that shall go with their workload: opt-in, since whoever deletes a Deployment seldom means what decides on it.
//! Comes in: an object and its workload as they are watched; goes out: the owner reference that is wanted and not there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use steersman_plan::variant::VariantSeen;
use steersman_plan::variant::target::GROUPS;

use super::Fleet;
use super::targets::Way;

impl Fleet {
    /// With the object's uid. None: it does not ask for it, it has it, it is somebody else's, or there is no workload.
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
        // Two controllers of one object are refused by the API server. A workload that was made anew under its old name takes
        // the place of the one that is gone.
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
