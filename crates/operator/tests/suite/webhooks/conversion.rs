//! `/convert`, driven in this process.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use steersman::webhooks::admission::Handlers;
use steersman_api::convert::{ConvertError, Converted, convert};
use tower::ServiceExt;

use super::WebhookRoutes;

fn stack(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": format!("llamastack.io/{version}"), "kind": "LlamaStackDistribution",
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-of-{name}"), "generation": 1 },
        "spec": { "server": { "distribution": { "name": "starter" } } },
    })
}

fn review(desired: &str, objects: Vec<Value>) -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": { "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "desiredAPIVersion": desired, "objects": objects },
    })
}

/// The review as JSON with its fields in the order in which API servers write them.
fn text(review: &Value) -> Vec<u8> {
    let fields = |value: &Value, names: &[&str]| {
        let present = names.iter().filter_map(|name| value.get(name).map(|value| (name, value)));
        present.map(|(name, value)| format!("\"{name}\":{value}")).collect::<Vec<_>>().join(",")
    };
    let request = review.get("request").map(|request| fields(request, &["uid", "desiredAPIVersion", "objects"]));
    let request = request.map_or(String::new(), |request| format!(",\"request\":{{{request}}}"));
    format!("{{{}{request}}}", fields(review, &["kind", "apiVersion"])).into_bytes()
}

#[tokio::test]
async fn conversion_keeps_order_and_sets_version() {
    let webhooks = WebhookRoutes::for_conversion();
    let objects = vec![stack("a", "v1alpha1"), stack("b", "v1alpha2"), stack("c", "v1alpha1")];
    let answer = webhooks.post("/convert", text(&review("llamastack.io/v1alpha2", objects))).await;
    assert_eq!(answer["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert_eq!(answer["result"], json!({ "status": "Success" }));
    let converted = answer["convertedObjects"].as_array().unwrap();
    let names: Vec<_> = converted.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(converted.iter().all(|object| object["apiVersion"] == "llamastack.io/v1alpha2"), "{answer}");
    assert_eq!(webhooks.review_count("/convert", "answered"), 1);
}

/// `kubectl get` lists in chunks of 500 objects; the API server converts each chunk in one review.
#[tokio::test]
async fn review_of_500_objects_is_converted() {
    let mut large = stack("x", "v1alpha1");
    large["metadata"]["annotations"] = json!({ "note": "n".repeat(40_000) });
    let body = text(&review("llamastack.io/v1alpha2", vec![large; 500]));
    println!("a review of {} MiB", body.len() / 1024 / 1024);
    let answer = WebhookRoutes::for_conversion().post("/convert", body).await;
    assert_eq!(answer["result"]["status"], "Success", "{}", answer["result"]);
    assert_eq!(answer["convertedObjects"].as_array().unwrap().len(), 500);
}

#[tokio::test]
async fn empty_review_has_an_empty_response() {
    let answer =
        WebhookRoutes::for_conversion().post("/convert", text(&review("llamastack.io/v1alpha2", vec![]))).await;
    assert_eq!((&answer["result"]["status"], &answer["convertedObjects"]), (&json!("Success"), &json!([])));
}

#[tokio::test]
async fn invalid_conversion_review_fails_with_message() {
    let webhooks = WebhookRoutes::for_conversion();
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let good = review("llamastack.io/v1alpha2", vec![stack("a", "v1alpha1")]);
    let with = |pointer: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(pointer).unwrap() = value;
        text(&review)
    };
    let mut without_request = good.clone();
    without_request.as_object_mut().unwrap().remove("request");
    let mut huge = good.clone();
    huge["request"]["objects"][0]["spec"] = json!("x".repeat(5 * 1024 * 1024));
    let half = text(&good)[..text(&good).len() / 2].to_vec();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let deep = text(&good).iter().map(|byte| *byte as char).collect::<String>().replace("\"starter\"", &deep);
    let foreign = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
    for (body, uid, message) in [
        (Vec::new(), "", "this is not a ConversionReview of apiextensions.k8s.io/v1: EOF"),
        (vec![0xff, 0x00, 0x7b], "", "this is not a ConversionReview of apiextensions.k8s.io/v1: expected value"),
        (b"[]".to_vec(), "", "this is not a ConversionReview of apiextensions.k8s.io/v1: "),
        (b"{}".to_vec(), "", "this webhook supports ConversionReview of apiextensions.k8s.io/v1, not \"\" of \"\""),
        (half, uid, "this is not a ConversionReview of apiextensions.k8s.io/v1: EOF"),
        (
            with("/apiVersion", json!("apiextensions.k8s.io/v1beta1")),
            uid,
            "not \"ConversionReview\" of \"apiextensions.k8s.io/v1beta1\"; set conversionReviewVersions: [\"v1\"]",
        ),
        (with("/kind", json!("AdmissionReview")), uid, "not \"AdmissionReview\" of \"apiextensions.k8s.io/v1\""),
        (text(&without_request), "", "the ConversionReview has no request"),
        (with("/request/objects", json!(7)), uid, "invalid type: integer `7`, expected a list of objects"),
        (with("/request/objects", json!(vec![0; 100_001])), uid, "it has more than 100000 objects"),
        (
            with("/request/objects/0", json!("text")),
            uid,
            "object 1 of 1 (unknown kind without a name): the object to convert is not",
        ),
        (with("/request/objects/0", foreign), uid, "object 1 of 1 (Pod p): there is no conversion for Pod of v1"),
        (
            with("/request/desiredAPIVersion", json!("llamastack.io/v9")),
            uid,
            "object 1 of 1 (LlamaStackDistribution team/a): LlamaStackDistribution has no version \"llamastack.io/v9\"; \
             its versions are v1alpha1, v1alpha2",
        ),
        (
            text(&huge),
            uid,
            "object 1 of 1 in the ConversionReview is larger than 4 MiB, more than an API server accepts",
        ),
        (deep.into_bytes(), uid, "object 1 of 1: recursion limit exceeded"),
    ] {
        let answer = webhooks.post("/convert", body).await;
        assert_eq!(answer["result"]["status"], "Failure", "{answer}");
        assert_eq!((&answer["uid"], &answer["convertedObjects"]), (&json!(uid), &json!([])), "{message}: {answer}");
        let text = answer["result"]["message"].as_str().unwrap();
        assert!(text.contains(message), "expected {message:?} in {text:?}");
    }
    assert_eq!(webhooks.review_count("/convert", "failed"), 15);
}

#[tokio::test]
async fn oversized_conversion_review_is_refused() {
    let mut body = br#"{"kind":"ConversionReview","request":{"uid":"a1","objects":["#.to_vec();
    body.resize(33 * 1024 * 1024, b' ');
    let answer = WebhookRoutes::for_conversion().post("/convert", body).await;
    assert_eq!((&answer["uid"], &answer["result"]["code"]), (&json!("a1"), &json!(413)));
    let text = answer["result"]["message"].as_str().unwrap();
    assert!(text.starts_with("the review is larger than 32 MiB, the limit of this webhook; read fewer"), "{text}");
}

/// A converter that panics on the object `bomb`.
fn fragile(object: Value, to: &str) -> Result<Converted, ConvertError> {
    assert!(object["metadata"]["name"] != "bomb", "the secret of bomb");
    convert(object, to)
}

#[tokio::test]
async fn panic_fails_only_its_conversion_review() {
    let webhooks = WebhookRoutes::new(fragile, Handlers::default());
    for _ in 0..20 {
        let bomb = review("llamastack.io/v1alpha2", vec![stack("a", "v1alpha1"), stack("bomb", "v1alpha1")]);
        let answer = webhooks.post("/convert", text(&bomb)).await;
        assert_eq!((&answer["uid"], &answer["result"]["code"]), (&bomb["request"]["uid"], &json!(500)));
        let text = answer["result"]["message"].as_str().unwrap();
        assert!(text.starts_with("the webhook panicked, which is a defect of the operator; "), "{text}");
        assert!(!answer.to_string().contains("the secret of bomb"));
    }
    assert_eq!(webhooks.review_count("/convert", "panicked"), 20);
    let answer = webhooks.post("/convert", text(&review("llamastack.io/v1alpha2", vec![stack("a", "v1alpha1")]))).await;
    assert_eq!(answer["result"]["status"], "Success");
}

/// During shutdown every response closes its connection. A client that reused the connection could lose its next request.
#[tokio::test]
async fn shutdown_closes_connections_after_the_response() {
    let webhooks = WebhookRoutes::for_conversion();
    let connection_header = async || {
        let body = Body::from(text(&review("llamastack.io/v1alpha2", vec![])));
        let answer = webhooks.routes.clone().oneshot(Request::post("/convert").body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.headers().get("connection").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(connection_header().await, None);
    webhooks.shutdown.cancel();
    assert_eq!(connection_header().await.as_deref(), Some("close"));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let routes = WebhookRoutes::for_conversion().routes;
    for (method, path, status) in [("GET", "/convert", 405), ("POST", "/", 404), ("POST", "/validate", 404)] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        assert_eq!(routes.clone().oneshot(request).await.unwrap().status(), status, "{method} {path}");
    }
}
