//! Parts of objects, as server-side apply sends them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::convert::ConvertError;

use super::laws::normal;
use super::made::any_request;
use super::{ALPHA, BETA, KIND, try_converted};

fn bare(version: &str, sections: Value) -> Value {
    let mut object = sections;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(KIND);
    object
}

#[test]
fn without_metadata_none_is_invented() {
    for version in [ALPHA, BETA] {
        let object =
            bare(version, json!({ "spec": { "enableGpuDiscovery": true, "searchStrategy": "rapid", "model": "m" } }));
        let (there, lost) = try_converted(&object).unwrap();
        assert_eq!(there, bare(super::other(version), json!({ "spec": { "model": "m" } })));
        let why = "has no field for it, and an object without metadata no annotation to keep it in";
        let wanted = ["enableGpuDiscovery", "searchStrategy"]
            .map(|name| format!("spec.{name}: {} {why}", super::other(version).trim_start_matches("nvidia.com/")));
        assert_eq!(lost, wanted);
    }
}

#[test]
fn empty_metadata_stays_empty() {
    for version in [ALPHA, BETA] {
        for metadata in [json!({}), Value::Null] {
            let object = bare(version, json!({ "metadata": metadata, "spec": { "fieldOfTheFuture": 1 } }));
            assert_eq!(try_converted(&object).unwrap().0["metadata"], metadata);
        }
    }
}

#[test]
fn sections_are_neither_invented_nor_dropped() {
    for version in [ALPHA, BETA] {
        for sections in
            [json!({}), json!({ "spec": {} }), json!({ "status": {} }), json!({ "spec": null, "status": null })]
        {
            let (there, lost) = try_converted(&bare(version, sections.clone())).unwrap();
            assert_eq!((there, lost.len()), (bare(super::other(version), sections), 0));
        }
    }
}

#[test]
fn a_wrong_value_that_nothing_could_keep_is_refused_with_its_path() {
    let cases = [
        (ALPHA, json!({ "spec": { "useMocker": "yes" } }), "spec.useMocker: must be true or false"),
        (ALPHA, json!({ "spec": { "profilingConfig": 5 } }), "spec.profilingConfig: must be an object"),
        (ALPHA, json!({ "status": { "state": 5 } }), "status.state: must be a text"),
        (ALPHA, json!({ "status": { "deployment": "g" } }), "status.deployment: must be an object"),
        (BETA, json!({ "spec": { "sla": { "ttft": "fast" } } }), "spec.sla.ttft: must be a number"),
        (
            BETA,
            json!({ "spec": { "workload": { "isl": 1.5 } } }),
            "spec.workload.isl: must be a whole number of at most 32 bits",
        ),
        (BETA, json!({ "spec": { "modelCache": { "pvcName": [] } } }), "spec.modelCache.pvcName: must be a text"),
        (
            BETA,
            json!({ "spec": { "overrides": { "profilingJob": { "template": [] } } } }),
            "spec.overrides.profilingJob.template: must be an object",
        ),
        (BETA, json!({ "status": { "phase": {} } }), "status.phase: must be a text"),
    ];
    for (version, sections, message) in cases {
        let error = try_converted(&bare(version, sections)).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(matches!(error, ConvertError::Unreadable { .. }));
    }
}

/// The schema lets it in, and server-side apply must go on.
#[test]
fn anything_in_the_opaque_configuration_is_left_out_without_metadata() {
    let config = json!({ "sla": { "ttft": "fast", "isl": 5e9 }, "planner": [1], "deployment": 5 });
    let object = bare(ALPHA, json!({ "spec": { "model": "m", "profilingConfig": { "config": config } } }));
    let (there, lost) = try_converted(&object).unwrap();
    assert_eq!(there["spec"], json!({ "model": "m" }));
    let paths: Vec<_> = lost.iter().map(|lost| lost.split(": ").next().unwrap()).collect();
    let wanted =
        ["deployment", "planner", "sla.isl", "sla.ttft"].map(|path| format!("spec.profilingConfig.config.{path}"));
    assert_eq!(paths, wanted);
}

/// Every leaf with its path; the entries of a list are one leaf.
fn leaves(at: &str, value: &Value) -> BTreeSet<(String, String)> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().flat_map(|(name, value)| leaves(&format!("{at}.{name}"), value)).collect()
        }
        Value::Null => BTreeSet::new(),
        _ => [(at.to_owned(), value.to_string())].into(),
    }
}

fn section_leaves(object: &Value) -> BTreeSet<(String, String)> {
    ["spec", "status"].iter().flat_map(|name| leaves(name, object.get(*name).unwrap_or(&Value::Null))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Without metadata the fields become the same as with it, and what is not there has been told.
    #[test]
    fn a_part_without_metadata_becomes_the_same_part(mut object in any_request(false)) {
        let fields = object.as_object_mut().unwrap();
        fields.insert("metadata".into(), json!({ "labels": { "a": "b" } }));
        let with = try_converted(&object).unwrap().0;
        object.as_object_mut().unwrap().remove("metadata");
        let (without, lost) = try_converted(&object).unwrap();
        prop_assert_eq!(without.get("metadata"), None);
        prop_assert_eq!(without.get("spec"), with.get("spec"));
        prop_assert_eq!(without.get("status"), with.get("status"));

        let (back, _) = try_converted(&without).unwrap();
        let (before, after) = (section_leaves(&normal(&object)), section_leaves(&back));
        let told = |path: &str| lost.iter().any(|lost| lost.starts_with(&format!("{path}: ")));
        // The workers' image becomes the image where there is no other, and that the profiler's on the way back.
        let workers = told("spec.deploymentOverrides.workersImage");
        for (path, value) in before.difference(&after) {
            prop_assert!(told(path), "{} {} is gone: {:?}", path, value, lost);
        }
        for (path, value) in after.difference(&before) {
            let image = workers && path == "spec.profilingConfig.profilerImage";
            prop_assert!(told(path) || image, "{} {} was invented: {:?}", path, value, lost);
        }
    }
}
