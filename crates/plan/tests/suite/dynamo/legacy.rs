//! Statuses without `reported`, as NVIDIA's operator and earlier versions of ours stored them, lead to the same decisions.

use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::JobState;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::{Failure, ObjectId};

use super::{FINAL, World, a_request, output, said, spec};

/// The same request with a status of an earlier version, and no event yet.
fn forget_reported(world: &mut World) {
    let status = world.seen.object.status.as_mut().unwrap();
    assert!(!status.reported.is_empty(), "nothing to forget: {status:?}");
    status.reported.clear();
    world.notes.clear();
}

fn pod(container: ObservedContainer) -> ObservedPod {
    ObservedPod {
        name: "profile-qwen-x".into(),
        phase: "Pending".into(),
        containers: vec![container],
        ..ObservedPod::default()
    }
}

fn pulling(reason: &str) -> ObservedContainer {
    ObservedContainer {
        name: "profiler".into(),
        waiting: Some(Waiting { reason: reason.into(), message: "denied".into() }),
        ..ObservedContainer::default()
    }
}

/// The status is completed once, without another event.
fn settles_silently(world: &mut World) {
    world.settle();
    assert_eq!(world.told(), Vec::<&str>::new());
    assert!(!world.status().reported.is_empty());
}

#[test]
fn findings_of_earlier_version_are_not_reported_again() {
    let mut world = World::settled(&spec("searchStrategy: thorough"));
    forget_reported(&mut world);
    settles_silently(&mut world);
    // Another text is another problem.
    forget_reported(&mut world);
    world.edit(&spec("").replace("h100_sxm", "gtx"));
    world.settle();
    assert_eq!(world.told(), ["ValidationFailed"]);
}

#[test]
fn image_pull_of_job_is_not_reported_again() {
    let mut world = World::settled(&spec(""));
    world.seen.job_pods = vec![pod(pulling("ErrImagePull"))];
    world.settle();
    forget_reported(&mut world);
    world.seen.job_pods = vec![pod(pulling("ImagePullBackOff"))];
    settles_silently(&mut world);
}

#[test]
fn image_pull_of_graph_is_not_reported_again() {
    let mut world = World::profiled(&spec(""));
    world.seen.graph_pods = vec![pod(pulling("ErrImagePull"))];
    world.settle();
    forget_reported(&mut world);
    world.seen.graph_pods = vec![pod(pulling("ImagePullBackOff"))];
    settles_silently(&mut world);
}

#[test]
fn failed_write_is_not_reported_again() {
    let refused = |kind: &str, name: &str| {
        let object = ObjectId::new(kind, "team-a", name);
        Some(Failure { object, message: "quota".into(), transient: true, conflict: false })
    };
    let mut world = World::new(a_request(&spec("")));
    for (kind, name, reason) in [
        ("DynamoGraphDeploymentRequest", "qwen", "UpdateFailed"),
        ("RoleBinding", "dgdr-profiling-job-binding", "ProfilingJobFailed"),
        ("Job", "profile-qwen", "ProfilingJobFailed"),
    ] {
        world.pass(refused(kind, name));
        assert_eq!(world.told(), [reason], "{kind}");
        forget_reported(&mut world);
        world.pass(refused(kind, name));
        assert_eq!(world.told(), Vec::<&str>::new(), "{kind}");
    }
    world.settle();
    world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.job(JobState::Complete);
    for (kind, name) in [("ConfigMap", "planner-config-1a2b"), ("DynamoGraphDeployment", "qwen-dgd")] {
        world.notes.clear();
        world.pass(refused(kind, name));
        assert_eq!(world.notes.last().unwrap().reason, format!("{}CreationFailed", kind.replace("DynamoGraph", "")));
        forget_reported(&mut world);
        world.pass(refused(kind, name));
        assert_eq!(world.told(), Vec::<&str>::new(), "{kind}");
    }
}

#[test]
fn deleted_job_is_not_reported_again() {
    let mut world = World::settled(&spec(""));
    world.seen.object.spec.image = None;
    world.seen.object.annotations.clear();
    world.settle();
    world.notes.clear();
    // Without an image there is no other Job, and the text stays.
    world.seen.job = None;
    world.settle();
    assert_eq!(world.told(), ["ProfilingJobDeleted"]);
    forget_reported(&mut world);
    settles_silently(&mut world);
}

#[test]
fn log_of_failed_sidecar_is_named_again() {
    let mut world = World::settled(&spec(""));
    world.job(JobState::Failed("BackoffLimitExceeded".into()));
    let container = ObservedContainer {
        name: "output-copier".into(),
        terminated: Some(Terminated { exit_code: 1, reason: "Error".into(), message: String::new() }),
        ..ObservedContainer::default()
    };
    world.seen.job_pods = vec![ObservedPod { phase: "Failed".into(), ..pod(container) }];
    world.settle();
    let sum = world.says("Succeeded");
    assert!(sum.2.contains("The log of output-copier has more"), "{sum:?}");
    world.seen.job_pods.clear();
    world.settle();
    assert_eq!(world.says("Succeeded"), sum, "by the status alone");
    forget_reported(&mut world);
    world.settle();
    assert_eq!(world.says("Succeeded"), sum, "by the text of an earlier version");
}

/// NVIDIA's operator: the verdict of the profiler may come after the failure of its Job was reported.
#[test]
fn verdict_after_failed_job_of_go_operator_is_taken() {
    let mut seen = a_request(&spec(""));
    let message = "profiling job failed: BackoffLimitExceeded. Details: Pod: p, Container: output-copier, ExitCode: 1, \
                   Reason: Error";
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({ "type": type_, "status": "False", "reason": reason, "message": message, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    seen.object.status = Some(
        serde_json::from_value(json!({ "phase": "Failed", "observedGeneration": 1, "profilingJobName": "profile-qwen",
            "conditions": [condition("Profiling", "SweepingDecodeFailed", message),
                condition("Succeeded", "SweepingDecodeFailed", &format!("Profiling failed: {message}"))] }))
        .unwrap(),
    );
    let mut world = World::new(seen);
    world.settle();
    let log = "kubectl logs -n team-a job/profile-qwen -c output-copier";
    assert!(world.says("Succeeded").2.contains(log), "{:?}", world.says("Succeeded"));
    world.seen.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", "no plan")]));
    world.settle();
    assert_eq!(world.says("Profiling"), said("False", "SweepingDecodeFailed", "profiling failed: no plan"));
    assert!(world.says("Succeeded").2.contains("job/profile-qwen -c profiler"));
    assert_eq!((world.phase(), world.told()), (Phase::Failed, vec![]));
}
