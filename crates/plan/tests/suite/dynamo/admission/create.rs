//! Validation of new requests.

use serde_json::{Value, json};
use steersman_plan::dynamo::validate::{Facts, validate};

use super::*;

#[test]
fn adm_02_unversioned_image_needs_runtime_version() {
    assert_rejected(&review_create(&request(json!({ "runtimeVersionOverride": null }))), &[NO_VERSION]);
    assert_accepted(&review_create(&request(
        json!({ "runtimeVersionOverride": null, "image": "profiler:v1.2.3-cuda13" }),
    )));
}

#[test]
fn adm_02_default_image_applies_when_unset() {
    let none = request(json!({ "image": null, "runtimeVersionOverride": null }));
    assert_accepted(&review_create(&none));
    let facts = Facts { default_image: Some("mirror/planner:newest"), discovery: true };
    let review = validate(&none, None, &facts);
    assert_rejected(&review, &[NO_VERSION]);
    assert!(
        error_texts(&review)[0]
            .ends_with("Set the field to the version of Dynamo in mirror/planner:newest, such as 1.4.0.")
    );
}

#[test]
fn adm_08_graph_annotations_are_ignored() {
    let mut new = request(json!({}));
    new["metadata"]["annotations"] = json!({ "nvidia.com/dynamo-operator-origin-version": "not-semver" });
    let review = review_create(&new);
    assert_accepted(&review);
    assert_eq!(review.warnings, []);
}

#[test]
fn adm_09_thorough_search_needs_specific_backend() {
    assert_rejected(&review_create(&request(json!({ "backend": "auto", "searchStrategy": "thorough" }))), &[THOROUGH]);
    assert_rejected(&review_create(&request(json!({ "backend": null, "searchStrategy": "thorough" }))), &[THOROUGH]);
    assert_accepted(&review_create(&request(json!({ "searchStrategy": "thorough" }))));
}

#[test]
fn adm_10_hardware_is_optional_with_discovery() {
    assert_accepted(&review_create(&request(json!({}))));
}

#[test]
fn adm_11_without_discovery_hardware_is_needed() {
    assert_rejected(&validate(&request(json!({})), None, &facts(false)), &[NO_HARDWARE]);
    assert_rejected(
        &validate(&request(json!({ "hardware": { "totalGpus": 8 } })), None, &facts(false)),
        &[NO_HARDWARE],
    );
}

#[test]
fn adm_12_one_hardware_field_suffices_without_discovery() {
    for hardware in [json!({ "gpuSku": "h100_sxm" }), json!({ "vramMb": 81_920 }), json!({ "numGpusPerNode": 8 })] {
        assert_accepted(&validate(&request(json!({ "hardware": hardware })), None, &facts(false)));
    }
}

#[test]
fn adm_13_all_errors_have_fixed_order() {
    let new = request(json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    assert_rejected(&validate(&new, None, &facts(false)), &[NO_HARDWARE, THOROUGH, NO_VERSION]);
}

#[test]
fn too_long_job_name_is_rejected() {
    let mut new = request(json!({}));
    new["metadata"]["name"] = json!("a".repeat(55));
    assert_accepted(&review_create(&new));
    new["metadata"]["name"] = json!("a".repeat(56));
    let review = review_create(&new);
    let text = &error_texts(&review)[0];
    assert!(text.starts_with("metadata.name: Invalid value: \"aaaa"), "{text}");
    assert!(
        text.contains("has 56 characters, too many for a label with the name of the profiling Job profile-aaa"),
        "{text}"
    );
    assert!(text.ends_with("Create the request under a name of at most 55 characters."), "{text}");
}

#[test]
fn unmergeable_override_is_rejected_before_profiling() {
    let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "status": {} });
    assert_rejected(
        &review_create(&request(json!({ "overrides": { "dgd": dgd } }))),
        &["spec.overrides.dgd: Invalid value: override status is not supported"],
    );
}

/// From 1.4 on, profilers merge with the program of the Job, which refuses these fields after profiling.
#[test]
fn unknown_graph_field_is_rejected_before_profiling() {
    let component =
        json!({ "name": "Frontend", "podTemplate": { "spec": { "containers": [{ "name": "main", "arg": ["a"] }] } } });
    let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "spec": { "components": [component] } });
    let wrong = "spec.overrides.dgd: Invalid value: override spec.components[Frontend].podTemplate.spec.containers.main.arg is \
                 not a field of nvidia.com/v1beta1";
    for (more, rejected) in [
        (json!({ "image": "planner:1.4.0" }), true),
        (json!({ "runtimeVersionOverride": "1.5.0" }), true),
        (json!({ "image": null }), true),
        (json!({ "image": "planner:1.3.9", "runtimeVersionOverride": null }), false),
        (json!({}), false),
    ] {
        let mut new = request(more.clone());
        new["spec"]["overrides"]["dgd"] = dgd.clone();
        let review = review_create(&new);
        let expected = if rejected { vec![wrong] } else { vec![] };
        assert_rejected(&review, &expected);
        let warned = review.warnings.iter().any(|text| text.to_string().contains("containers.main.arg"));
        assert!(warned || rejected, "{more}");
    }
}

#[test]
fn invalid_graph_name_is_rejected_before_profiling() {
    let named = |name: Value| {
        let metadata = json!({ "name": name });
        let dgd = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": metadata });
        review_create(&request(json!({ "overrides": { "dgd": dgd } })))
    };
    for name in ["chat", "chat-2.team", "0", ""] {
        assert_accepted(&named(json!(name)));
    }
    for name in [json!("Chat_Bot"), json!("-chat"), json!("a..b"), json!("größe"), json!("a".repeat(254)), json!(7)] {
        let text = format!("spec.overrides.dgd.metadata.name: Invalid value: {name}: is not a valid object name");
        assert_rejected(&named(name), &[&text]);
    }
}

#[test]
fn oversized_spec_is_rejected_with_its_length() {
    let planner = |length| json!({ "features": { "planner": { "note": "a".repeat(length) } } });
    assert_accepted(&review_create(&request(planner(130_000))));
    let review = review_create(&request(planner(132_000)));
    let text = &error_texts(&review)[0];
    assert!(
        text.starts_with("spec: Invalid value: the spec has 132") && text.contains("at most 131071 bytes"),
        "{text}"
    );
    assert!(text.ends_with("Shorten spec.features.planner or spec.overrides."), "{text}");
}

#[test]
fn request_without_image_is_rejected() {
    let facts = Facts { default_image: None, discovery: true };
    let review = validate(&request(json!({ "image": "" })), None, &facts);
    assert_rejected(&review, &["spec.image: Required value: spec.image is required"]);
}

#[test]
fn unknown_gpu_sku_is_rejected_with_list() {
    let review = review_create(&request(json!({ "hardware": { "gpuSku": "gtx" } })));
    assert_rejected(&review, &["spec.hardware.gpuSku: Invalid value: \"gtx\": the profiler does not support it"]);
    assert!(error_texts(&review)[0].contains("h100_sxm, h100_pcie"));
}

#[test]
fn undecodable_spec_is_rejected_without_values() {
    let review = review_create(&request(json!({ "model": 7, "backend": "hunter2" })));
    let text = &error_texts(&review)[0];
    assert!(
        text.starts_with("spec.backend: Invalid value: cannot be decoded: unknown value, ")
            && !text.contains("hunter2"),
        "{text}"
    );
}
