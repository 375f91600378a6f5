//! Conversion of parts of objects, as sent by server-side apply.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::convert::ConvertError;

use super::generate::any_request;
use super::laws::normalize;
use super::{ALPHA, BETA, KIND, try_convert};

fn without_metadata(version: &str, sections: Value) -> Value {
    let mut object = sections;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(KIND);
    object
}

#[test]
fn missing_metadata_is_not_added() {
    for version in [ALPHA, BETA] {
        let object = without_metadata(
            version,
            json!({ "spec": { "enableGpuDiscovery": true, "searchStrategy": "rapid", "model": "m" } }),
        );
        let (converted, lost) = try_convert(&object).unwrap();
        assert_eq!(converted, without_metadata(super::other_version(version), json!({ "spec": { "model": "m" } })));
        let why = "has no field for this value, and the object has no metadata to store it in an annotation";
        let expected = ["enableGpuDiscovery", "searchStrategy"].map(|name| {
            format!("spec.{name}: {} {why}", super::other_version(version).trim_start_matches("nvidia.com/"))
        });
        assert_eq!(lost, expected);
    }
}

#[test]
fn empty_metadata_stays_empty() {
    for version in [ALPHA, BETA] {
        for metadata in [json!({}), Value::Null] {
            let object = without_metadata(version, json!({ "metadata": metadata, "spec": { "fieldOfTheFuture": 1 } }));
            assert_eq!(try_convert(&object).unwrap().0["metadata"], metadata);
        }
    }
}

#[test]
fn sections_are_neither_added_nor_dropped() {
    for version in [ALPHA, BETA] {
        for sections in
            [json!({}), json!({ "spec": {} }), json!({ "status": {} }), json!({ "spec": null, "status": null })]
        {
            let (converted, lost) = try_convert(&without_metadata(version, sections.clone())).unwrap();
            assert_eq!((converted, lost.len()), (without_metadata(super::other_version(version), sections), 0));
        }
    }
}

#[test]
fn wrong_value_without_metadata_is_rejected() {
    let cases = [
        (ALPHA, json!({ "spec": { "useMocker": "yes" } }), "spec.useMocker: must be a boolean"),
        (ALPHA, json!({ "spec": { "profilingConfig": 5 } }), "spec.profilingConfig: must be an object"),
        (ALPHA, json!({ "status": { "state": 5 } }), "status.state: must be a string"),
        (ALPHA, json!({ "status": { "deployment": "g" } }), "status.deployment: must be an object"),
        (BETA, json!({ "spec": { "sla": { "ttft": "fast" } } }), "spec.sla.ttft: must be a number"),
        (BETA, json!({ "spec": { "workload": { "isl": 1.5 } } }), "spec.workload.isl: must be a 32-bit integer"),
        (BETA, json!({ "spec": { "modelCache": { "pvcName": [] } } }), "spec.modelCache.pvcName: must be a string"),
        (
            BETA,
            json!({ "spec": { "overrides": { "profilingJob": { "template": [] } } } }),
            "spec.overrides.profilingJob.template: must be an object",
        ),
        (BETA, json!({ "status": { "phase": {} } }), "status.phase: must be a string"),
    ];
    for (version, sections, message) in cases {
        let error = try_convert(&without_metadata(version, sections)).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(matches!(error, ConvertError::Unreadable { .. }));
    }
}

/// The schema accepts any configuration, so its conversion must not fail a server-side apply.
#[test]
fn opaque_config_is_dropped_without_metadata() {
    let config = json!({ "sla": { "ttft": "fast", "isl": 5e9 }, "planner": [1], "deployment": 5 });
    let object = without_metadata(ALPHA, json!({ "spec": { "model": "m", "profilingConfig": { "config": config } } }));
    let (converted, lost) = try_convert(&object).unwrap();
    assert_eq!(converted["spec"], json!({ "model": "m" }));
    let paths: Vec<_> = lost.iter().map(|lost| lost.split(": ").next().unwrap()).collect();
    let expected =
        ["deployment", "planner", "sla.isl", "sla.ttft"].map(|path| format!("spec.profilingConfig.config.{path}"));
    assert_eq!(paths, expected);
}

/// Every leaf with its path. A list is one leaf.
fn leaves(path: &str, value: &Value) -> BTreeSet<(String, String)> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().flat_map(|(name, value)| leaves(&format!("{path}.{name}"), value)).collect()
        }
        Value::Null => BTreeSet::new(),
        _ => [(path.to_owned(), value.to_string())].into(),
    }
}

fn section_leaves(object: &Value) -> BTreeSet<(String, String)> {
    ["spec", "status"].iter().flat_map(|name| leaves(name, object.get(*name).unwrap_or(&Value::Null))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Without metadata, the same fields are converted, and each missing one is reported as lost.
    #[test]
    fn metadata_does_not_influence_converted_fields(mut object in any_request(false)) {
        let fields = object.as_object_mut().unwrap();
        fields.insert("metadata".into(), json!({ "labels": { "a": "b" } }));
        let with_metadata = try_convert(&object).unwrap().0;
        object.as_object_mut().unwrap().remove("metadata");
        let (converted, lost) = try_convert(&object).unwrap();
        prop_assert_eq!(converted.get("metadata"), None);
        prop_assert_eq!(converted.get("spec"), with_metadata.get("spec"));
        prop_assert_eq!(converted.get("status"), with_metadata.get("status"));

        let (back, _) = try_convert(&converted).unwrap();
        let (before, after) = (section_leaves(&normalize(&object)), section_leaves(&back));
        let is_reported = |path: &str| lost.iter().any(|lost| lost.starts_with(&format!("{path}: ")));
        // Without another image, the workers' image becomes `image`, which is the profiler's image after converting back.
        let workers_image_lost = is_reported("spec.deploymentOverrides.workersImage");
        for (path, value) in before.difference(&after) {
            prop_assert!(is_reported(path), "{} {} was dropped: {:?}", path, value, lost);
        }
        for (path, value) in after.difference(&before) {
            let is_workers_image = workers_image_lost && path == "spec.profilingConfig.profilerImage";
            prop_assert!(is_reported(path) || is_workers_image, "{} {} was added: {:?}", path, value, lost);
        }
    }
}
