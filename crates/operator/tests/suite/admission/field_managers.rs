//! Server-side apply across versions: each field manager keeps the fields that it applied, in whichever version.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::versions::{OTHER_NAMESPACE, storage};
use super::{AdmissionEnv, manifest};

fn older(spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
            "metadata": { "name": "stack" }, "spec": spec })
}

async fn apply(env: &AdmissionEnv, manager: &str, manifest: &Value) -> DynamicObject {
    let version = manifest["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
    let applied = env.objects(version).patch("stack", &PatchParams::apply(manager), &Patch::Apply(manifest)).await;
    applied.unwrap_or_else(|error| panic!("{manager} cannot apply: {error}"))
}

async fn stored_spec(env: &AdmissionEnv) -> Value {
    env.objects("v1alpha2").get("stack").await.unwrap().data["spec"].take()
}

#[tokio::test]
async fn managers_of_different_versions_keep_their_fields() {
    let Some(env) = AdmissionEnv::start("managers", &OTHER_NAMESPACE).await else { return };
    let variables = |value: &str| json!([{ "name": "A", "value": value }]);
    let server = |container: Value| {
        older(json!({ "server": { "distribution": { "name": "starter" }, "containerSpec": container,
                                  "storage": storage() } }))
    };
    apply(&env, "of-old", &server(json!({ "port": 8321, "env": variables("b") }))).await;
    let own = json!({ "disabled": ["eval"], "workload": { "workers": 2 },
                      "providers": { "inference": { "provider": "vllm", "endpoint": "http://v" } } });
    apply(&env, "of-new", &manifest("stack", own.clone())).await;
    let both = json!({
        "distribution": { "name": "starter" },
        "disabled": ["eval"],
        "networking": { "port": 8321 },
        "providers": { "inference": { "provider": "vllm", "endpoint": "http://v" } },
        // The older version fills in one replica.
        "workload": { "replicas": 1, "workers": 2, "storage": storage(), "overrides": { "env": variables("b") } },
    });
    assert_eq!(stored_spec(&env).await, both);

    // Repeated applies of both managers leave each other's fields alone.
    for round in ["c", "d"] {
        apply(&env, "of-old", &server(json!({ "port": 8321, "env": variables(round) }))).await;
        apply(&env, "of-new", &manifest("stack", own.clone())).await;
        let mut wanted = both.clone();
        wanted["workload"]["overrides"]["env"] = variables(round);
        assert_eq!(stored_spec(&env).await, wanted, "{round}");
    }
    // A field that its manager leaves out is removed; the fields of the other manager stay.
    apply(&env, "of-old", &server(json!({ "port": 8321 }))).await;
    let after = stored_spec(&env).await;
    assert_eq!(after["workload"]["overrides"].get("env"), None, "{after}");
    assert_eq!((&after["disabled"], &after["providers"]), (&both["disabled"], &both["providers"]));
    apply(&env, "of-new", &manifest("stack", json!({ "workload": { "workers": 2 } }))).await;
    let mut wanted = both;
    for field in ["disabled", "providers"] {
        wanted.as_object_mut().unwrap().remove(field);
    }
    wanted["workload"].as_object_mut().unwrap().remove("overrides");
    assert_eq!(stored_spec(&env).await, wanted);
}

/// A user rewrites a manifest for the newer version and applies it with the same field manager.
#[tokio::test]
async fn manager_moves_its_manifest_to_newer_version() {
    let Some(env) = AdmissionEnv::start("moved", &OTHER_NAMESPACE).await else { return };
    let before = older(json!({
        "replicas": 2,
        "server": {
            "distribution": { "name": "starter" },
            "containerSpec": { "port": 8321, "env": [{ "name": "A", "value": "b" }] },
            "storage": storage(),
        },
    }));
    apply(&env, "pipeline", &before).await;
    let spec = json!({
        "distribution": { "name": "starter" },
        "networking": { "port": 8321 },
        "workload": { "replicas": 2, "storage": storage(), "overrides": { "env": [{ "name": "A", "value": "b" }] } },
    });
    let moved = apply(&env, "pipeline", &manifest("stack", spec.clone())).await;
    assert_eq!(stored_spec(&env).await, spec);
    assert_eq!(moved.metadata.generation, Some(1), "the same content in another version is no change");
    // A field that the newer manifest leaves out is removed.
    let mut less = spec.clone();
    less["workload"].as_object_mut().unwrap().remove("overrides");
    apply(&env, "pipeline", &manifest("stack", less)).await;
    let after = stored_spec(&env).await;
    assert_eq!(after["workload"]["overrides"].get("env"), None, "{after}");
    assert_eq!(after["workload"]["storage"], spec["workload"]["storage"]);
    assert_eq!(after["networking"], spec["networking"]);
}
