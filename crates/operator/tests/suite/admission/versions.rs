//! Two versions of one object, written and read through the real process: both show the same, and neither loses what only
//! the other can say.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_testkit::object;

use super::Court;

/// The controller leaves the namespace of these tests alone: what changes there, the test has changed.
pub const ELSEWHERE: [&str; 2] = ["--watch-namespace", "default"];

/// With what both schemas fill in, so that what is read can be compared with what was written.
pub fn storage() -> Value {
    json!({ "size": "20Gi", "mountPath": "/.llama" })
}

/// Fields of both versions, and some that only the newer has.
pub fn newer() -> Value {
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

async fn create(court: &Court) -> DynamicObject {
    court.objects("v1alpha2").create(&PostParams::default(), &object(newer())).await.unwrap()
}

async fn seen(court: &Court, version: &str) -> Value {
    serde_json::to_value(court.objects(version).get("stack").await.unwrap()).unwrap()
}

fn as_older(object: &Value) -> Value {
    convert(object.clone(), "llamastack.io/v1alpha1").unwrap().object
}

#[tokio::test]
async fn both_views_agree_and_kubectl_shows_either() {
    let Some(court) = Court::open("views", &ELSEWHERE).await else { return };
    create(&court).await;
    let (older, stored) = (seen(&court, "v1alpha1").await, seen(&court, "v1alpha2").await);
    assert_eq!(older["spec"], as_older(&stored)["spec"]);
    assert_eq!(older["spec"]["server"]["storage"]["size"], "20Gi");
    assert_eq!(stored["spec"], newer()["spec"], "nothing was added or lost on the way in");
    let back = convert(older.clone(), "llamastack.io/v1alpha2").unwrap().object;
    assert_eq!(back["spec"], stored["spec"], "the older view holds all that the newer has");
    for (kind, place, value) in [
        ("llamastackdistributions.v1alpha1.llamastack.io", "{.spec.server.containerSpec.port}", "8321"),
        ("llamastackdistributions.v1alpha2.llamastack.io", "{.spec.networking.port}", "8321"),
        ("llamastackdistributions.v1alpha2.llamastack.io", "{.spec.disabled[0]}", "eval"),
    ] {
        let shown = court.kubectl(&["get", kind, "stack", "-o", &format!("jsonpath={place}")]).await.ok();
        assert_eq!(shown, value, "{kind} {place}");
    }
}

#[tokio::test]
async fn a_status_written_in_one_version_is_seen_in_the_other_and_loses_nothing() {
    let Some(court) = Court::open("status", &ELSEWHERE).await else { return };
    create(&court).await;
    let patch = async |version: &str, status: Value| {
        let status = Patch::Merge(json!({ "status": status }));
        court.objects(version).patch_status("stack", &PatchParams::default(), &status).await.unwrap();
    };
    patch(
        "v1alpha2",
        json!({ "phase": "Initializing", "resolvedDistribution": { "image": "i" }, "availableReplicas": 1 }),
    )
    .await;
    assert_eq!(seen(&court, "v1alpha1").await["status"]["phase"], "Initializing");
    patch("v1alpha1", json!({ "phase": "Ready" })).await;
    let stored = seen(&court, "v1alpha2").await;
    assert_eq!(stored["status"]["phase"], "Ready");
    assert_eq!(stored["status"]["availableReplicas"], 1);
    assert_eq!(stored["status"]["resolvedDistribution"]["image"], "i", "what only the newer version has");
    assert_eq!(stored["spec"], newer()["spec"], "a status is not a spec");
    assert_eq!(stored["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_client_of_the_older_version_removes_its_field_and_no_other() {
    let Some(court) = Court::open("removed", &ELSEWHERE).await else { return };
    create(&court).await;
    // As a Go client does: read, change, write the whole.
    let mut older = seen(&court, "v1alpha1").await;
    older["spec"]["server"]["containerSpec"].as_object_mut().unwrap().remove("env").expect("it is there");
    older["spec"]["replicas"] = json!(3);
    court.objects("v1alpha1").replace("stack", &PostParams::default(), &object(older)).await.unwrap();
    let mut wanted = newer()["spec"].clone();
    wanted["workload"]["replicas"] = json!(3);
    wanted["workload"].as_object_mut().unwrap().remove("overrides");
    let mut stored = seen(&court, "v1alpha2").await["spec"].take();
    // Whether an empty section stays is of no consequence.
    let workload = stored["workload"].as_object_mut().unwrap();
    assert_eq!(workload.remove("overrides").unwrap_or_else(|| json!({})), json!({}));
    assert_eq!(stored, wanted);
}
