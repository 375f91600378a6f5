//! VariantAutoscaling: its CRD against the CRDs of the generations that it replaces, and its manifests against its types.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::variant::v1alpha1::VariantAutoscaling;

use crate::compare::{self, Compatibility, ExpectedDifference, our_crd, published_crd, version};
use crate::manifests::{EXPECTED_ERROR_PREFIX, fixtures};
use crate::upstream;

/// Rules that reject objects of the first generation, so that the error says what to write instead of `Required value`,
/// and the limit of a field.
const FURTHER_RULES: [ExpectedDifference; 3] = [
    ExpectedDifference {
        path: ".spec.modelID",
        key: "maxLength",
        why: "every model's name is in metrics, queries and messages; 512 characters are enough for names of models",
    },
    ExpectedDifference {
        path: ".spec",
        key: "!has(self.modelProfile)",
        why: "a field of the first generation, unknown to the later ones",
    },
    ExpectedDifference {
        path: ".spec",
        key: "has(self.scaleTargetRef) || has(self.modelProfile)",
        why: "replaces the published `required`, which would prevent the evaluation of the rule above",
    },
];

#[test]
fn schema_accepts_everything_generation_b_accepts() {
    let Some(files) = upstream::files() else { return };
    let theirs = published_crd(&files.join("variant/crd-b.yaml"));
    let (ours, theirs) = (our_crd(Family::Va), version(&theirs, "v1alpha1").clone());
    let differences = compare::schemas(version(&ours, "v1alpha1"), &theirs, Compatibility::AcceptsAll);
    compare::assert_only_expected("generation B", &differences, &FURTHER_RULES);
}

#[test]
fn schema_accepts_everything_generation_c_accepts() {
    let Some(files) = upstream::files() else { return };
    let theirs = published_crd(&files.join("variant/crd-c.yaml"));
    let (ours, theirs) = (our_crd(Family::Va), version(&theirs, "v1alpha1").clone());
    let differences = compare::schemas(version(&ours, "v1alpha1"), &theirs, Compatibility::AcceptsAll);
    let defaults = [
        ExpectedDifference {
            path: ".spec.variantCost",
            key: "default",
            why: "\"10\" of B instead of \"10.0\": the same number",
        },
        ExpectedDifference {
            path: ".spec.minReplicas",
            key: "default",
            why: "C has no bounds; 0, as in B, is no constraint",
        },
        ExpectedDifference {
            path: ".spec",
            key: "!has(self.maxReplicas) || !has(self.minReplicas) || self.maxReplicas >= self.minReplicas",
            why: "C has no bounds that could contradict each other",
        },
        ExpectedDifference {
            path: ".spec.scaleTargetRef",
            key: "x-kubernetes-map-type",
            why: "merged by field, as in B",
        },
        ExpectedDifference {
            path: ".spec.scaleTargetRef.apiVersion",
            key: "minLength",
            why: "either absent or not empty, as in B",
        },
        ExpectedDifference {
            path: ".spec.scaleTargetRef.kind",
            key: "minLength",
            why: "B refuses it; nothing can be done without it",
        },
        ExpectedDifference {
            path: ".spec.scaleTargetRef.name",
            key: "minLength",
            why: "B refuses it; nothing can be done without it",
        },
        ExpectedDifference {
            path: ".status.desiredOptimizedAlloc.numReplicas",
            key: "format",
            why: "int32, as in B and in every scale subresource; no workload can have more replicas",
        },
    ];
    let expected: Vec<_> = FURTHER_RULES.into_iter().chain(defaults).collect();
    compare::assert_only_expected("generation C", &differences, &expected);
}

#[test]
fn generation_b_columns_precede_wide_ones() {
    let crd = our_crd(Family::Va);
    let columns = version(&crd, "v1alpha1")["additionalPrinterColumns"].as_array().unwrap().clone();
    let (wide, narrow): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.get("priority").is_some());
    let names =
        |columns: &[Value]| columns.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names(&narrow),
        ["Model", "VariantID", "Accelerator", "CurrentReplicas", "Optimized", "MetricsReady", "Age"]
    );
    assert_eq!(names(&wide), ["Wanted", "DecidedBy", "Target", "Min", "Max", "Reason"]);
    let Some(files) = upstream::files() else { return };
    let published = published_crd(&files.join("variant/crd-b.yaml"));
    assert_eq!(json!(narrow), version(&published, "v1alpha1")["additionalPrinterColumns"]);
}

/// Valid objects are read without loss; only defaults are added.
#[test]
fn valid_manifests_round_trip_with_defaults() {
    for manifest in fixtures("variant/valid") {
        let given = manifest.object().clone();
        // An object without a spec cannot be deserialized; a watch reports this error.
        if given.get("spec").is_none() {
            assert!(serde_json::from_value::<VariantAutoscaling>(given).is_err());
            continue;
        }
        let typed: VariantAutoscaling = serde_json::from_value(given.clone()).unwrap();
        let mut expected = given;
        for (field, default) in [("variantCost", json!("10")), ("minReplicas", json!(0))] {
            let spec = expected["spec"].as_object_mut().unwrap();
            spec.entry(field).or_insert(default);
        }
        assert_eq!(serde_json::to_value(typed).unwrap(), expected, "{}", manifest.name);
    }
}

#[test]
fn invalid_manifests_state_expected_error() {
    for manifest in fixtures("variant/invalid") {
        let refusal = manifest.text.lines().next().and_then(|line| line.strip_prefix(EXPECTED_ERROR_PREFIX));
        assert!(refusal.is_some_and(|text| !text.is_empty()), "{}", manifest.name);
        assert_eq!(manifest.object()["kind"], Family::Va.kind(), "{}", manifest.name);
    }
}

/// Objects stored by the first generation still exist after the CRD changed, and must not stall a watch.
#[test]
fn stored_first_generation_object_is_readable() {
    let all = fixtures("variant/invalid");
    let stored = all.iter().find(|manifest| manifest.name.ends_with("first-generation.yaml")).unwrap();
    let typed: VariantAutoscaling = serde_json::from_value(stored.object().clone()).unwrap();
    assert_eq!(typed.spec.scale_target_ref, None);
    assert!(typed.spec.model_profile.is_some());
}

/// Generation C accepted empty names, and stored objects are not validated again.
#[test]
fn stored_object_with_empty_target_is_readable() {
    let spec = json!({ "modelID": "m", "scaleTargetRef": { "apiVersion": "", "kind": "", "name": "" } });
    let typed: VariantAutoscaling = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
    assert_eq!(serde_json::to_value(typed.spec.scale_target_ref).unwrap(), spec["scaleTargetRef"]);
}

#[test]
fn status_of_each_generation_is_readable() {
    let statuses = [
        json!({
            "currentAlloc": { "numReplicas": 2 },
            "desiredOptimizedAlloc": {
                "lastRunTime": "2026-11-15T23:00:00Z",
                "numReplicas": 3,
                "lastUpdate": { "updateTime": "2026-11-15T22:00:00Z", "numReplicasChanged": 0, "reason": "steady" },
            },
            "actuation": { "applied": true },
        }),
        json!({ "desiredOptimizedAlloc": { "accelerator": "H100", "numReplicas": 3 } }),
        json!({ "desiredOptimizedAlloc": { "lastRunTime": "2026-11-15T23:00:00Z" } }),
    ];
    for status in statuses {
        let object = json!({ "metadata": { "name": "a" }, "spec": { "modelID": "m" }, "status": status });
        let typed: VariantAutoscaling = serde_json::from_value(object).unwrap();
        assert_eq!(serde_json::to_value(typed.status).unwrap(), status);
    }
    // Go writes a time that was never set as null.
    let status = json!({ "desiredOptimizedAlloc": { "lastRunTime": null, "lastUpdate": { "updateTime": null } } });
    let object = json!({ "metadata": {}, "spec": { "modelID": "m" }, "status": status });
    let typed: VariantAutoscaling = serde_json::from_value(object).unwrap();
    assert_eq!(typed.status.unwrap().desired_optimized_alloc.unwrap().last_run_time, None);
}
