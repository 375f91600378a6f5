//! The judge alone, by the routes that an API server posts to, where no API server can be looked things up on.

use std::time::Duration;

use kube::{Client, Config};
use serde_json::{Value, json};
use steersman::webhooks::admission::Handlers;
use steersman::webhooks::llamastack;
use steersman_api::Family;
use steersman_plan::llamastack::validate::Missing;
use steersman_runtime::client::Server;

use super::{manifest, response};

/// The `response` to a request about a change from `old` to `new`.
async fn asked(operation: &str, new: Value, old: Value) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    let server = Server::new(Client::try_from(config).unwrap(), "nowhere".to_owned(), Duration::from_secs(1));
    let judge = llamastack::validator(server, "steersman-system", Missing::Refuse);
    let handlers = Handlers { validate: [(Family::Llsd, judge)].into(), ..Handlers::default() };
    response(Family::Llsd, handlers, "/validate/llsd", [new, old], operation).await
}

fn wrong() -> Value {
    manifest("stack", json!({ "distribution": { "name": "startr" } }))
}

#[tokio::test]
async fn a_refusal_is_invalid_with_a_cause_for_each_place() {
    let new = manifest(
        "stack",
        json!({ "distribution": { "name": "startr" }, "networking": { "expose": true }, "disabled": ["safety"],
                "providers": { "safety": { "provider": "llama-guard" } } }),
    );
    let response = asked("CREATE", new, Value::Null).await;
    let status = &response["status"];
    assert_eq!((&response["allowed"], &status["code"]), (&json!(false), &json!(422)), "{response}");
    assert_eq!(status["reason"], "Invalid");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("LlamaStackDistribution.llamastack.io \"stack\" is invalid: [spec.distribution.name: "),
        "{message}"
    );
    let details = &status["details"];
    assert_eq!((details["kind"].as_str(), details["name"].as_str()), (Some("LlamaStackDistribution"), Some("stack")));
    let fields: Vec<_> = details["causes"].as_array().unwrap().iter().map(|cause| &cause["field"]).collect();
    assert_eq!(fields, ["spec.distribution.name", "spec.providers.safety"]);
    assert_eq!(details["causes"][0]["reason"], "FieldValueInvalid");
    let told = details["causes"][0]["message"].as_str().unwrap();
    assert!(told.ends_with("starter-gpu. Name one of them, or give spec.distribution.image."), "{told}");
}

/// A configuration with `matchPolicy: Exact` sends them so.
#[tokio::test]
async fn an_object_of_the_older_version_is_judged_and_told_its_own_places() {
    let older = |name: &str| {
        json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
                "metadata": { "name": "stack" }, "spec": { "server": { "distribution": { "name": name } } } })
    };
    assert_eq!(asked("CREATE", older("starter"), Value::Null).await["allowed"], true);
    let response = asked("UPDATE", older("startr"), older("starter")).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("is invalid: spec.server.distribution.name: Unknown distribution"), "{message}");
    assert!(message.ends_with("or give spec.server.distribution.image."), "{message}");
}

#[tokio::test]
async fn deletion_and_what_leaves_the_spec_alone_are_never_refused() {
    let mut freed = wrong();
    freed["metadata"]["labels"] = json!({ "a": "b" });
    let mut deleting = wrong();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    deleting["spec"]["workload"] = json!({ "replicas": 2 });
    for (operation, new, old) in
        [("DELETE", Value::Null, wrong()), ("UPDATE", freed, wrong()), ("UPDATE", deleting, wrong())]
    {
        assert_eq!(asked(operation, new, old).await, json!({ "uid": "u", "allowed": true }), "{operation}");
    }
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_a_warning_and_what_cannot_be_a_name_is_missing() {
    let with = |name: &str| {
        let reference = json!({ "secretKeyRef": { "name": name, "key": "k" } });
        let inference = json!({ "provider": "vllm", "endpoint": "http://v", "apiKey": reference });
        manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": inference } }))
    };
    let response = asked("CREATE", with("creds"), Value::Null).await;
    assert_eq!(response["allowed"], true);
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with(
            "spec.providers.inference.apiKey.secretKeyRef.name: it was not checked whether the Secret \"creds\" is there: "
        ),
        "{warning}"
    );
    let response = asked("CREATE", with("../configmaps/creds"), Value::Null).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("Secret \"../configmaps/creds\" not found in namespace \"team-a\""), "{message}");
}

#[tokio::test]
async fn however_much_an_object_names_the_looks_are_bounded() {
    let one = |place: usize| {
        json!({ "id": format!("p{place}"), "provider": "vllm", "endpoint": "http://v",
                "apiKey": { "name": format!("creds-{place}"), "key": "k" } })
    };
    let many: Vec<Value> = (0..100).map(one).collect();
    let new = manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": many } }));
    let response = asked("CREATE", new, Value::Null).await;
    assert_eq!(response["allowed"], true, "{response}");
    let warnings = response["warnings"].as_array().unwrap();
    let beyond = warnings.iter().filter(|said| said.as_str().unwrap().ends_with("more than 64 objects are named"));
    assert_eq!((warnings.len(), beyond.count()), (100, 36));
}

/// A registry may be slow, and its answer may change: what an image carries is the controller's business.
#[tokio::test]
async fn an_image_whose_labels_nobody_has_read_is_not_refused_for_lack_of_a_base() {
    let spec = json!({ "distribution": { "image": "quay.io/me/stack:1" }, "disabled": ["eval"],
        "resources": { "models": [{ "name": "m", "provider": "of-the-image" }] } });
    let response = asked("CREATE", manifest("stack", spec), Value::Null).await;
    assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &Value::Null), "{response}");
}

#[tokio::test]
async fn a_field_that_is_newer_than_our_types_is_accepted_with_a_warning() {
    let env = json!([{ "name": "A", "valueFrom": { "fileKeyRef": { "volumeName": "v", "path": "p", "key": "k" } } }]);
    let spec = json!({ "distribution": { "name": "starter" }, "workload": { "overrides": { "env": env } } });
    let response = asked("CREATE", manifest("stack", spec), Value::Null).await;
    let told = "spec.workload.overrides.env[0].valueFrom.fileKeyRef: this version of Steersman does not know the field";
    assert!(response["warnings"][0].as_str().unwrap().starts_with(told), "{response}");
}
