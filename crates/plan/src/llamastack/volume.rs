//! The life of the server's PersistentVolumeClaim: who deletes it, and who can mount it.

use serde_json::Value;
use steersman_reconcile::{Finding, Message, message, path};

use super::annotations::{KEEP_VOLUME, is_on};
use super::config::FieldError;
use super::snapshot::Snapshot;
use super::{fields, names};

/// Reason of the warning about data that is deleted with the object.
const DELETED_WITH_OBJECT: &str = "VolumeDeletedWithObject";

/// The warning for an object that gets a claim, as JSON of the stored version. `old`: None for a new object.
pub fn deletion_warning(object: &Value, old: Option<&Value>) -> Option<FieldError> {
    let has_claim = |object: &Value| object.pointer("/spec/workload/storage").is_some_and(Value::is_object);
    let kept = object["metadata"]["annotations"][KEEP_VOLUME] == "true";
    if kept || !has_claim(object) || old.is_some_and(has_claim) {
        return None;
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("NAME");
    Some(FieldError::new(
        path!(spec.workload.storage),
        DELETED_WITH_OBJECT,
        format!("PersistentVolumeClaim {} and its data are deleted with this object", names::volume_claim(name)),
        format!("To keep them, set the annotation {KEEP_VOLUME} to \"true\" before the claim is created."),
    ))
}

/// A claim that exists is never changed, so that the annotation comes too late for one that the object owns.
pub fn not_kept(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let object = &snapshot.object;
    let owned = snapshot.volume_claim.as_ref().is_some_and(|claim| claim.owned);
    if !owned || !is_on(object, KEEP_VOLUME) {
        return None;
    }
    let claim = names::volume_claim(&object.name);
    let message = message![
        path!(metadata.annotations).key(KEEP_VOLUME),
        format!(
            " has no effect yet: PersistentVolumeClaim {claim} is older than the annotation and is deleted with the \
             object."
        )
    ];
    let remedy = format!(
        "Remove the owner from the claim: kubectl patch pvc {claim} -n {} --type=json \
         -p '[{{\"op\":\"remove\",\"path\":\"/metadata/ownerReferences\"}}]'",
        object.namespace
    );
    Some(Finding::warning("VolumeNotKept", message, remedy))
}

/// Pods on several nodes cannot mount a claim with the access mode that Steersman requests.
pub fn mounted_by_several(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let spec = &snapshot.object.spec;
    fields::storage(spec)?;
    if snapshot.volume_claim.as_ref().is_some_and(|claim| claim.shared) {
        return None;
    }
    let (most, path) = match fields::autoscaling(spec) {
        Some(autoscaling) => (autoscaling.max_replicas, path!(spec.workload.autoscaling.maxReplicas)),
        None => (fields::replicas(spec), path!(spec.workload.replicas)),
    };
    let claim = names::volume_claim(&snapshot.object.name);
    (most > 1).then(|| {
        let facts = format!(
            " is {most}, but all pods mount PersistentVolumeClaim {claim}, which only one node can mount \
             (ReadWriteOnce). Pods on other nodes do not start, and the pods share their files."
        );
        let remedy = message![
            format!(
                "Create a claim {claim} with access mode ReadWriteMany before the object, or use one replica. Without "
            ),
            path!(spec.workload.storage),
            ", each pod has files of its own."
        ];
        Finding::warning("VolumeOfOneNode", message![path, facts], remedy)
    })
}
