//! Two versions of one object, converted by the operator's process: both show the same content, and a write in one version
//! keeps the fields that only the other has.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_testkit::object;

use super::AdmissionEnv;

/// Flags that keep the controller away from the namespace of the test, so that only the test changes objects there.
pub const OTHER_NAMESPACE: [&str; 2] = ["--watch-namespace", "default"];

/// Storage with all fields that the schemas default, so that the object read equals the object written.
pub fn storage() -> Value {
    json!({ "size": "20Gi", "mountPath": "/.llama" })
}

/// A manifest with fields of both versions and some that only v1alpha2 has.
pub fn newer_manifest() -> Value {
    super::manifest(
        "stack",
        json!({
            "distribution": { "name": "starter" },
            "networking": { "port": 8321, "expose": { "hostname": "llama.example.com" } },
            "providers": { "inference": { "provider": "vllm", "endpoint": "http://v" } },
            "disabled": ["eval"],
            "workload": {
                "replicas": 2,
                "storage": storage(),
                "overrides": { "env": [{ "name": "A", "value": "b" }] },
            },
        }),
    )
}

async fn create(env: &AdmissionEnv) -> DynamicObject {
    env.objects("v1alpha2").create(&PostParams::default(), &object(newer_manifest())).await.unwrap()
}

async fn read_as(env: &AdmissionEnv, version: &str) -> Value {
    serde_json::to_value(env.objects(version).get("stack").await.unwrap()).unwrap()
}

fn convert_to_older(object: &Value) -> Value {
    convert(object.clone(), "llamastack.io/v1alpha1").unwrap().object
}

#[tokio::test]
async fn both_versions_show_the_same_object() {
    let Some(env) = AdmissionEnv::start("views", &OTHER_NAMESPACE).await else { return };
    create(&env).await;
    let (older, stored) = (read_as(&env, "v1alpha1").await, read_as(&env, "v1alpha2").await);
    assert_eq!(older["spec"], convert_to_older(&stored)["spec"]);
    assert_eq!(older["spec"]["server"]["storage"]["size"], "20Gi");
    assert_eq!(stored["spec"], newer_manifest()["spec"], "nothing was added or lost on the way in");
    let back = convert(older.clone(), "llamastack.io/v1alpha2").unwrap().object;
    assert_eq!(back["spec"], stored["spec"], "the older view holds all that the newer has");
    for (kind, place, value) in [
        ("llamastackdistributions.v1alpha1.llamastack.io", "{.spec.server.containerSpec.port}", "8321"),
        ("llamastackdistributions.v1alpha2.llamastack.io", "{.spec.networking.port}", "8321"),
        ("llamastackdistributions.v1alpha2.llamastack.io", "{.spec.disabled[0]}", "eval"),
    ] {
        let shown = env.kubectl(&["get", kind, "stack", "-o", &format!("jsonpath={place}")]).await.ok();
        assert_eq!(shown, value, "{kind} {place}");
    }
}

#[tokio::test]
async fn status_written_in_one_version_keeps_the_other() {
    let Some(env) = AdmissionEnv::start("status", &OTHER_NAMESPACE).await else { return };
    create(&env).await;
    let patch = async |version: &str, status: Value| {
        let status = Patch::Merge(json!({ "status": status }));
        env.objects(version).patch_status("stack", &PatchParams::default(), &status).await.unwrap();
    };
    patch(
        "v1alpha2",
        json!({ "phase": "Initializing", "resolvedDistribution": { "image": "i" }, "availableReplicas": 1 }),
    )
    .await;
    assert_eq!(read_as(&env, "v1alpha1").await["status"]["phase"], "Initializing");
    patch("v1alpha1", json!({ "phase": "Ready" })).await;
    let stored = read_as(&env, "v1alpha2").await;
    assert_eq!(stored["status"]["phase"], "Ready");
    assert_eq!(stored["status"]["availableReplicas"], 1);
    assert_eq!(stored["status"]["resolvedDistribution"]["image"], "i", "a field that only v1alpha2 has");
    assert_eq!(stored["spec"], newer_manifest()["spec"], "a status write leaves the spec alone");
    assert_eq!(stored["metadata"]["generation"], 1);
}

#[tokio::test]
async fn older_client_removes_only_its_field() {
    let Some(env) = AdmissionEnv::start("removed", &OTHER_NAMESPACE).await else { return };
    create(&env).await;
    // A Go client reads the object, changes it and writes it back as a whole.
    let mut older = read_as(&env, "v1alpha1").await;
    older["spec"]["server"]["containerSpec"]
        .as_object_mut()
        .unwrap()
        .remove("env")
        .expect("the older version shows env");
    older["spec"]["replicas"] = json!(3);
    env.objects("v1alpha1").replace("stack", &PostParams::default(), &object(older)).await.unwrap();
    let mut wanted = newer_manifest()["spec"].clone();
    wanted["workload"]["replicas"] = json!(3);
    wanted["workload"].as_object_mut().unwrap().remove("overrides");
    let mut stored = read_as(&env, "v1alpha2").await["spec"].take();
    // An empty section may stay or go.
    let workload = stored["workload"].as_object_mut().unwrap();
    assert_eq!(workload.remove("overrides").unwrap_or_else(|| json!({})), json!({}));
    assert_eq!(stored, wanted);
}
