//! Whatever a request is, admission and the plan agree.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::dynamo::checks::before_profiling;
use steersman_plan::dynamo::validate::{Facts, validate};
use steersman_plan::dynamo::{Snapshot, plan};
use steersman_reconcile::{FieldPath, path};

use super::super::laws::seen;
use super::{Review, labelled};

fn written(seen: &Snapshot) -> Value {
    let object = &seen.object;
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": object.name, "namespace": object.namespace, "annotations": object.annotations },
        "spec": object.spec, "status": object.status })
}

fn facts(seen: &Snapshot) -> Facts<'_> {
    Facts { default_image: seen.settings.default_image.as_deref(), discovery: true }
}

proptest! {
    /// Validation is the first line of the plan, and the plan knows one thing less: it acts on a request without a version.
    #[test]
    fn what_is_accepted_the_plan_does_not_refuse_and_what_it_refuses_is_not_accepted(seen in seen()) {
        let errors = validate(&written(&seen), None, &facts(&seen)).errors;
        let wrong = before_profiling(&seen).wrong;
        let version = |path: &FieldPath| *path == path!(spec.runtimeVersionOverride);
        let refused: Vec<_> = errors.iter().filter(|problem| !version(&problem.path)).collect();
        prop_assert_eq!(refused.len(), wrong.len(), "{:?} {:?}", refused, wrong);
    }

    /// As the plan does, too: one that is refused a change goes on with the old.
    #[test]
    fn a_change_that_is_accepted_is_none_that_the_plan_rejects(seen in seen(), other in seen()) {
        let (old, mut new) = (written(&seen), written(&other));
        new["status"] = old["status"].clone();
        new["metadata"]["annotations"] = old["metadata"]["annotations"].clone();
        if !validate(&new, Some(&old), &facts(&seen)).errors.is_empty() || seen.object.deleting {
            return Ok(());
        }
        let rejected = |seen: &Snapshot| {
            plan(seen).findings.iter().any(|finding| finding.reason == "SpecChangeRejected")
        };
        let mut then = seen.clone();
        then.object.spec = other.object.spec.clone();
        prop_assert!(rejected(&seen) || !rejected(&then), "{:?} -> {:?}", seen.object, then.object);
    }

    #[test]
    fn a_change_of_metadata_is_never_refused(seen in seen()) {
        let old = written(&seen);
        prop_assert_eq!(validate(&labelled(old.clone()), Some(&old), &facts(&seen)), Review::default());
    }
}
