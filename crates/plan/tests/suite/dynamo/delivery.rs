//! Delivery of the profiler's result by the sidecar, and the conditions that report why it is missing.

use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::{JobState, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated};
use steersman_reconcile::WriteOp;

use super::{FINAL, TestEnv, output, spec, summary};

type ExitStatus = Option<(i32, &'static str)>;

fn container(name: &str, exit: ExitStatus) -> ObservedContainer {
    let terminated =
        exit.map(|(exit_code, reason)| Terminated { exit_code, reason: reason.to_owned(), message: String::new() });
    ObservedContainer { name: name.into(), terminated, ..ObservedContainer::default() }
}

fn pod(phase: &str, profiler: ExitStatus, copier: ExitStatus) -> ObservedPod {
    ObservedPod {
        name: "profile-qwen-x".into(),
        phase: phase.into(),
        containers: vec![container("profiler", profiler), container("output-copier", copier)],
        ..ObservedPod::default()
    }
}

const LOG_COMMAND: &str = "kubectl logs -n team-a profile-qwen-x -c output-copier";

#[test]
fn sidecar_exit_during_profiling_names_its_log() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.output = Some(output(&[("phase", "SweepingDecode"), ("message", "candidate 3/9")]));
    env.snapshot.job_pods = vec![pod("Running", None, Some((127, "StartError")))];
    env.settle();
    let (status, reason, message) = env.condition_summary("Profiling");
    assert_eq!((env.phase(), status.as_str(), reason.as_str()), (Phase::Profiling, "False", "SweepingDecode"));
    let why = "pod profile-qwen-x container output-copier ended with exit code 127 (StartError) before the profiler";
    assert!(message.starts_with(why), "{message}");
    assert!(
        message.contains(LOG_COMMAND) && message.ends_with("kubectl delete job -n team-a profile-qwen"),
        "{message}"
    );
    assert_eq!(env.condition_summary("Succeeded").2, format!("Profiling is in progress: {message}"));
}

#[test]
fn undelivered_result_is_reported_until_it_arrives() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.job_pods = vec![pod("Running", Some((1, "Error")), None)];
    env.settle();
    let (_, _, message) = env.condition_summary("Profiling");
    assert!(message.starts_with("The profiler ended with exit code 1 (Error); container output-copier"), "{message}");
    assert!(message.ends_with(LOG_COMMAND), "{message}");
    env.snapshot.output = Some(output(&[("phase", "Done"), ("message", "done"), ("profiler_status", "success")]));
    env.settle();
    assert_eq!(
        env.condition_summary("Profiling"),
        summary("False", "Completed", "done"),
        "the result is delivered and the Job about to end"
    );
}

#[test]
fn evicted_pod_is_no_delivery_problem() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.job_pods = vec![pod("Failed", None, Some((137, "Error"))), pod("Running", None, None)];
    env.settle();
    assert_eq!(env.condition_summary("Profiling").1, "ProfilingRunning");
}

/// The messages of Profiling and Succeeded for a failed Job with these pods.
fn failed_job_messages(pods: Vec<ObservedPod>) -> (String, String) {
    let mut env = TestEnv::after_settling(&spec(""));
    env.set_job_state(JobState::Failed("BackoffLimitExceeded".into()));
    env.snapshot.job_pods = pods;
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    (env.condition_summary("Profiling").2, env.condition_summary("Succeeded").2)
}

#[test]
fn failed_job_names_failed_container() {
    let (job_message, sum) = failed_job_messages(vec![pod("Failed", Some((0, "Completed")), Some((1, "Error")))]);
    let details = "Pod: profile-qwen-x, Container: output-copier, ExitCode: 1, Reason: Error";
    assert_eq!(job_message, format!("profiling job failed: BackoffLimitExceeded. Details: {details}"));
    assert!(sum.contains("kubectl logs -n team-a job/profile-qwen -c output-copier."), "{sum}");
    let (job_message, sum) = failed_job_messages(vec![pod("Failed", Some((2, "Error")), Some((1, "Error")))]);
    assert!(
        job_message.ends_with("Pod: profile-qwen-x, Container: profiler, ExitCode: 2, Reason: Error"),
        "{job_message}"
    );
    assert!(sum.contains("kubectl logs -n team-a job/profile-qwen -c profiler."), "{sum}");
}

/// The end of the sidecar's log, as the kubelet copies it into the termination message.
const SIDECAR_LOG: &str = "{\"level\":\"WARN\",\"msg\":\"cannot write the ConfigMap\"}\nsteersman: gave up after 15 \
                           min without permission to write ConfigMap dgdr-output-qwen: the API server answered 403: \
                           forbidden\n";

fn with_sidecar_log(mut pod: ObservedPod) -> ObservedPod {
    pod.containers[1].terminated.as_mut().unwrap().message = SIDECAR_LOG.into();
    pod
}

#[test]
fn sidecar_failure_shows_last_log_line() {
    let line = "gave up after 15 min without permission to write ConfigMap dgdr-output-qwen: the API server answered \
                403: forbidden";
    let (job_message, _) =
        failed_job_messages(vec![with_sidecar_log(pod("Failed", Some((0, "Completed")), Some((1, "Error"))))]);
    assert!(
        job_message.ends_with(&format!("output-copier, ExitCode: 1, Reason: Error, Message: {line}")),
        "{job_message}"
    );
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.job_pods = vec![with_sidecar_log(pod("Running", None, Some((1, "Error"))))];
    env.settle();
    let (_, _, message) = env.condition_summary("Profiling");
    assert!(message.contains(&format!("cannot be delivered: {line}. See its log: {LOG_COMMAND}")), "{message}");
}

#[test]
fn failed_job_reports_pod_termination_reason() {
    let evicted = ObservedPod {
        terminated: Some(("Evicted".into(), "The node was low on resource: memory.".into())),
        ..pod("Failed", Some((137, "Error")), None)
    };
    let (job_message, _) = failed_job_messages(vec![evicted.clone()]);
    let why = "Pod: profile-qwen-x, Reason: Evicted, Message: The node was low on resource: memory., Container: profiler, \
               ExitCode: 137, Reason: Error";
    assert!(job_message.ends_with(why), "{job_message}");
    let (job_message, _) = failed_job_messages(vec![
        evicted,
        ObservedPod { name: "profile-qwen-y".into(), ..pod("Failed", Some((3, "Error")), None) },
    ]);
    let why = "Pod: profile-qwen-y, Container: profiler, ExitCode: 3, Reason: Error";
    assert!(job_message.ends_with(why), "the evicted pod was replaced, so that its successor decides: {job_message}");
}

#[test]
fn success_without_manifest_fails_generation() {
    let mocker = "features: {mocker: {enabled: true}}";
    let cases = [
        (mocker, vec![("profiler_status", "success"), ("config_with_planner.yaml", FINAL)]),
        (mocker, vec![("config_with_planner.yaml", FINAL)]),
        ("", vec![("profiler_status", "success"), ("mocker_config_with_planner.yaml", FINAL)]),
        ("", vec![("profiler_status", "success")]),
    ];
    for (more, data) in cases {
        for job in [true, false] {
            let mut env = TestEnv::after_settling(&spec(more));
            env.snapshot.output = Some(output(&data));
            env.set_job_state(JobState::Complete);
            // A deleted Job without a verdict may have been removed before it was done.
            if !job && data[0].0 == "profiler_status" {
                env.snapshot.job = None;
            }
            env.settle();
            assert_eq!(env.phase(), Phase::Failed, "{data:?}");
            let (_, reason, message) = env.condition_summary("SpecGenerated");
            let required_file =
                if more.is_empty() { "config_with_planner.yaml" } else { "mocker_config_with_planner.yaml" };
            assert_eq!(reason, "GenerationFailed");
            assert!(message.contains(&format!("but final_config.yaml or {required_file} is required")), "{message}");
            assert_eq!(env.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
        }
    }
}

#[test]
fn stale_output_deletion_has_preconditions() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.output = Some(output(&[("phase", "SweepingPrefill")]));
    env.snapshot.job = None;
    let removed = plan(&env.snapshot).writes.into_iter().find_map(|write| match write {
        WriteOp::Delete { name, uid, version, .. } => Some((name, uid, version)),
        _ => None,
    });
    assert_eq!(removed, Some(("dgdr-output-qwen".to_owned(), "out-1".to_owned(), Some("7".to_owned()))));
}
