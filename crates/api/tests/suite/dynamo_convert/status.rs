//! Conversion of the status, field by field.

use serde_json::{Value, json};

use super::{ALPHA, BETA, annotations, convert_losslessly, object, round_trip, status_annotation};

fn alpha(status: Value) -> Value {
    object(ALPHA, Value::Null, status)
}

fn beta(status: Value) -> Value {
    object(BETA, Value::Null, status)
}

#[test]
fn each_state_maps_to_a_phase() {
    let cases = [
        ("", false, "Pending"),
        ("Pending", false, "Pending"),
        ("Profiling", false, "Profiling"),
        ("Ready", true, "Deployed"),
        ("Ready", false, "Ready"),
        ("Deploying", true, "Deploying"),
        ("DeploymentDeleted", false, "Ready"),
        ("Failed", false, "Failed"),
        ("Initializing", false, "Pending"),
        ("Unheard", false, "Pending"),
    ];
    for (state, created, phase) in cases {
        let status = alpha(json!({ "state": state, "deployment": { "name": "g", "created": created } }));
        let converted = convert_losslessly(&status);
        assert_eq!(converted["status"], json!({ "phase": phase, "dgdName": "g" }), "{state}");
        let mut expected = status;
        if state.is_empty() {
            expected["status"]["state"] = json!("Pending");
        }
        assert_eq!(convert_losslessly(&converted), expected, "{state}");
    }
}

#[test]
fn each_phase_maps_to_a_state() {
    let cases = [
        ("Pending", "Pending"),
        ("Profiling", "Profiling"),
        ("Ready", "Ready"),
        ("Deploying", "Deploying"),
        ("Deployed", "Ready"),
        ("Failed", "Failed"),
        ("", "Pending"),
        ("Unheard", "Pending"),
    ];
    for (phase, state) in cases {
        let status = beta(json!({ "phase": phase, "dgdName": "g" }));
        let converted = convert_losslessly(&status);
        assert_eq!(converted["status"], json!({ "state": state, "deployment": { "name": "g" } }), "{phase}");
        assert_eq!(convert_losslessly(&converted), status, "{phase}");
    }
}

#[test]
fn common_fields_convert_without_annotations() {
    let conditions = json!([{ "type": "Succeeded", "status": "True", "reason": "Deployed" }]);
    let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment" });
    let cases = [
        ("observedGeneration", json!({ "observedGeneration": 3 }), json!({ "observedGeneration": 3 })),
        ("conditions", json!({ "conditions": conditions }), json!({ "conditions": conditions })),
        (
            "the graph",
            json!({ "generatedDeployment": graph }),
            json!({ "profilingResults": { "selectedConfig": graph } }),
        ),
        ("its name", json!({ "deployment": { "name": "g" } }), json!({ "dgdName": "g" })),
        ("a status without a state", json!({}), json!({})),
    ];
    for (name, in_alpha, in_beta) in cases {
        assert_eq!(convert_losslessly(&alpha(in_alpha.clone())), beta(in_beta.clone()), "{name}");
        assert_eq!(convert_losslessly(&beta(in_beta)), alpha(in_alpha), "{name}");
    }
}

#[test]
fn v1alpha1_only_fields_go_to_annotations() {
    let deployment = json!({ "created": true, "name": "g", "namespace": "default", "state": "successful" });
    let text = deployment.to_string();
    let cases = [
        (
            "backend",
            json!({ "backend": "vllm" }),
            json!({ "nvidia.com/dgdr-status-backend": "vllm", "nvidia.com/dgdr-status": r#"{"backend":"vllm"}"# }),
        ),
        (
            "profilingResults",
            json!({ "profilingResults": "configmap/x" }),
            json!({ "nvidia.com/dgdr-profiling-results": "configmap/x",
                "nvidia.com/dgdr-status": r#"{"profilingResults":"configmap/x"}"# }),
        ),
        (
            "deployment, with the state that it belongs to",
            json!({ "state": "Ready", "deployment": deployment }),
            json!({ "nvidia.com/dgdr-deployment-status": text,
                "nvidia.com/dgdr-status": format!(r#"{{"deployment":{text},"state":"Ready"}}"#) }),
        ),
        (
            "an empty deployment",
            json!({ "deployment": {} }),
            json!({ "nvidia.com/dgdr-deployment-status": "{}",
            "nvidia.com/dgdr-status": r#"{"deployment":{}}"# }),
        ),
        (
            "a state without a phase",
            json!({ "state": "Initializing" }),
            json!({ "nvidia.com/dgdr-status": r#"{"state":"Initializing"}"# }),
        ),
        (
            "an unknown field",
            json!({ "fieldOfTheFuture": 1 }),
            json!({ "nvidia.com/dgdr-status": r#"{"fieldOfTheFuture":1}"# }),
        ),
    ];
    for (name, status, annotation) in cases {
        let object = alpha(status);
        let converted = convert_losslessly(&object);
        assert_eq!(annotations(&converted), annotation, "{name}");
        assert_eq!(convert_losslessly(&converted), object, "{name}");
    }
}

#[test]
fn v1beta1_only_fields_go_to_annotations() {
    let pareto = json!([{ "config": { "tp": 2 } }]);
    let info = json!({ "replicas": 4 });
    let cases = [
        (
            "Deployed, with the name of the graph",
            json!({ "phase": "Deployed", "dgdName": "g" }),
            json!({ "phase": "Deployed", "dgdName": "g" }),
        ),
        (
            "pareto",
            json!({ "profilingResults": { "pareto": pareto } }),
            json!({ "profilingResults": { "pareto": pareto } }),
        ),
        (
            "deploymentInfo, with the name of the graph",
            json!({ "phase": "Deploying", "dgdName": "g", "deploymentInfo": info }),
            json!({ "phase": "Deploying", "dgdName": "g", "deploymentInfo": info }),
        ),
        (
            "profilingPhase, with the phase",
            json!({ "phase": "Profiling", "profilingPhase": "SweepingDecode" }),
            json!({ "phase": "Profiling", "profilingPhase": "SweepingDecode" }),
        ),
        ("empty results", json!({ "profilingResults": {} }), json!({ "profilingResults": {} })),
        (
            "reported problems",
            json!({ "phase": "Profiling", "reported": [{ "reason": "ImagePullFailed", "kind": "Pod", "name": "p" }] }),
            json!({ "reported": [{ "reason": "ImagePullFailed", "kind": "Pod", "name": "p" }] }),
        ),
        ("an unknown field", json!({ "fieldOfTheFuture": 1 }), json!({ "fieldOfTheFuture": 1 })),
    ];
    for (name, status, annotation) in cases {
        let object = beta(status);
        let converted = convert_losslessly(&object);
        assert_eq!(status_annotation(&converted), annotation, "{name}");
        assert_eq!(convert_losslessly(&converted), object, "{name}");
    }
}

#[test]
fn profiling_job_name_has_its_own_annotation() {
    for phase in ["Profiling", "Ready", "Deployed", "Failed"] {
        let object = beta(json!({ "phase": phase, "profilingJobName": "profile-qwen" }));
        let converted = convert_losslessly(&object);
        assert_eq!(annotations(&converted)["nvidia.com/dgdr-profiling-job-name"], "profile-qwen");
        assert_eq!(convert_losslessly(&converted), object, "{phase}");
    }
}

#[test]
fn phase_equal_in_v1alpha1_needs_no_annotation() {
    for status in
        [json!({ "phase": "Ready", "dgdName": "g" }), json!({ "phase": "Pending" }), json!({ "dgdName": "g" })]
    {
        let object = beta(status);
        assert_eq!(annotations(&convert_losslessly(&object)), json!({}));
        assert_eq!(round_trip(&object), object);
    }
}
