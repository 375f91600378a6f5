//! `/validate/<family>` and `/mutate/<family>`, driven in this process with handlers of the tests' own.

use std::collections::BTreeMap;

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};
use serde_json::{Value, json};
use steersman::webhooks::admission::{Handlers, Response, async_handler, handler};
use steersman_api::Family;
use steersman_api::convert::convert;

use super::Here;

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

fn here() -> Here {
    let validate = handler(|request| match request.name.as_str() {
        "bad" => Response::deny(invalid("spec.distribution.name", "there is no such distribution")).warn("look twice"),
        "bomb" => panic!("the secret of bomb"),
        _ => Response::allow(),
    });
    let mutate = async_handler(|request| async move {
        tokio::task::yield_now().await;
        let operation = json!({ "op": "add", "path": "/metadata/labels", "value": { "of": request.name } });
        Response::patch(vec![operation]).warn("labelled")
    });
    let handlers = Handlers {
        validate: BTreeMap::from([(Family::Llsd, validate)]),
        mutate: BTreeMap::from([(Family::Llsd, mutate.clone())]),
    };
    Here::with(convert, handlers)
}

async fn post(here: &Here, path: &str, review: &Value) -> Value {
    here.post(path, review.to_string()).await
}

#[tokio::test]
async fn a_judge_allows_denies_warns_and_patches() {
    let here = here();
    let allowed = post(&here, "/validate/llsd", &review("good")).await;
    assert_eq!(allowed, json!({ "uid": UID, "allowed": true }));
    let denied = post(&here, "/validate/llsd", &review("bad")).await;
    assert_eq!((&denied["uid"], &denied["allowed"]), (&json!(UID), &json!(false)));
    assert_eq!(denied["warnings"], json!(["look twice"]));
    let status = &denied["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(status["message"], "spec.distribution.name: there is no such distribution");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.distribution.name");
    let patched = post(&here, "/mutate/llsd", &review("good")).await;
    assert_eq!((&patched["allowed"], &patched["patchType"]), (&json!(true), &json!("JSONPatch")));
    let k8s_openapi::ByteString(patch) = serde_json::from_value(patched["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch, json!([{ "op": "add", "path": "/metadata/labels", "value": { "of": "good" } }]));
    assert_eq!(here.counted("/validate/llsd", "answered"), 1);
    assert_eq!(here.counted("/validate/llsd", "denied"), 1);
    assert_eq!(here.counted("/mutate/llsd", "answered"), 1);
}

#[tokio::test]
async fn what_cannot_be_judged_is_refused_and_says_why() {
    let here = here();
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
        ("/validate/va", good.to_string(), UID, "this version of Steersman has no admission at /validate/va; remove"),
        ("/mutate/pods", good.to_string(), UID, "this version of Steersman has no admission at /mutate; remove"),
    ] {
        let answer = here.post(path, body).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        let said = answer["status"]["message"].as_str().unwrap();
        assert!(said.contains(message), "expected {message:?} in {said:?}");
        if !uid.is_empty() {
            assert_eq!(answer["uid"], uid, "{message}");
        }
    }
    let mut large = format!(r#"{{"kind":"AdmissionReview","request":{{"uid":"{UID}","object":"#).into_bytes();
    large.resize(10 * 1024 * 1024, b'1');
    let answer = here.post("/validate/llsd", large).await;
    assert_eq!((&answer["uid"], &answer["status"]["code"]), (&json!(UID), &json!(413)));
    assert!(answer["status"]["message"].as_str().unwrap().starts_with("the review is larger than 8 MiB"));
}

#[tokio::test]
async fn a_panic_refuses_this_request_and_no_other() {
    let here = here();
    for _ in 0..20 {
        let answer = post(&here, "/validate/llsd", &review("bomb")).await;
        assert_eq!((&answer["uid"], &answer["allowed"]), (&json!(UID), &json!(false)));
        assert_eq!(answer["status"]["code"], 500);
        assert!(!answer.to_string().contains("the secret of bomb"), "an object's words are its user's");
    }
    assert_eq!(here.counted("/validate/llsd", "panicked"), 20);
    assert_eq!(post(&here, "/validate/llsd", &review("good")).await["allowed"], true);
}

/// Under the names of NVIDIA's operator, and once for each request: what is mutated is validated afterwards.
#[tokio::test]
async fn verdicts_on_requests_are_measured() {
    let handlers = Handlers {
        validate: BTreeMap::from([(
            Family::Dgdr,
            handler(|request| match request.name.as_str() {
                "bad" => Response::deny(invalid("spec.model", "is required")),
                _ => Response::allow(),
            }),
        )]),
        mutate: BTreeMap::from([(Family::Dgdr, handler(|_| Response::allow()))]),
    };
    let here = Here::with(convert, handlers);
    for name in ["good", "bad"] {
        post(&here, "/mutate/dgdr", &review(name)).await;
        post(&here, "/validate/dgdr", &review(name)).await;
    }
    let text = here.metrics.text().unwrap();
    let of = "resource_type=\"DynamoGraphDeploymentRequest\",operation=\"CREATE\"";
    for line in [
        format!("dynamo_operator_webhook_requests_total{{{of},result=\"allowed\"}} 1"),
        format!("dynamo_operator_webhook_requests_total{{{of},result=\"denied\"}} 1"),
        format!("dynamo_operator_webhook_denials_total{{{of},reason=\"Invalid\"}} 1"),
        format!("dynamo_operator_webhook_duration_seconds_count{{{of}}} 2"),
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
}
