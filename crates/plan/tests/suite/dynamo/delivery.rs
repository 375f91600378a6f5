//! The way of a result from the profiler to the request: who delivers it, what stops it on the way, and what is said then.

use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::{JobState, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated};
use steersman_reconcile::WriteOp;

use super::{FINAL, World, output, said, spec};

type Ended = Option<(i32, &'static str)>;

fn container(name: &str, ended: Ended) -> ObservedContainer {
    let terminated =
        ended.map(|(exit_code, reason)| Terminated { exit_code, reason: reason.to_owned(), message: String::new() });
    ObservedContainer { name: name.into(), terminated, ..ObservedContainer::default() }
}

fn pod(phase: &str, profiler: Ended, copier: Ended) -> ObservedPod {
    ObservedPod {
        name: "profile-qwen-x".into(),
        phase: phase.into(),
        containers: vec![container("profiler", profiler), container("output-copier", copier)],
        ..ObservedPod::default()
    }
}

const LOG: &str = "kubectl logs -n team-a profile-qwen-x -c output-copier";

#[test]
fn a_sidecar_that_has_ended_before_the_profiler_is_told_with_its_log_while_the_profiler_works_on() {
    let mut world = World::settled(&spec(""));
    world.seen.output = Some(output(&[("phase", "SweepingDecode"), ("message", "candidate 3/9")]));
    world.seen.job_pods = vec![pod("Running", None, Some((127, "StartError")))];
    world.settle();
    let (status, reason, message) = world.says("Profiling");
    assert_eq!((world.phase(), status.as_str(), reason.as_str()), (Phase::Profiling, "False", "SweepingDecode"));
    let why = "pod profile-qwen-x container output-copier ended with exit code 127 (StartError) before the profiler";
    assert!(message.starts_with(why), "{message}");
    assert!(message.contains(LOG) && message.ends_with("kubectl delete job -n team-a profile-qwen"), "{message}");
    assert_eq!(world.says("Succeeded").2, format!("Profiling is in progress: {message}"));
}

#[test]
fn a_result_that_the_sidecar_still_holds_is_told_until_it_is_there() {
    let mut world = World::settled(&spec(""));
    world.seen.job_pods = vec![pod("Running", Some((1, "Error")), None)];
    world.settle();
    let (_, _, message) = world.says("Profiling");
    assert!(
        message.starts_with("The profiler has ended with exit code 1 (Error); container output-copier"),
        "{message}"
    );
    assert!(message.ends_with(LOG), "{message}");
    world.seen.output = Some(output(&[("phase", "Done"), ("message", "done"), ("profiler_status", "success")]));
    world.settle();
    assert_eq!(world.says("Profiling"), said("False", "Completed", "done"), "delivered, and the Job ends any moment");
}

#[test]
fn a_pod_that_was_evicted_is_the_jobs_to_replace_and_says_nothing_of_delivery() {
    let mut world = World::settled(&spec(""));
    world.seen.job_pods = vec![pod("Failed", None, Some((137, "Error"))), pod("Running", None, None)];
    world.settle();
    assert_eq!(world.says("Profiling").1, "ProfilingRunning");
}

/// What a failed Job says of its pods.
fn failed(pods: Vec<ObservedPod>) -> (String, String) {
    let mut world = World::settled(&spec(""));
    world.job(JobState::Failed("BackoffLimitExceeded".into()));
    world.seen.job_pods = pods;
    world.settle();
    assert_eq!(world.phase(), Phase::Failed);
    (world.says("Profiling").2, world.says("Succeeded").2)
}

#[test]
fn a_failed_job_names_the_container_that_ended_badly() {
    let (said, sum) = failed(vec![pod("Failed", Some((0, "Completed")), Some((1, "Error")))]);
    let details = "Pod: profile-qwen-x, Container: output-copier, ExitCode: 1, Reason: Error";
    assert_eq!(said, format!("profiling job failed: BackoffLimitExceeded. Details: {details}"));
    assert!(sum.contains("kubectl logs -n team-a job/profile-qwen -c output-copier."), "{sum}");
    let (said, sum) = failed(vec![pod("Failed", Some((2, "Error")), Some((1, "Error")))]);
    assert!(said.ends_with("Pod: profile-qwen-x, Container: profiler, ExitCode: 2, Reason: Error"), "{said}");
    assert!(sum.contains("kubectl logs -n team-a job/profile-qwen -c profiler."), "{sum}");
}

/// The end of the sidecar's log, as Kubernetes puts it into the pod's status.
const LAST_WORDS: &str = "{\"level\":\"WARN\",\"msg\":\"cannot write the ConfigMap\"}\nsteersman: gave up after 15 min without the \
                          right to write ConfigMap dgdr-output-qwen: the API server answered 403: forbidden\n";

fn with_last_words(mut pod: ObservedPod) -> ObservedPod {
    pod.containers[1].terminated.as_mut().unwrap().message = LAST_WORDS.into();
    pod
}

#[test]
fn the_last_line_of_a_sidecar_that_gave_up_is_told_and_nothing_else_of_its_log() {
    let line = "gave up after 15 min without the right to write ConfigMap dgdr-output-qwen: the API server answered 403: \
                forbidden";
    let (said, _) = failed(vec![with_last_words(pod("Failed", Some((0, "Completed")), Some((1, "Error"))))]);
    assert!(said.ends_with(&format!("output-copier, ExitCode: 1, Reason: Error, Message: {line}")), "{said}");
    let mut world = World::settled(&spec(""));
    world.seen.job_pods = vec![with_last_words(pod("Running", None, Some((1, "Error"))))];
    world.settle();
    let (_, _, message) = world.says("Profiling");
    assert!(message.contains(&format!("cannot be delivered: {line}. Its log says why: {LOG}")), "{message}");
}

#[test]
fn a_failed_job_tells_why_its_pod_was_ended_as_a_whole() {
    let evicted = ObservedPod {
        terminated: Some(("Evicted".into(), "The node was low on resource: memory.".into())),
        ..pod("Failed", Some((137, "Error")), None)
    };
    let (said, _) = failed(vec![evicted.clone()]);
    let why = "Pod: profile-qwen-x, Reason: Evicted, Message: The node was low on resource: memory., Container: profiler, \
               ExitCode: 137, Reason: Error";
    assert!(said.ends_with(why), "{said}");
    let (said, _) =
        failed(vec![evicted, ObservedPod { name: "profile-qwen-y".into(), ..pod("Failed", Some((3, "Error")), None) }]);
    let why = "Pod: profile-qwen-y, Container: profiler, ExitCode: 3, Reason: Error";
    assert!(said.ends_with(why), "an evicted pod was replaced, the other one counts: {said}");
}

#[test]
fn a_success_without_the_manifests_that_the_request_asks_for_fails_the_generation_and_names_them() {
    let mocker = "features: {mocker: {enabled: true}}";
    let cases = [
        (mocker, vec![("profiler_status", "success"), ("config_with_planner.yaml", FINAL)]),
        (mocker, vec![("config_with_planner.yaml", FINAL)]),
        ("", vec![("profiler_status", "success"), ("mocker_config_with_planner.yaml", FINAL)]),
        ("", vec![("profiler_status", "success")]),
    ];
    for (more, data) in cases {
        for job in [true, false] {
            let mut world = World::settled(&spec(more));
            world.seen.output = Some(output(&data));
            world.job(JobState::Complete);
            // Without a verdict, a Job that is gone may have been removed before it was done.
            if !job && data[0].0 == "profiler_status" {
                world.seen.job = None;
            }
            world.settle();
            assert_eq!(world.phase(), Phase::Failed, "{data:?}");
            let (_, reason, message) = world.says("SpecGenerated");
            let wanted = if more.is_empty() { "config_with_planner.yaml" } else { "mocker_config_with_planner.yaml" };
            assert_eq!(reason, "GenerationFailed");
            assert!(message.contains(&format!("where final_config.yaml or {wanted} is needed")), "{message}");
            assert_eq!(world.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
        }
    }
}

#[test]
fn an_output_in_the_way_is_removed_only_as_it_was_seen() {
    let mut world = World::settled(&spec(""));
    world.seen.output = Some(output(&[("phase", "SweepingPrefill")]));
    world.seen.job = None;
    let removed = plan(&world.seen).writes.into_iter().find_map(|write| match write {
        WriteOp::Delete { name, uid, version, .. } => Some((name, uid, version)),
        _ => None,
    });
    assert_eq!(removed, Some(("dgdr-output-qwen".to_owned(), "out-1".to_owned(), Some("7".to_owned()))));
}
