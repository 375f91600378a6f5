//! New requests.

use serde_json::{Value, json};
use steersman_plan::dynamo::validate::{Facts, validate};

use super::*;

#[test]
fn adm_02_an_image_without_a_version_needs_the_version_beside_it() {
    refused(&created(&request(json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
    accepted(&created(&request(json!({ "runtimeVersionOverride": null, "image": "profiler:v1.2.3-cuda13" }))));
}

#[test]
fn adm_02_the_operators_own_image_counts_where_none_is_given() {
    let none = request(json!({ "image": null, "runtimeVersionOverride": null }));
    accepted(&created(&none));
    let facts = Facts { default_image: Some("mirror/planner:newest"), discovery: true };
    let verdict = validate(&none, None, &facts);
    refused(&verdict, &[NO_VERSION]);
    assert!(texts(&verdict)[0].ends_with("Set it to the version of Dynamo in mirror/planner:newest, such as 1.4.0."));
}

#[test]
fn adm_08_annotations_of_graphs_mean_nothing_here() {
    let mut new = request(json!({}));
    new["metadata"]["annotations"] = json!({ "nvidia.com/dynamo-operator-origin-version": "not-semver" });
    let verdict = created(&new);
    accepted(&verdict);
    assert_eq!(verdict.warnings, []);
}

#[test]
fn adm_09_thorough_needs_one_backend() {
    refused(&created(&request(json!({ "backend": "auto", "searchStrategy": "thorough" }))), &[THOROUGH]);
    refused(&created(&request(json!({ "backend": null, "searchStrategy": "thorough" }))), &[THOROUGH]);
    accepted(&created(&request(json!({ "searchStrategy": "thorough" }))));
}

#[test]
fn adm_10_hardware_may_be_left_to_discovery() {
    accepted(&created(&request(json!({}))));
}

#[test]
fn adm_11_without_discovery_hardware_is_needed() {
    refused(&validate(&request(json!({})), None, &facts(false)), &[NO_HARDWARE]);
    refused(&validate(&request(json!({ "hardware": { "totalGpus": 8 } })), None, &facts(false)), &[NO_HARDWARE]);
}

#[test]
fn adm_12_without_discovery_any_of_three_fields_will_do() {
    for hardware in [json!({ "gpuSku": "h100_sxm" }), json!({ "vramMb": 81_920 }), json!({ "numGpusPerNode": 8 })] {
        accepted(&validate(&request(json!({ "hardware": hardware })), None, &facts(false)));
    }
}

#[test]
fn adm_13_all_that_is_wrong_is_told_in_a_fixed_order() {
    let new = request(json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    refused(&validate(&new, None, &facts(false)), &[NO_HARDWARE, THOROUGH, NO_VERSION]);
}

#[test]
fn a_name_that_no_job_can_have_is_refused_with_the_length_that_it_may_have() {
    let mut new = request(json!({}));
    new["metadata"]["name"] = json!("a".repeat(55));
    accepted(&created(&new));
    new["metadata"]["name"] = json!("a".repeat(56));
    let verdict = created(&new);
    let text = &texts(&verdict)[0];
    assert!(text.starts_with("metadata.name: Invalid value: \"aaaa"), "{text}");
    assert!(text.contains("has 56 characters, and the profiling Job profile-aaa"), "{text}");
    assert!(text.ends_with("Create the request under a name of at most 55 characters."), "{text}");
}

#[test]
fn an_override_that_can_be_merged_into_no_graph_is_refused_before_hours_of_profiling() {
    let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "status": {} });
    refused(
        &created(&request(json!({ "overrides": { "dgd": dgd } }))),
        &["spec.overrides.dgd: Invalid value: override status is not supported"],
    );
}

#[test]
fn a_name_that_no_graph_can_have_is_refused_before_hours_of_profiling() {
    let named = |name: Value| {
        let metadata = json!({ "name": name });
        let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": metadata });
        created(&request(json!({ "overrides": { "dgd": dgd } })))
    };
    for name in ["chat", "chat-2.team", "0", ""] {
        accepted(&named(json!(name)));
    }
    for name in [json!("Chat_Bot"), json!("-chat"), json!("a..b"), json!("größe"), json!("a".repeat(254)), json!(7)] {
        let text = format!("spec.overrides.dgd.metadata.name: Invalid value: {name}: no object can have this name");
        refused(&named(name), &[&text]);
    }
}

#[test]
fn a_spec_that_is_too_long_for_an_argument_is_refused_with_its_length() {
    let planner = |length| json!({ "features": { "planner": { "note": "a".repeat(length) } } });
    accepted(&created(&request(planner(130_000))));
    let verdict = created(&request(planner(132_000)));
    let text = &texts(&verdict)[0];
    assert!(text.starts_with("spec: Invalid value: it has 132") && text.contains("at most 131071."), "{text}");
    assert!(text.ends_with("Shorten spec.features.planner or spec.overrides."), "{text}");
}

#[test]
fn a_request_without_any_image_is_refused() {
    let facts = Facts { default_image: None, discovery: true };
    let verdict = validate(&request(json!({ "image": "" })), None, &facts);
    refused(&verdict, &["spec.image: Required value: spec.image is required"]);
}

#[test]
fn a_type_of_gpu_that_nobody_knows_is_refused_with_those_that_are_known() {
    let verdict = created(&request(json!({ "hardware": { "gpuSku": "gtx" } })));
    refused(&verdict, &["spec.hardware.gpuSku: Invalid value: \"gtx\": the profiler does not know it"]);
    assert!(texts(&verdict)[0].contains("h100_sxm, h100_pcie"));
}

#[test]
fn a_spec_that_cannot_be_read_is_refused_without_its_values() {
    let verdict = created(&request(json!({ "model": 7, "backend": "hunter2" })));
    let text = &texts(&verdict)[0];
    assert!(
        text.starts_with("spec.backend: Invalid value: cannot be read: unknown word, ") && !text.contains("hunter2"),
        "{text}"
    );
}
