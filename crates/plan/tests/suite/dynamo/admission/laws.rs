//! Properties on which admission and the plan agree for every request.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::dynamo::checks::before_profiling;
use steersman_plan::dynamo::validate::{Facts, validate};
use steersman_plan::dynamo::{Snapshot, plan};
use steersman_reconcile::{FieldPath, path};

use super::super::laws::snapshots;
use super::{Review, with_label};

fn request_json(snapshot: &Snapshot) -> Value {
    let object = &snapshot.object;
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": object.name, "namespace": object.namespace, "annotations": object.annotations },
        "spec": object.spec, "status": object.status })
}

fn facts(snapshot: &Snapshot) -> Facts<'_> {
    Facts { default_image: snapshot.settings.default_image.as_deref(), discovery: true }
}

proptest! {
    /// The plan repeats the checks of admission, except the one for a missing runtime version.
    #[test]
    fn admission_and_plan_reject_the_same_specs(snapshot in snapshots()) {
        let errors = validate(&request_json(&snapshot), None, &facts(&snapshot)).errors;
        let plan_errors = before_profiling(&snapshot).errors;
        let is_version_error = |path: &FieldPath| *path == path!(spec.runtimeVersionOverride);
        let rejected_fields: Vec<_> = errors.iter().filter(|problem| !is_version_error(&problem.path)).collect();
        prop_assert_eq!(rejected_fields.len(), plan_errors.len(), "{:?} {:?}", rejected_fields, plan_errors);
    }

    /// The plan keeps the accepted spec when it rejects a change, so that admission must not accept one.
    #[test]
    fn accepted_change_is_not_rejected_by_plan(snapshot in snapshots(), other in snapshots()) {
        let (old, mut new) = (request_json(&snapshot), request_json(&other));
        new["status"] = old["status"].clone();
        new["metadata"]["annotations"] = old["metadata"]["annotations"].clone();
        if !validate(&new, Some(&old), &facts(&snapshot)).errors.is_empty() || snapshot.object.deleting {
            return Ok(());
        }
        let rejected = |snapshot: &Snapshot| {
            plan(snapshot).findings.iter().any(|finding| finding.reason == "SpecChangeRejected")
        };
        let mut changed = snapshot.clone();
        changed.object.spec = other.object.spec.clone();
        prop_assert!(rejected(&snapshot) || !rejected(&changed), "{:?} -> {:?}", snapshot.object, changed.object);
    }

    #[test]
    fn metadata_change_is_never_rejected(snapshot in snapshots()) {
        let old = request_json(&snapshot);
        prop_assert_eq!(validate(&with_label(old.clone()), Some(&old), &facts(&snapshot)), Review::default());
    }
}
