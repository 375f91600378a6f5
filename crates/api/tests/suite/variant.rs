//! VariantAutoscaling: against the CRDs of the generations that it replaces, and its manifests through the types.

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::variant::v1alpha1::VariantAutoscaling;

use crate::compare::{self, Aim, Named, ours, theirs, version};
use crate::manifests::{REFUSED, fixtures};
use crate::upstream;

/// The first generation is refused by rules, so that its users read what to write instead of `Required value`.
const RULES: [Named; 2] = [
    Named {
        path: ".spec",
        key: "!has(self.modelProfile)",
        why: "a field of the first generation, unknown to the later ones",
    },
    Named {
        path: ".spec",
        key: "has(self.scaleTargetRef) || has(self.modelProfile)",
        why: "stands for the published `required`, which would keep the rule above from being asked",
    },
];

#[test]
fn what_generation_b_accepts_is_accepted_with_its_defaults() {
    let Some(files) = upstream::files() else { return };
    let theirs = theirs(&files.join("variant/crd-b.yaml"));
    let (ours, theirs) = (ours(Family::Va), version(&theirs, "v1alpha1").clone());
    let differences = compare::schemas(version(&ours, "v1alpha1"), &theirs, Aim::AcceptsAll);
    compare::assert_named("generation B", &differences, &RULES);
}

#[test]
fn what_generation_c_accepts_is_accepted_with_its_defaults() {
    let Some(files) = upstream::files() else { return };
    let theirs = theirs(&files.join("variant/crd-c.yaml"));
    let (ours, theirs) = (ours(Family::Va), version(&theirs, "v1alpha1").clone());
    let differences = compare::schemas(version(&ours, "v1alpha1"), &theirs, Aim::AcceptsAll);
    let defaults = [
        Named { path: ".spec.variantCost", key: "default", why: "\"10\" of B instead of \"10.0\": the same number" },
        Named { path: ".spec.minReplicas", key: "default", why: "C has no bounds; 0, as in B, bounds nothing" },
        Named {
            path: ".spec",
            key: "!has(self.maxReplicas) || !has(self.minReplicas) || self.maxReplicas >= self.minReplicas",
            why: "C has no bounds that could contradict each other",
        },
        Named { path: ".spec.scaleTargetRef", key: "x-kubernetes-map-type", why: "merged by field, as in B" },
        Named { path: ".spec.scaleTargetRef.apiVersion", key: "minLength", why: "left out or meant, as in B" },
        Named {
            path: ".spec.scaleTargetRef.kind",
            key: "minLength",
            why: "B refuses it; nothing can be done without it",
        },
        Named {
            path: ".spec.scaleTargetRef.name",
            key: "minLength",
            why: "B refuses it; nothing can be done without it",
        },
        Named {
            path: ".status.desiredOptimizedAlloc.numReplicas",
            key: "format",
            why: "int32, as in B and in every scale subresource; no workload can have more replicas",
        },
    ];
    let named: Vec<_> = RULES.into_iter().chain(defaults).collect();
    compare::assert_named("generation C", &differences, &named);
}

#[test]
fn the_columns_of_generation_b_come_first_and_ours_are_wide() {
    let crd = ours(Family::Va);
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
    let published = theirs(&files.join("variant/crd-b.yaml"));
    assert_eq!(json!(narrow), version(&published, "v1alpha1")["additionalPrinterColumns"]);
}

/// What is valid is read without loss; only defaults are added.
#[test]
fn valid_manifests_survive_the_types() {
    for manifest in fixtures("variant/valid") {
        let given = manifest.object().clone();
        // An object without a spec is no `VariantAutoscaling` yet; who watches it sees the error of this conversion.
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
fn invalid_manifests_say_how_they_are_refused() {
    for manifest in fixtures("variant/invalid") {
        let refusal = manifest.text.lines().next().and_then(|line| line.strip_prefix(REFUSED));
        assert!(refusal.is_some_and(|text| !text.is_empty()), "{}", manifest.name);
        assert_eq!(manifest.object()["kind"], Family::Va.kind(), "{}", manifest.name);
    }
}

/// Objects that the first generation stored are still there after the CRD changed, and must not stall whoever reads them.
#[test]
fn a_stored_object_of_the_first_generation_is_readable() {
    let all = fixtures("variant/invalid");
    let stored = all.iter().find(|manifest| manifest.name.ends_with("first-generation.yaml")).unwrap();
    let typed: VariantAutoscaling = serde_json::from_value(stored.object().clone()).unwrap();
    assert_eq!(typed.spec.scale_target_ref, None);
    assert!(typed.spec.model_profile.is_some());
}

/// The newer generation accepted them, and what is stored is not asked again.
#[test]
fn a_stored_object_with_empty_names_is_readable() {
    let spec = json!({ "modelID": "m", "scaleTargetRef": { "apiVersion": "", "kind": "", "name": "" } });
    let typed: VariantAutoscaling = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
    assert_eq!(serde_json::to_value(typed.spec.scale_target_ref).unwrap(), spec["scaleTargetRef"]);
}

#[test]
fn a_status_of_each_generation_is_readable() {
    let written = [
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
    for status in written {
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
