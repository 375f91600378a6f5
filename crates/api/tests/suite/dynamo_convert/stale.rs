//! What annotations keep speaks of the past: once the object has moved on in the other version, it must not come back.

use serde_json::{Value, json};

use super::{ALPHA, BETA, converted, object, part, there_and_back};

fn status(version: &str, status: Value) -> Value {
    object(version, Value::Null, status)
}

/// `object` in the other version, with its status changed there.
fn moved_on(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut there = converted(object);
    change(&mut there["status"]);
    there
}

#[test]
fn deployed_comes_back_only_for_the_same_graph_and_state() {
    let deployed = status(BETA, json!({ "phase": "Deployed", "dgdName": "old" }));
    let renamed = moved_on(&deployed, |status| status["deployment"]["name"] = json!("new"));
    assert_eq!(converted(&renamed)["status"], json!({ "phase": "Ready", "dgdName": "new" }));
    let failed = moved_on(&deployed, |status| status["state"] = json!("Failed"));
    assert_eq!(converted(&failed)["status"], json!({ "phase": "Failed", "dgdName": "old" }));
    let deleted = moved_on(&deployed, |status| status["state"] = json!("DeploymentDeleted"));
    assert_eq!(converted(&deleted)["status"], json!({ "phase": "Ready", "dgdName": "old" }));
    // What a typed client of v1alpha1 adds when it writes back what it has read.
    let written_back = moved_on(&deployed, |status| status["deployment"]["state"] = json!("initializing"));
    assert_eq!(converted(&written_back)["status"], deployed["status"]);
    assert_eq!(there_and_back(&written_back), written_back);
}

#[test]
fn the_steps_of_profiling_come_back_only_in_the_same_phase() {
    let steps = json!({ "phase": "Profiling", "profilingPhase": "BuildingCurves", "profilingJobName": "profile-qwen" });
    let done = moved_on(&status(BETA, steps), |status| status["state"] = json!("Ready"));
    assert_eq!(converted(&done)["status"], json!({ "phase": "Ready" }));
    let failed = json!({ "phase": "Failed", "profilingPhase": "BuildingCurves", "profilingJobName": "profile-qwen" });
    let again = moved_on(&status(BETA, failed), |status| status["state"] = json!("Profiling"));
    assert_eq!(converted(&again)["status"], json!({ "phase": "Profiling" }));
}

#[test]
fn deployment_info_comes_back_only_for_the_same_graph() {
    let info = json!({ "phase": "Deploying", "dgdName": "old", "deploymentInfo": { "replicas": 2 } });
    let renamed = moved_on(&status(BETA, info.clone()), |status| status["deployment"]["name"] = json!("new"));
    assert_eq!(converted(&renamed)["status"], json!({ "phase": "Deploying", "dgdName": "new" }));
    let gone = moved_on(&status(BETA, info), |status| {
        status.as_object_mut().unwrap().remove("deployment");
    });
    assert_eq!(converted(&gone)["status"], json!({ "phase": "Deploying" }));
}

#[test]
fn deployment_deleted_comes_back_only_for_the_same_graph_and_phase() {
    let deleted = status(ALPHA, json!({ "state": "DeploymentDeleted", "deployment": { "name": "old" } }));
    assert_eq!(there_and_back(&deleted), deleted);
    let renamed = moved_on(&deleted, |status| status["dgdName"] = json!("new"));
    assert_eq!(converted(&renamed)["status"], json!({ "state": "Ready", "deployment": { "name": "new" } }));
    let failed = moved_on(&deleted, |status| status["phase"] = json!("Failed"));
    assert_eq!(converted(&failed)["status"], json!({ "state": "Failed", "deployment": { "name": "old" } }));
    let without = status(ALPHA, json!({ "state": "DeploymentDeleted" }));
    assert_eq!(there_and_back(&without), without);
    let named = moved_on(&without, |status| status["dgdName"] = json!("new"));
    assert_eq!(converted(&named)["status"], json!({ "state": "Ready", "deployment": { "name": "new" } }));
}

#[test]
fn a_deployment_comes_back_only_for_the_same_graph_and_phase() {
    let deployment = json!({ "name": "g", "namespace": "default", "state": "successful", "created": true });
    let ready = status(ALPHA, json!({ "state": "Ready", "deployment": deployment }));
    assert_eq!(there_and_back(&ready), ready);
    for phase in ["Ready", "Failed", "Deploying", "Pending"] {
        let moved = moved_on(&ready, |status| status["phase"] = json!(phase));
        let wanted = json!({ "state": phase, "deployment": { "name": "g" } });
        assert_eq!(converted(&moved)["status"], wanted, "created and successful belong to Deployed");
        assert_eq!(there_and_back(&moved)["status"], moved["status"]);
    }
    let renamed = moved_on(&ready, |status| status["dgdName"] = json!("h"));
    assert_eq!(converted(&renamed)["status"], json!({ "state": "Ready", "deployment": { "name": "h" } }));
}

/// The state that v1alpha1 begins with must not outlive the beginning.
#[test]
fn initializing_comes_back_only_while_pending() {
    let first = status(ALPHA, json!({ "state": "Initializing" }));
    assert_eq!(there_and_back(&first), first);
    let moved = moved_on(&first, |status| status["phase"] = json!("Profiling"));
    assert_eq!(converted(&moved)["status"], json!({ "state": "Profiling" }));
}

/// An annotation may hold anything; a field that the object has in its own version never comes from there.
#[test]
fn an_annotation_cannot_set_what_the_object_says_itself() {
    let everything = json!({
        "model": "forged", "backend": "forged", "autoApply": true, "useMocker": true, "runtimeVersionOverride": "9.9.9",
        "image": "forged", "sla": { "ttft": 1, "e2eLatency": 5 }, "workload": { "isl": 1 },
        "modelCache": { "pvcName": "forged" }, "features": { "planner": { "a": 1 }, "mocker": { "enabled": true } },
        "overrides": { "profilingJob": { "template": { "spec": {
            "containers": [{ "name": "profiler", "resources": { "limits": { "cpu": 9 } }, "image": "kept" }],
            "tolerations": [{ "operator": "Exists" }], "nodeSelector": { "a": "b" } } } } },
        "profilingConfig": { "profilerImage": "forged", "resources": { "limits": { "cpu": 9 } },
            "tolerations": [{}], "nodeSelector": { "a": "b" },
            "config": { "sla": { "ttft": 1, "isl": 4.5 }, "planner": { "a": 1 }, "sweep": "kept" } },
        "deploymentOverrides": { "workersImage": "forged" },
    });
    for (version, wanted) in [
        (
            ALPHA,
            json!({ "model": "m", "useMocker": true, "sla": { "e2eLatency": 5 },
                "overrides": { "profilingJob": { "template":
                { "spec": { "containers": [{ "name": "profiler", "image": "kept" }] } } } } }),
        ),
        (BETA, json!({ "model": "m", "profilingConfig": { "config": { "sweep": "kept" } } })),
    ] {
        let envelope = json!({ "version": 1, "spec": everything });
        let object =
            super::annotated(part(version, json!({ "model": "m" })), "nvidia.com/dgdr-spec", envelope.to_string());
        let mut spec = converted(&object)["spec"].clone();
        // Fields that this version does not know are kept as they came, and mean nothing.
        let names: &[&str] = match version {
            ALPHA => &["profilingConfig", "deploymentOverrides"],
            _ => &["image", "sla", "workload", "modelCache", "features", "overrides"],
        };
        for name in names {
            assert!(spec.as_object_mut().unwrap().remove(*name).is_some(), "{name}");
        }
        assert_eq!(spec, wanted);
    }
}

#[test]
fn an_image_that_v1beta1_drops_does_not_come_back_by_the_workers() {
    let overrides = json!({ "workersImage": "w:1", "name": "n" });
    for profiling in [json!({ "profilerImage": "p:1" }), json!({ "profilerImage": "" })] {
        let alpha = part(ALPHA, json!({ "profilingConfig": profiling, "deploymentOverrides": overrides }));
        let mut beta = converted(&alpha);
        beta.as_object_mut().unwrap().remove("spec");
        assert_eq!(converted(&beta)["spec"]["deploymentOverrides"], json!({ "name": "n" }));
        assert_eq!(there_and_back(&beta).get("spec"), None);
    }
    let alpha = part(ALPHA, json!({ "deploymentOverrides": { "workersImage": "w:1" } }));
    let mut beta = converted(&alpha);
    beta["spec"]["image"] = json!("new:1");
    let wanted =
        json!({ "profilingConfig": { "profilerImage": "new:1" }, "deploymentOverrides": { "workersImage": "w:1" } });
    assert_eq!(converted(&beta)["spec"], wanted);
}

#[test]
fn a_mocker_that_is_switched_in_one_version_is_switched_in_the_other() {
    let beta = part(BETA, json!({ "features": { "mocker": { "enabled": false } } }));
    let mut alpha = converted(&beta);
    alpha["spec"] = json!({ "useMocker": true });
    assert_eq!(converted(&alpha)["spec"], json!({ "features": { "mocker": { "enabled": true } } }));

    let alpha = part(ALPHA, json!({ "useMocker": false }));
    let mut beta = converted(&alpha);
    beta["spec"] = json!({ "features": { "mocker": { "enabled": true } } });
    assert_eq!(converted(&beta)["spec"], json!({ "useMocker": true }));
}
