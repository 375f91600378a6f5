//! Statuses without `reported`, as NVIDIA's operator and earlier versions of ours stored them, lead to the same
//! decisions.

use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::JobState;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::{Failure, ObjectId};

use super::{FINAL, TestEnv, output, request_snapshot, spec, summary};

/// Removes `status.reported`, as in a status of an earlier version, and the events so far.
fn forget_reported(env: &mut TestEnv) {
    let status = env.snapshot.object.status.as_mut().unwrap();
    assert!(!status.reported.is_empty(), "nothing to forget: {status:?}");
    status.reported.clear();
    env.events.clear();
}

fn pod(container: ObservedContainer) -> ObservedPod {
    ObservedPod {
        name: "profile-qwen-x".into(),
        phase: "Pending".into(),
        containers: vec![container],
        ..ObservedPod::default()
    }
}

fn pull_failure(reason: &str) -> ObservedContainer {
    ObservedContainer {
        name: "profiler".into(),
        waiting: Some(Waiting { reason: reason.into(), message: "denied".into() }),
        ..ObservedContainer::default()
    }
}

/// Expects `status.reported` to be filled in without another event.
fn assert_settles_without_events(env: &mut TestEnv) {
    env.settle();
    assert_eq!(env.event_reasons(), Vec::<&str>::new());
    assert!(!env.status().reported.is_empty());
}

#[test]
fn findings_of_earlier_version_are_not_reported_again() {
    let mut env = TestEnv::after_settling(&spec("searchStrategy: thorough"));
    forget_reported(&mut env);
    assert_settles_without_events(&mut env);
    // A different text is a different problem.
    forget_reported(&mut env);
    env.edit_spec(&spec("").replace("h100_sxm", "gtx"));
    env.settle();
    assert_eq!(env.event_reasons(), ["ValidationFailed"]);
}

#[test]
fn image_pull_of_job_is_not_reported_again() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.job_pods = vec![pod(pull_failure("ErrImagePull"))];
    env.settle();
    forget_reported(&mut env);
    env.snapshot.job_pods = vec![pod(pull_failure("ImagePullBackOff"))];
    assert_settles_without_events(&mut env);
}

#[test]
fn image_pull_of_graph_is_not_reported_again() {
    let mut env = TestEnv::after_profiling(&spec(""));
    env.snapshot.graph_pods = vec![pod(pull_failure("ErrImagePull"))];
    env.settle();
    forget_reported(&mut env);
    env.snapshot.graph_pods = vec![pod(pull_failure("ImagePullBackOff"))];
    assert_settles_without_events(&mut env);
}

#[test]
fn failed_write_is_not_reported_again() {
    let quota_failure = |kind: &str, name: &str| {
        let object = ObjectId::new(kind, "team-a", name);
        Some(Failure { object, message: "quota".into(), transient: true, conflict: false })
    };
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    for (kind, name, reason) in [
        ("DynamoGraphDeploymentRequest", "qwen", "UpdateFailed"),
        ("RoleBinding", "dgdr-profiling-job-binding", "ProfilingJobFailed"),
        ("Job", "profile-qwen", "ProfilingJobFailed"),
    ] {
        env.reconcile(quota_failure(kind, name));
        assert_eq!(env.event_reasons(), [reason], "{kind}");
        forget_reported(&mut env);
        env.reconcile(quota_failure(kind, name));
        assert_eq!(env.event_reasons(), Vec::<&str>::new(), "{kind}");
    }
    env.settle();
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Complete);
    for (kind, name) in [("ConfigMap", "planner-config-1a2b"), ("DynamoGraphDeployment", "qwen-dgd")] {
        env.events.clear();
        env.reconcile(quota_failure(kind, name));
        assert_eq!(env.events.last().unwrap().reason, format!("{}CreationFailed", kind.replace("DynamoGraph", "")));
        forget_reported(&mut env);
        env.reconcile(quota_failure(kind, name));
        assert_eq!(env.event_reasons(), Vec::<&str>::new(), "{kind}");
    }
}

#[test]
fn deleted_job_is_not_reported_again() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.object.spec.image = None;
    env.snapshot.object.annotations.clear();
    env.settle();
    env.events.clear();
    // Without an image no other Job is created, and the text stays.
    env.snapshot.job = None;
    env.settle();
    assert_eq!(env.event_reasons(), ["ProfilingJobDeleted"]);
    forget_reported(&mut env);
    let status = env.snapshot.object.status.as_mut().unwrap();
    let known = status.conditions.iter_mut().find(|known| known.type_ == "Profiling").unwrap();
    known.message = "jobs.batch \"profile-qwen\" not found; profiling begins anew".into();
    assert_settles_without_events(&mut env);
}

#[test]
fn log_of_failed_sidecar_is_named_again() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.set_job_state(JobState::Failed("BackoffLimitExceeded".into()));
    let container = ObservedContainer {
        name: "output-copier".into(),
        terminated: Some(Terminated { exit_code: 1, reason: "Error".into(), message: String::new() }),
        ..ObservedContainer::default()
    };
    env.snapshot.job_pods = vec![ObservedPod { phase: "Failed".into(), ..pod(container) }];
    env.settle();
    let sum = env.condition_summary("Succeeded");
    assert!(sum.2.contains("See the log of output-copier: "), "{sum:?}");
    env.snapshot.job_pods[0].containers.clear();
    env.settle();
    assert_eq!(env.condition_summary("Succeeded"), sum, "derived from the stored status alone");
    forget_reported(&mut env);
    env.settle();
    assert_eq!(env.condition_summary("Succeeded"), sum, "derived from the message of an earlier version");
}

/// NVIDIA's operator: the verdict of the profiler may come after the failure of its Job was reported.
#[test]
fn late_verdict_after_inherited_failure_is_used() {
    let mut snapshot = request_snapshot(&spec(""));
    let message = "profiling job failed: BackoffLimitExceeded. Details: Pod: p, Container: output-copier, ExitCode: 1, \
                   Reason: Error";
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({ "type": type_, "status": "False", "reason": reason, "message": message, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    snapshot.object.status = Some(
        serde_json::from_value(json!({ "phase": "Failed", "observedGeneration": 1, "profilingJobName": "profile-qwen",
            "conditions": [condition("Profiling", "SweepingDecodeFailed", message),
                condition("Succeeded", "SweepingDecodeFailed", &format!("Profiling failed: {message}"))] }))
        .unwrap(),
    );
    let mut env = TestEnv::new(snapshot);
    env.set_pod_phase("Failed");
    env.settle();
    let log = "kubectl logs -n team-a job/profile-qwen -c output-copier";
    assert!(env.condition_summary("Succeeded").2.contains(log), "{:?}", env.condition_summary("Succeeded"));
    env.snapshot.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", "no plan")]));
    env.settle();
    assert_eq!(
        env.condition_summary("Profiling"),
        summary("False", "SweepingDecodeFailed", "profiling failed: no plan")
    );
    assert!(env.condition_summary("Succeeded").2.contains("job/profile-qwen -c profiler"));
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Failed, vec![]));
}
