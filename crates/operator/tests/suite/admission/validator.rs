//! The validator of LlamaStackDistributions, called through its route while the API server cannot be reached.

use std::time::Duration;

use kube::{Client, Config};
use serde_json::{Value, json};
use steersman::installation::SecretAccess;
use steersman::webhooks::admission::{Handler, Handlers, Verdict};
use steersman::webhooks::llamastack;
use steersman_api::Family;
use steersman_plan::llamastack::validate::Missing;
use steersman_runtime::client::Server;

use super::{manifest, response};

/// A validator whose API server cannot be reached.
fn unreachable_validator() -> Handler {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    let server = Server::new(Client::try_from(config).unwrap(), "nowhere".to_owned(), Duration::from_secs(1));
    llamastack::validator(server, Missing::Refuse, SecretAccess::Get)
}

/// The `response` to a change from `old` to `new`.
pub async fn review(operation: &str, new: Value, old: Value) -> Value {
    let handlers = Handlers { validate: [(Family::Llsd, unreachable_validator())].into(), ..Handlers::default() };
    response(Family::Llsd, handlers, "/validate/llsd", [new, old], operation).await
}

fn invalid_manifest() -> Value {
    manifest("stack", json!({ "distribution": { "name": "startr" } }))
}

#[tokio::test]
async fn refusal_lists_one_cause_per_field() {
    let new = manifest(
        "stack",
        json!({ "distribution": { "name": "startr" }, "networking": { "expose": true }, "disabled": ["safety"],
                "providers": { "safety": { "provider": "llama-guard" } } }),
    );
    let response = review("CREATE", new, Value::Null).await;
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
    let message = details["causes"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("starter-gpu. Use one of them, or set spec.distribution.image."), "{message}");
}

/// With `matchPolicy: Exact` the API server sends objects without converting them first.
#[tokio::test]
async fn older_version_is_validated_with_its_own_paths() {
    let older = |name: &str| {
        json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
                "metadata": { "name": "stack" }, "spec": { "server": { "distribution": { "name": name } } } })
    };
    assert_eq!(review("CREATE", older("starter"), Value::Null).await["allowed"], true);
    let response = review("UPDATE", older("startr"), older("starter")).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("is invalid: spec.server.distribution.name: Unknown distribution"), "{message}");
    assert!(message.ends_with("or set spec.server.distribution.image."), "{message}");
}

#[tokio::test]
async fn deletions_and_metadata_changes_are_never_refused() {
    let mut labelled = invalid_manifest();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    let mut deleting = invalid_manifest();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    deleting["spec"]["workload"] = json!({ "replicas": 2 });
    for (operation, new, old) in [
        ("DELETE", Value::Null, invalid_manifest()),
        ("UPDATE", labelled, invalid_manifest()),
        ("UPDATE", deleting, invalid_manifest()),
    ] {
        assert_eq!(review(operation, new, old).await, json!({ "uid": "u", "allowed": true }), "{operation}");
    }
}

#[tokio::test]
async fn unchecked_reference_warns_and_impossible_name_is_missing() {
    let with = |name: &str| {
        let reference = json!({ "secretKeyRef": { "name": name, "key": "k" } });
        let inference = json!({ "provider": "vllm", "endpoint": "http://v", "apiKey": reference });
        manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": inference } }))
    };
    let response = review("CREATE", with("creds"), Value::Null).await;
    assert_eq!(response["allowed"], true);
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with(
            "spec.providers.inference.apiKey.secretKeyRef.name: cannot check whether Secret \"creds\" exists: "
        ),
        "{warning}"
    );
    let response = review("CREATE", with("../configmaps/creds"), Value::Null).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("Secret \"../configmaps/creds\" not found in namespace \"team-a\""), "{message}");
}

/// The API server is not called: it could not say what nobody may do.
#[tokio::test]
async fn review_without_user_gets_neutral_text() {
    let key = json!({ "name": "creds", "key": "k" });
    let inference = json!({ "provider": "vllm", "endpoint": "http://v", "apiKey": key });
    let new =
        manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": inference } }));
    for user in [json!({}), json!({ "username": "" }), json!({ "groups": ["system:masters"] })] {
        let request = json!({ "uid": "u", "operation": "CREATE", "userInfo": user, "namespace": "team-a",
            "kind": { "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" },
            "resource": { "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" },
            "object": new, "oldObject": null });
        let response = unreachable_validator()(serde_json::from_value(request).unwrap()).await;
        assert_eq!(response.verdict, Verdict::Allow);
        let expected = "spec.providers.inference.apiKey.name: Secret \"creds\" could not be checked for you, because you may \
                        not get it; see the object's conditions";
        assert_eq!(response.warnings, [expected], "{user}");
    }
}

#[tokio::test]
async fn reference_checks_are_limited_per_object() {
    let provider = |number: usize| {
        json!({ "id": format!("p{number}"), "provider": "vllm", "endpoint": "http://v",
                "apiKey": { "name": format!("creds-{number}"), "key": "k" } })
    };
    let many: Vec<Value> = (0..100).map(provider).collect();
    let new = manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": many } }));
    let response = review("CREATE", new, Value::Null).await;
    assert_eq!(response["allowed"], true, "{response}");
    let warnings = response["warnings"].as_array().unwrap();
    let unchecked =
        warnings.iter().filter(|warning| warning.as_str().unwrap().ends_with("more than 64 objects are referenced"));
    assert_eq!((warnings.len(), unchecked.count()), (100, 36));
}

/// Admission does not ask registries: they may be slow, and labels may change. The controller reads them.
#[tokio::test]
async fn image_with_unread_labels_is_accepted() {
    let spec = json!({ "distribution": { "image": "quay.io/me/stack:1" }, "disabled": ["eval"],
        "resources": { "models": [{ "name": "m", "provider": "of-the-image" }] } });
    let response = review("CREATE", manifest("stack", spec), Value::Null).await;
    assert_eq!((&response["allowed"], &response["warnings"]), (&json!(true), &Value::Null), "{response}");
}

#[tokio::test]
async fn unknown_newer_field_is_accepted_with_warning() {
    let env = json!([{ "name": "A", "valueFrom": { "fileKeyRef": { "volumeName": "v", "path": "p", "key": "k" } } }]);
    let spec = json!({ "distribution": { "name": "starter" }, "workload": { "overrides": { "env": env } } });
    let response = review("CREATE", manifest("stack", spec), Value::Null).await;
    let expected =
        "spec.workload.overrides.env[0].valueFrom.fileKeyRef: this version of Steersman does not know the field";
    assert!(response["warnings"][0].as_str().unwrap().starts_with(expected), "{response}");
}

#[tokio::test]
async fn new_volume_warns_of_its_deletion() {
    let with_storage = manifest(
        "stack",
        json!({ "distribution": { "name": "starter" },
        "workload": { "storage": { "size": "1Gi" } } }),
    );
    let without = manifest("stack", json!({ "distribution": { "name": "starter" } }));
    let mut kept = with_storage.clone();
    kept["metadata"]["annotations"] = json!({ "steersman.dev/keep-volume": "true" });
    let warning = "spec.workload.storage: PersistentVolumeClaim stack-pvc and its data are deleted with this object";
    for (operation, new, old, warned) in [
        ("CREATE", &with_storage, &Value::Null, true),
        ("UPDATE", &with_storage, &without, true),
        ("CREATE", &kept, &Value::Null, false),
        ("UPDATE", &with_storage, &with_storage, false),
        ("CREATE", &without, &Value::Null, false),
    ] {
        let response = review(operation, new.clone(), old.clone()).await;
        assert_eq!(response["allowed"], true, "{response}");
        let mut warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        assert_eq!(warnings.any(|text| text.starts_with(warning)), warned, "{operation} {new}\n{response}");
    }
}
