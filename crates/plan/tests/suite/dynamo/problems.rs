//! Problems are identified by code and object: a changed text causes no second event.

use serde_json::json;
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Waiting};
use steersman_reconcile::{Failure, Lookup, ObjectId};

use super::{TestEnv, no_hardware, node, request_snapshot, spec};

fn pod_with_pull_failure(pod: &str, message: &str) -> ObservedPod {
    ObservedPod {
        name: pod.into(),
        phase: "Pending".into(),
        containers: vec![ObservedContainer {
            name: "profiler".into(),
            waiting: Some(Waiting { reason: "ErrImagePull".into(), message: message.into() }),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    }
}

#[test]
fn repeated_write_failure_is_reported_once() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    for message in ["timeout", "connection refused"] {
        let object = ObjectId::new("Job", "team-a", "profile-qwen");
        env.reconcile(Some(Failure { object, message: message.into(), transient: true, conflict: false }));
        assert_eq!(
            env.condition_summary("Profiling").2,
            format!("Job team-a/profile-qwen: {message}"),
            "the condition shows the latest failure"
        );
    }
    assert_eq!(env.event_reasons(), ["ProfilingJobFailed"]);
    assert_eq!(
        json!(env.status().reported),
        json!([{ "reason": "ProfilingJobFailed", "kind": "Job", "name": "profile-qwen", "generation": 1 }])
    );
    env.settle();
    assert_eq!(env.status().reported, []);
}

#[test]
fn undiscovered_hardware_is_reported_once() {
    let mut env = TestEnv::new(request_snapshot("model: m\nimage: i:1.0.0"));
    for count in 1..4 {
        let nodes = (0..count).map(|name| node(&name.to_string(), &[])).collect();
        env.snapshot.hardware = ObservedHardware { nodes: Lookup::Known(nodes), ..no_hardware() };
        env.settle();
        assert!(env.condition_summary("Validation").2.contains(&format!("checked {count} nodes")));
    }
    assert_eq!(env.event_reasons(), ["ValidationFailed"]);
    assert_eq!(json!(env.status().reported), json!([{ "reason": "HardwareNotDiscovered", "generation": 1 }]));
}

#[test]
fn image_pull_failure_is_reported_per_pod() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.events.clear();
    for (pod, message) in [("a", "denied"), ("a", "not found"), ("b", "not found")] {
        env.snapshot.job_pods = vec![pod_with_pull_failure(pod, message)];
        env.settle();
    }
    assert_eq!(env.event_reasons(), ["ImagePullFailed", "ImagePullFailed"]);
    env.set_pod_phase("Running");
    env.settle();
    env.snapshot.job_pods = vec![pod_with_pull_failure("b", "not found")];
    env.settle();
    assert_eq!(env.event_reasons().len(), 3, "the problem went away and came back");
}

#[test]
fn rejected_change_is_reported_once_across_phases() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.edit_spec(&spec("backend: vllm"));
    env.settle();
    env.events.clear();
    env.deliver_result(super::FINAL);
    assert_eq!(env.event_reasons(), ["SpecGenerated"]);
    assert_eq!(env.condition_summary("SpecAccepted").1, "SpecChangeRejected");
}
