//! The handlers alone, by the routes that an API server posts to.

use base64::Engine as _;
use serde_json::{Value, json};
use steersman::webhooks::admission::Handlers;
use steersman::webhooks::dynamo;
use steersman_api::Family;

use super::*;
use crate::admission::response;

/// The `response` to a request about a change from `old` to `new`.
async fn asked(route: &str, operation: &str, new: Value, old: Value) -> Value {
    let told = dynamo::AdmissionSettings { default_image: Some("planner:1.4.0".to_owned()), discovery: false };
    let handlers = Handlers {
        validate: [(Family::Dgdr, dynamo::validator(told.clone()))].into(),
        mutate: [(Family::Dgdr, dynamo::defaulter(told))].into(),
    };
    response(Family::Dgdr, handlers, route, [new, old], operation).await
}

#[tokio::test]
async fn adm_11_and_13_a_refusal_is_invalid_with_a_cause_for_each_place_in_its_order() {
    let wrong =
        beta("qwen", json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    let response = asked("/validate/dgdr", "CREATE", wrong, Value::Null).await;
    let status = &response["status"];
    assert_eq!((&response["allowed"], &status["code"]), (&json!(false), &json!(422)), "{response}");
    assert_eq!(status["reason"], "Invalid");
    let message = status["message"].as_str().unwrap();
    let expected = "DynamoGraphDeploymentRequest.nvidia.com \"qwen\" is invalid: [spec.hardware: Required value: GPU \
                    hardware configuration is required when GPU discovery is disabled. ";
    assert!(message.starts_with(expected), "{message}");
    let causes = status["details"]["causes"].as_array().unwrap();
    let causes: Vec<_> = causes.iter().map(|cause| (&cause["field"], &cause["reason"])).collect();
    assert_eq!(
        causes,
        [
            (&json!("spec.hardware"), &json!("FieldValueRequired")),
            (&json!("spec.searchStrategy"), &json!("FieldValueInvalid")),
            (&json!("spec.runtimeVersionOverride"), &json!("FieldValueRequired")),
        ]
    );
}

#[tokio::test]
async fn adm_31_and_32_without_discovery_hardware_may_stay_absent_and_may_not_go() {
    let given = beta("qwen", json!({ "hardware": { "gpuSku": "h100_sxm" } }));
    let none = beta("qwen", json!({}));
    let other = beta("qwen", json!({ "model": MODEL }));
    assert_eq!(asked("/validate/dgdr", "UPDATE", other, none.clone()).await["allowed"], true);
    let response = asked("/validate/dgdr", "UPDATE", none, given).await;
    assert_eq!(response["status"]["details"]["causes"][0]["field"], "spec.hardware", "{response}");
}

#[tokio::test]
async fn an_image_is_filled_in_when_a_request_is_created_and_at_no_other_time() {
    let none = beta("qwen", json!({ "image": null }));
    let response = asked("/mutate/dgdr", "CREATE", none.clone(), Value::Null).await;
    let patch = base64::prelude::BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch, json!([{ "op": "add", "path": "/spec/image", "value": "planner:1.4.0" }]));
    let untouched = json!({ "uid": "u", "allowed": true });
    for (operation, new, old) in [
        ("UPDATE", none.clone(), none),
        ("CREATE", beta("qwen", json!({})), Value::Null),
        // Somebody's configuration that wants this version: the place of the image is another there.
        ("CREATE", alpha("qwen", json!({ "profilingConfig": { "profilerImage": "" } })), Value::Null),
        ("DELETE", Value::Null, beta("qwen", json!({}))),
    ] {
        assert_eq!(asked("/mutate/dgdr", operation, new, old).await, untouched, "{operation}");
    }
}

#[tokio::test]
async fn an_object_of_another_kind_is_not_judged() {
    let mut other = beta("qwen", json!({}));
    other["kind"] = json!("DynamoGraphDeployment");
    let response = asked("/validate/dgdr", "CREATE", other, Value::Null).await;
    assert_eq!(response["status"]["code"], 400, "{response}");
    let message = response["status"]["message"].as_str().unwrap();
    let expected = "admission requires nvidia.com/v1beta1, Kind=DynamoGraphDeploymentRequest, got nvidia.com/v1beta1, \
                    Kind=DynamoGraphDeployment; check webhook and CRD conversion configuration";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn deletion_and_what_leaves_the_spec_alone_are_never_refused() {
    let wrong = || beta("qwen", json!({ "backend": "auto", "searchStrategy": "thorough" }));
    let mut freed = wrong();
    freed["metadata"]["labels"] = json!({ "a": "b" });
    let mut deleting = wrong();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    deleting["spec"]["model"] = json!(MODEL);
    for (operation, new, old) in
        [("DELETE", Value::Null, wrong()), ("UPDATE", freed, wrong()), ("UPDATE", deleting, wrong())]
    {
        let response = asked("/validate/dgdr", operation, new, old).await;
        assert_eq!(response, json!({ "uid": "u", "allowed": true }), "{operation}");
    }
}
