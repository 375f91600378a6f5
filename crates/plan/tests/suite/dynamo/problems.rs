//! A problem is the same by its code and its object: its text may change without another event.

use serde_json::json;
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Waiting};
use steersman_reconcile::{Failure, Lookup, ObjectId};

use super::{World, a_request, no_hardware, node, spec};

fn pulling(pod: &str, message: &str) -> ObservedPod {
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
fn failed_write_with_another_text_is_the_same() {
    let mut world = World::new(a_request(&spec("")));
    for message in ["timeout", "connection refused"] {
        let object = ObjectId::new("Job", "team-a", "profile-qwen");
        world.pass(Some(Failure { object, message: message.into(), transient: true, conflict: false }));
        assert_eq!(
            world.says("Profiling").2,
            format!("Job team-a/profile-qwen: {message}"),
            "people read the last one"
        );
    }
    assert_eq!(world.told(), ["ProfilingJobFailed"]);
    assert_eq!(
        json!(world.status().reported),
        json!([{ "reason": "ProfilingJobFailed", "kind": "Job", "name": "profile-qwen", "generation": 1 }])
    );
    world.settle();
    assert_eq!(world.status().reported, []);
}

#[test]
fn undiscovered_hardware_is_reported_once() {
    let mut world = World::new(a_request("model: m\nimage: i:1.0.0"));
    for count in 1..4 {
        let nodes = (0..count).map(|name| node(&name.to_string(), &[])).collect();
        world.seen.hardware = ObservedHardware { nodes: Lookup::Known(nodes), ..no_hardware() };
        world.settle();
        assert!(world.says("Validation").2.contains(&format!("checked {count} nodes")));
    }
    assert_eq!(world.told(), ["ValidationFailed"]);
    assert_eq!(json!(world.status().reported), json!([{ "reason": "HardwareNotDiscovered", "generation": 1 }]));
}

#[test]
fn image_pull_of_another_pod_is_another_problem() {
    let mut world = World::settled(&spec(""));
    world.notes.clear();
    for (pod, message) in [("a", "denied"), ("a", "not found"), ("b", "not found")] {
        world.seen.job_pods = vec![pulling(pod, message)];
        world.settle();
    }
    assert_eq!(world.told(), ["ImagePullFailed", "ImagePullFailed"]);
    world.pods("Running");
    world.settle();
    world.seen.job_pods = vec![pulling("b", "not found")];
    world.settle();
    assert_eq!(world.told().len(), 3, "gone, and there again");
}

#[test]
fn rejected_change_is_reported_once_through_all_phases() {
    let mut world = World::settled(&spec(""));
    world.edit(&spec("backend: vllm"));
    world.settle();
    world.notes.clear();
    world.deliver(super::FINAL);
    assert_eq!(world.told(), ["SpecGenerated"]);
    assert_eq!(world.says("SpecAccepted").1, "SpecChangeRejected");
}
