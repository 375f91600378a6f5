//! `/validate/<family>` and `/mutate/<family>`, called in this process with handlers of the tests.

use std::collections::BTreeMap;

use kube::core::admission::AdmissionRequest;
use kube::core::response::{StatusCause, StatusDetails};
use kube::core::{DynamicObject, Status};
use serde_json::{Value, json};
use steersman::webhooks::admission::{Handlers, Response, handler, lookup_handler};
use steersman_api::Family;
use steersman_api::convert::convert;

use super::WebhookRoutes;

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

fn review(name: &str) -> Value {
    let kind = json!({ "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" });
    let resource = json!({ "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" });
    let object = json!({
        "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": name, "namespace": "team" }, "spec": {},
    });
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "kind": kind, "resource": resource, "name": name, "namespace": "team",
            "operation": "CREATE", "userInfo": { "username": "ann" }, "object": object, "oldObject": null,
            "dryRun": false, "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
    })
}

fn invalid(field: &str, message: &str) -> Status {
    let cause = StatusCause { reason: "FieldValueInvalid".into(), message: message.into(), field: field.into() };
    let details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![cause],
        retry_after_seconds: 0,
    };
    Status::failure(&format!("{field}: {message}"), "Invalid").with_code(422).with_details(details)
}

fn webhooks() -> WebhookRoutes {
    let validate = handler(|request| match request.name.as_str() {
        "bad" => Response::deny(invalid("spec.distribution.name", "there is no such distribution")).warn("look twice"),
        "bomb" => panic!("the secret of bomb"),
        _ => Response::allow(),
    });
    let mutate = lookup_handler(
        Ok,
        |_| tokio::task::yield_now(),
        |request: &AdmissionRequest<DynamicObject>, ()| {
            let operation = json!({ "op": "add", "path": "/metadata/labels", "value": { "of": request.name } });
            Response::patch(vec![operation]).warn("labelled")
        },
    );
    let handlers = Handlers {
        validate: BTreeMap::from([(Family::Llsd, validate)]),
        mutate: BTreeMap::from([(Family::Llsd, mutate.clone())]),
        client_ca: None,
    };
    WebhookRoutes::new(convert, handlers)
}

async fn post(webhooks: &WebhookRoutes, path: &str, review: &Value) -> Value {
    webhooks.post(path, review.to_string()).await
}

#[tokio::test]
async fn handlers_allow_deny_warn_and_patch() {
    let webhooks = webhooks();
    let allowed = post(&webhooks, "/validate/llsd", &review("good")).await;
    assert_eq!(allowed, json!({ "uid": UID, "allowed": true }));
    let denied = post(&webhooks, "/validate/llsd", &review("bad")).await;
    assert_eq!((&denied["uid"], &denied["allowed"]), (&json!(UID), &json!(false)));
    assert_eq!(denied["warnings"], json!(["look twice"]));
    let status = &denied["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(status["message"], "spec.distribution.name: there is no such distribution");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.distribution.name");
    let patched = post(&webhooks, "/mutate/llsd", &review("good")).await;
    assert_eq!((&patched["allowed"], &patched["patchType"]), (&json!(true), &json!("JSONPatch")));
    let k8s_openapi::ByteString(patch) = serde_json::from_value(patched["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch, json!([{ "op": "add", "path": "/metadata/labels", "value": { "of": "good" } }]));
    assert_eq!(webhooks.review_count("/validate/llsd", "answered"), 1);
    assert_eq!(webhooks.review_count("/validate/llsd", "denied"), 1);
    assert_eq!(webhooks.review_count("/mutate/llsd", "answered"), 1);
}

#[tokio::test]
async fn invalid_admission_review_is_refused_with_message() {
    let webhooks = webhooks();
    let good = review("good");
    let mut beta = good.clone();
    beta["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let mut without_request = good.clone();
    without_request.as_object_mut().unwrap().remove("request");
    let mut without_operation = good.clone();
    without_operation["request"].as_object_mut().unwrap().remove("operation");
    let half = good.to_string()[..200].to_owned();
    for (path, body, uid, message) in [
        ("/validate/llsd", String::new(), "", "this is not an AdmissionReview of admission.k8s.io/v1: EOF"),
        ("/mutate/llsd", "\u{0}\u{1}".to_owned(), "", "this is not an AdmissionReview of admission.k8s.io/v1: "),
        ("/validate/llsd", half, "", "this is not an AdmissionReview of admission.k8s.io/v1: EOF"),
        ("/validate/llsd", beta.to_string(), UID, "set admissionReviewVersions: [\"v1\"] in the webhook configuration"),
        ("/validate/llsd", without_request.to_string(), "", "the AdmissionReview has no request"),
        ("/validate/llsd", without_operation.to_string(), UID, "missing field `operation`"),
        (
            "/validate/va",
            good.to_string(),
            UID,
            "this version of Steersman has no admission webhook at /validate/va; remove",
        ),
        (
            "/mutate/pods",
            good.to_string(),
            UID,
            "this version of Steersman has no admission webhook at /mutate; remove",
        ),
    ] {
        let answer = webhooks.post(path, body).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        let text = answer["status"]["message"].as_str().unwrap();
        assert!(text.contains(message), "expected {message:?} in {text:?}");
        if !uid.is_empty() {
            assert_eq!(answer["uid"], uid, "{message}");
        }
    }
    let mut large = format!(r#"{{"kind":"AdmissionReview","request":{{"uid":"{UID}","object":"#).into_bytes();
    large.resize(10 * 1024 * 1024, b'1');
    let answer = webhooks.post("/validate/llsd", large).await;
    assert_eq!((&answer["uid"], &answer["status"]["code"]), (&json!(UID), &json!(413)));
    assert!(answer["status"]["message"].as_str().unwrap().starts_with("the review is larger than 8 MiB"));
}

#[tokio::test]
async fn panic_refuses_only_its_admission_review() {
    let webhooks = webhooks();
    for _ in 0..20 {
        let answer = post(&webhooks, "/validate/llsd", &review("bomb")).await;
        assert_eq!((&answer["uid"], &answer["allowed"]), (&json!(UID), &json!(false)));
        assert_eq!(answer["status"]["code"], 500);
        assert!(!answer.to_string().contains("the secret of bomb"), "content of the object is in the response");
    }
    assert_eq!(webhooks.review_count("/validate/llsd", "panicked"), 20);
    assert_eq!(post(&webhooks, "/validate/llsd", &review("good")).await["allowed"], true);
}

/// The metrics have the names of NVIDIA's operator. A request is counted once, although it is mutated and validated.
#[tokio::test]
async fn admission_of_requests_is_counted() {
    let handlers = Handlers {
        validate: BTreeMap::from([(
            Family::Dgdr,
            handler(|request| match request.name.as_str() {
                "bad" => Response::deny(invalid("spec.model", "is required")),
                _ => Response::allow(),
            }),
        )]),
        mutate: BTreeMap::from([(Family::Dgdr, handler(|_| Response::allow()))]),
        client_ca: None,
    };
    let webhooks = WebhookRoutes::new(convert, handlers);
    for name in ["good", "bad"] {
        post(&webhooks, "/mutate/dgdr", &review(name)).await;
        post(&webhooks, "/validate/dgdr", &review(name)).await;
    }
    let text = webhooks.metrics.text().unwrap();
    let labels = "resource_type=\"DynamoGraphDeploymentRequest\",operation=\"CREATE\"";
    for line in [
        format!("dynamo_operator_webhook_requests_total{{{labels},result=\"allowed\"}} 1"),
        format!("dynamo_operator_webhook_requests_total{{{labels},result=\"denied\"}} 1"),
        format!("dynamo_operator_webhook_denials_total{{{labels},reason=\"Invalid\"}} 1"),
        format!("dynamo_operator_webhook_duration_seconds_count{{{labels}}} 2"),
    ] {
        assert!(text.lines().any(|sample| sample == line), "{line} is not in\n{text}");
    }
}
