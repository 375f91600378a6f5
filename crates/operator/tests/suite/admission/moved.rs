//! Server-side apply across versions: each manager keeps what it says, in whichever version it says it.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::versions::{ELSEWHERE, storage};
use super::{Court, manifest};

fn older(spec: Value) -> Value {
    json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
            "metadata": { "name": "stack" }, "spec": spec })
}

async fn apply(court: &Court, manager: &str, wish: &Value) -> DynamicObject {
    let version = wish["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
    let applied = court.objects(version).patch("stack", &PatchParams::apply(manager), &Patch::Apply(wish)).await;
    applied.unwrap_or_else(|error| panic!("{manager} cannot apply: {error}"))
}

async fn stored(court: &Court) -> Value {
    court.objects("v1alpha2").get("stack").await.unwrap().data["spec"].take()
}

#[tokio::test]
async fn two_managers_one_for_each_version_lose_no_field() {
    let Some(court) = Court::open("managers", &ELSEWHERE).await else { return };
    let env = |value: &str| json!([{ "name": "A", "value": value }]);
    let server = |container: Value| {
        older(json!({ "server": { "distribution": { "name": "starter" }, "containerSpec": container,
                                  "storage": storage() } }))
    };
    apply(&court, "of-old", &server(json!({ "port": 8321, "env": env("b") }))).await;
    let own = json!({ "disabled": ["eval"], "workload": { "workers": 2 },
                      "providers": { "inference": { "provider": "vllm", "endpoint": "http://v" } } });
    apply(&court, "of-new", &manifest("stack", own.clone())).await;
    let both = json!({
        "distribution": { "name": "starter" },
        "disabled": ["eval"],
        "networking": { "port": 8321 },
        "providers": { "inference": { "provider": "vllm", "endpoint": "http://v" } },
        // The older version fills in one replica.
        "workload": { "replicas": 1, "workers": 2, "storage": storage(), "overrides": { "env": env("b") } },
    });
    assert_eq!(stored(&court).await, both);

    // Again, and again: nobody takes from the other.
    for round in ["c", "d"] {
        apply(&court, "of-old", &server(json!({ "port": 8321, "env": env(round) }))).await;
        apply(&court, "of-new", &manifest("stack", own.clone())).await;
        let mut wanted = both.clone();
        wanted["workload"]["overrides"]["env"] = env(round);
        assert_eq!(stored(&court).await, wanted, "{round}");
    }
    // Each takes back what it said, and no more.
    apply(&court, "of-old", &server(json!({ "port": 8321 }))).await;
    let after = stored(&court).await;
    assert_eq!(after["workload"]["overrides"].get("env"), None, "{after}");
    assert_eq!((&after["disabled"], &after["providers"]), (&both["disabled"], &both["providers"]));
    apply(&court, "of-new", &manifest("stack", json!({ "workload": { "workers": 2 } }))).await;
    let mut wanted = both;
    for mine in ["disabled", "providers"] {
        wanted.as_object_mut().unwrap().remove(mine);
    }
    wanted["workload"].as_object_mut().unwrap().remove("overrides");
    assert_eq!(stored(&court).await, wanted);
}

/// The manifest is rewritten for the newer version, and applied by the same pipeline as before.
#[tokio::test]
async fn one_manager_moves_its_manifest_to_the_newer_version() {
    let Some(court) = Court::open("moved", &ELSEWHERE).await else { return };
    let before = older(json!({
        "replicas": 2,
        "server": {
            "distribution": { "name": "starter" },
            "containerSpec": { "port": 8321, "env": [{ "name": "A", "value": "b" }] },
            "storage": storage(),
        },
    }));
    apply(&court, "pipeline", &before).await;
    let spec = json!({
        "distribution": { "name": "starter" },
        "networking": { "port": 8321 },
        "workload": { "replicas": 2, "storage": storage(), "overrides": { "env": [{ "name": "A", "value": "b" }] } },
    });
    let moved = apply(&court, "pipeline", &manifest("stack", spec.clone())).await;
    assert_eq!(stored(&court).await, spec);
    assert_eq!(moved.metadata.generation, Some(1), "the same said otherwise is no change");
    // From now on what is left out of the newer manifest goes.
    let mut less = spec.clone();
    less["workload"].as_object_mut().unwrap().remove("overrides");
    apply(&court, "pipeline", &manifest("stack", less)).await;
    let after = stored(&court).await;
    assert_eq!(after["workload"]["overrides"].get("env"), None, "{after}");
    assert_eq!(after["workload"]["storage"], spec["workload"]["storage"]);
    assert_eq!(after["networking"], spec["networking"]);
}
