//! Outdated annotations: values that no longer match the fields of the object are not restored.

use serde_json::{Value, json};

use super::{ALPHA, BETA, convert_losslessly, object, partial_object, round_trip};

fn status(version: &str, status: Value) -> Value {
    object(version, Value::Null, status)
}

/// Converts `object` and changes the status of the result.
fn with_status_change(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut converted = convert_losslessly(object);
    change(&mut converted["status"]);
    converted
}

#[test]
fn deployed_phase_returns_only_for_same_graph() {
    let deployed = status(BETA, json!({ "phase": "Deployed", "dgdName": "old" }));
    let renamed = with_status_change(&deployed, |status| status["deployment"]["name"] = json!("new"));
    assert_eq!(convert_losslessly(&renamed)["status"], json!({ "phase": "Ready", "dgdName": "new" }));
    let failed = with_status_change(&deployed, |status| status["state"] = json!("Failed"));
    assert_eq!(convert_losslessly(&failed)["status"], json!({ "phase": "Failed", "dgdName": "old" }));
    let deleted = with_status_change(&deployed, |status| status["state"] = json!("DeploymentDeleted"));
    assert_eq!(convert_losslessly(&deleted)["status"], json!({ "phase": "Ready", "dgdName": "old" }));
    // A typed client of v1alpha1 adds this when it writes an object back.
    let written_back = with_status_change(&deployed, |status| status["deployment"]["state"] = json!("initializing"));
    assert_eq!(convert_losslessly(&written_back)["status"], deployed["status"]);
    assert_eq!(round_trip(&written_back), written_back);
}

#[test]
fn profiling_phase_returns_only_in_same_phase() {
    let profiling =
        json!({ "phase": "Profiling", "profilingPhase": "BuildingCurves", "profilingJobName": "profile-qwen" });
    let done = with_status_change(&status(BETA, profiling), |status| status["state"] = json!("Ready"));
    assert_eq!(convert_losslessly(&done)["status"], json!({ "phase": "Ready" }));
    let failed = json!({ "phase": "Failed", "profilingPhase": "BuildingCurves", "profilingJobName": "profile-qwen" });
    let profiling_again = with_status_change(&status(BETA, failed), |status| status["state"] = json!("Profiling"));
    assert_eq!(convert_losslessly(&profiling_again)["status"], json!({ "phase": "Profiling" }));
}

#[test]
fn deployment_info_returns_only_for_same_graph() {
    let info = json!({ "phase": "Deploying", "dgdName": "old", "deploymentInfo": { "replicas": 2 } });
    let renamed = with_status_change(&status(BETA, info.clone()), |status| status["deployment"]["name"] = json!("new"));
    assert_eq!(convert_losslessly(&renamed)["status"], json!({ "phase": "Deploying", "dgdName": "new" }));
    let removed = with_status_change(&status(BETA, info), |status| {
        status.as_object_mut().unwrap().remove("deployment");
    });
    assert_eq!(convert_losslessly(&removed)["status"], json!({ "phase": "Deploying" }));
}

#[test]
fn deployment_deleted_returns_only_for_same_graph() {
    let deleted = status(ALPHA, json!({ "state": "DeploymentDeleted", "deployment": { "name": "old" } }));
    assert_eq!(round_trip(&deleted), deleted);
    let renamed = with_status_change(&deleted, |status| status["dgdName"] = json!("new"));
    assert_eq!(convert_losslessly(&renamed)["status"], json!({ "state": "Ready", "deployment": { "name": "new" } }));
    let failed = with_status_change(&deleted, |status| status["phase"] = json!("Failed"));
    assert_eq!(convert_losslessly(&failed)["status"], json!({ "state": "Failed", "deployment": { "name": "old" } }));
    let without_deployment = status(ALPHA, json!({ "state": "DeploymentDeleted" }));
    assert_eq!(round_trip(&without_deployment), without_deployment);
    let named = with_status_change(&without_deployment, |status| status["dgdName"] = json!("new"));
    assert_eq!(convert_losslessly(&named)["status"], json!({ "state": "Ready", "deployment": { "name": "new" } }));
}

#[test]
fn deployment_returns_only_for_same_graph() {
    let deployment = json!({ "name": "g", "namespace": "default", "state": "successful", "created": true });
    let ready = status(ALPHA, json!({ "state": "Ready", "deployment": deployment }));
    assert_eq!(round_trip(&ready), ready);
    for phase in ["Ready", "Failed", "Deploying", "Pending"] {
        let changed = with_status_change(&ready, |status| status["phase"] = json!(phase));
        let expected = json!({ "state": phase, "deployment": { "name": "g" } });
        assert_eq!(convert_losslessly(&changed)["status"], expected, "created and successful only belong to Deployed");
        assert_eq!(round_trip(&changed)["status"], changed["status"]);
    }
    let renamed = with_status_change(&ready, |status| status["dgdName"] = json!("h"));
    assert_eq!(convert_losslessly(&renamed)["status"], json!({ "state": "Ready", "deployment": { "name": "h" } }));
}

/// `Initializing` is the first state in v1alpha1 and must not return in a later phase.
#[test]
fn initializing_returns_only_while_pending() {
    let first = status(ALPHA, json!({ "state": "Initializing" }));
    assert_eq!(round_trip(&first), first);
    let changed = with_status_change(&first, |status| status["phase"] = json!("Profiling"));
    assert_eq!(convert_losslessly(&changed)["status"], json!({ "state": "Profiling" }));
}

/// An annotation may have any content. It never sets a field that the object has in its own version.
#[test]
fn envelope_cannot_set_typed_fields() {
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
    for (version, expected) in [
        (
            ALPHA,
            json!({ "model": "m", "useMocker": true, "sla": { "e2eLatency": 5 },
                "overrides": { "profilingJob": { "template":
                { "spec": { "containers": [{ "name": "profiler", "image": "kept" }] } } } } }),
        ),
        (BETA, json!({ "model": "m", "profilingConfig": { "config": { "sweep": "kept" } } })),
    ] {
        let envelope = json!({ "version": 1, "spec": everything });
        let object = super::with_annotation(
            partial_object(version, json!({ "model": "m" })),
            "nvidia.com/dgdr-spec",
            envelope.to_string(),
        );
        let mut spec = convert_losslessly(&object)["spec"].clone();
        // Fields that this version does not know are kept unchanged and have no effect.
        let names: &[&str] = match version {
            ALPHA => &["profilingConfig", "deploymentOverrides"],
            _ => &["image", "sla", "workload", "modelCache", "features", "overrides"],
        };
        for name in names {
            assert!(spec.as_object_mut().unwrap().remove(*name).is_some(), "{name}");
        }
        assert_eq!(spec, expected);
    }
}

#[test]
fn removed_image_also_removes_workers_image() {
    let overrides = json!({ "workersImage": "w:1", "name": "n" });
    for profiling in [json!({ "profilerImage": "p:1" }), json!({ "profilerImage": "" })] {
        let alpha = partial_object(ALPHA, json!({ "profilingConfig": profiling, "deploymentOverrides": overrides }));
        let mut beta = convert_losslessly(&alpha);
        beta.as_object_mut().unwrap().remove("spec");
        assert_eq!(convert_losslessly(&beta)["spec"]["deploymentOverrides"], json!({ "name": "n" }));
        assert_eq!(round_trip(&beta).get("spec"), None);
    }
    let alpha = partial_object(ALPHA, json!({ "deploymentOverrides": { "workersImage": "w:1" } }));
    let mut beta = convert_losslessly(&alpha);
    beta["spec"]["image"] = json!("new:1");
    let expected =
        json!({ "profilingConfig": { "profilerImage": "new:1" }, "deploymentOverrides": { "workersImage": "w:1" } });
    assert_eq!(convert_losslessly(&beta)["spec"], expected);
}

#[test]
fn mocker_switch_carries_over_both_ways() {
    let beta = partial_object(BETA, json!({ "features": { "mocker": { "enabled": false } } }));
    let mut alpha = convert_losslessly(&beta);
    alpha["spec"] = json!({ "useMocker": true });
    assert_eq!(convert_losslessly(&alpha)["spec"], json!({ "features": { "mocker": { "enabled": true } } }));

    let alpha = partial_object(ALPHA, json!({ "useMocker": false }));
    let mut beta = convert_losslessly(&alpha);
    beta["spec"] = json!({ "features": { "mocker": { "enabled": true } } });
    assert_eq!(convert_losslessly(&beta)["spec"], json!({ "useMocker": true }));
}
