//! Computes missing owner references from objects to their scale targets. They are opt-in, because a user who deletes a
//! Deployment rarely wants to delete the object that scales it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use steersman_plan::variant::ObservedVariant;
use steersman_plan::variant::target::GROUPS;

use super::Fleet;
use super::targets::TargetKind;

impl Fleet {
    /// The object's uid and the missing reference. `None` if the object does not request one, has it, has another
    /// controller, or has no scale target.
    pub fn missing_owner(&self, variant: &ObservedVariant) -> Option<(String, OwnerReference)> {
        let requested =
            self.variants.with(&variant.key, |now| now.wants_owner.then(|| (now.uid.clone(), now.owners.clone())));
        let (variant_uid, owners) = requested.flatten()?;
        let target = variant.spec.scale_target_ref.as_ref()?;
        let api_version = match TargetKind::of(target) {
            TargetKind::Deployment | TargetKind::StatefulSet => "apps/v1".to_owned(),
            TargetKind::LeaderWorkerSet => format!("{GROUPS}/v1"),
            TargetKind::Scale(_) | TargetKind::Invalid(_) => return None,
        };
        let uid = self.with_target(variant, |found| found.uid.clone())?;
        // The API server rejects a second controller. A recreated scale target replaces the reference to the deleted
        // one.
        let ours = |one: &OwnerReference| one.kind == target.kind && one.name == target.name;
        let has_other_controller = owners.iter().any(|one| one.controller == Some(true) && !ours(one));
        if has_other_controller || owners.iter().any(|one| one.uid == uid) {
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
        Some((variant_uid, reference))
    }
}
