//! The validator and the defaulter of requests, called through their routes without an API server.

use base64::Engine as _;
use serde_json::{Value, json};
use steersman::webhooks::admission::Handlers;
use steersman::webhooks::dynamo;
use steersman_api::Family;

use super::*;
use crate::admission::response;

/// The `response` to a change from `old` to `new`.
async fn review(route: &str, operation: &str, new: Value, old: Value) -> Value {
    let settings = dynamo::AdmissionSettings { default_image: Some("planner:1.4.0".to_owned()), discovery: false };
    let handlers = Handlers {
        validate: [(Family::Dgdr, dynamo::validator(settings.clone()))].into(),
        mutate: [(Family::Dgdr, dynamo::defaulter(settings))].into(),
        client_ca: None,
    };
    response(Family::Dgdr, handlers, route, [new, old], operation).await
}

#[tokio::test]
async fn adm_11_and_13_refusal_lists_every_cause() {
    let wrong =
        beta("qwen", json!({ "backend": "auto", "searchStrategy": "thorough", "runtimeVersionOverride": null }));
    let response = review("/validate/dgdr", "CREATE", wrong, Value::Null).await;
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
async fn adm_31_and_32_hardware_cannot_be_removed() {
    let with_hardware = beta("qwen", json!({ "hardware": { "gpuSku": "h100_sxm" } }));
    let without_hardware = beta("qwen", json!({}));
    let other = beta("qwen", json!({ "model": MODEL }));
    assert_eq!(review("/validate/dgdr", "UPDATE", other, without_hardware.clone()).await["allowed"], true);
    let response = review("/validate/dgdr", "UPDATE", without_hardware, with_hardware).await;
    assert_eq!(response["status"]["details"]["causes"][0]["field"], "spec.hardware", "{response}");
}

#[tokio::test]
async fn image_is_defaulted_only_at_creation() {
    let without_image = beta("qwen", json!({ "image": null }));
    let response = review("/mutate/dgdr", "CREATE", without_image.clone(), Value::Null).await;
    let patch = base64::prelude::BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch, json!([{ "op": "add", "path": "/spec/image", "value": "planner:1.4.0" }]));
    let untouched = json!({ "uid": "u", "allowed": true });
    for (operation, new, old) in [
        ("UPDATE", without_image.clone(), without_image),
        ("CREATE", beta("qwen", json!({})), Value::Null),
        // A custom configuration may send v1alpha1, which has the image in another field.
        ("CREATE", alpha("qwen", json!({ "profilingConfig": { "profilerImage": "" } })), Value::Null),
        ("DELETE", Value::Null, beta("qwen", json!({}))),
    ] {
        assert_eq!(review("/mutate/dgdr", operation, new, old).await, untouched, "{operation}");
    }
}

#[tokio::test]
async fn object_of_another_kind_is_refused() {
    let mut other = beta("qwen", json!({}));
    other["kind"] = json!("DynamoGraphDeployment");
    let response = review("/validate/dgdr", "CREATE", other, Value::Null).await;
    assert_eq!(response["status"]["code"], 400, "{response}");
    let message = response["status"]["message"].as_str().unwrap();
    let expected = "admission requires nvidia.com/v1beta1, Kind=DynamoGraphDeploymentRequest, got nvidia.com/v1beta1, \
                    Kind=DynamoGraphDeployment; check webhook and CRD conversion configuration";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn deletions_and_metadata_changes_are_never_refused() {
    let wrong = || beta("qwen", json!({ "backend": "auto", "searchStrategy": "thorough" }));
    let mut labelled = wrong();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    let mut deleting = wrong();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    deleting["spec"]["model"] = json!(MODEL);
    for (operation, new, old) in
        [("DELETE", Value::Null, wrong()), ("UPDATE", labelled, wrong()), ("UPDATE", deleting, wrong())]
    {
        let response = review("/validate/dgdr", operation, new, old).await;
        assert_eq!(response, json!({ "uid": "u", "allowed": true }), "{operation}");
    }
}
