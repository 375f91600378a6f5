//! How a request fails, and what does not make it fail.

use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_plan::dynamo::{JobState, asked, names, plan};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated};
use steersman_reconcile::{Failure, ObjectId, WriteOp};

use super::{FINAL, World, a_request, output, said, spec};

/// What is left to do once the profiler has given up.
const LOG: &str = "The profiler's log has more: kubectl logs -n team-a job/profile-qwen -c profiler. Profiling is not tried \
                   again: delete this DGDR and create a new one.";

fn profiling(phase: &str) -> World {
    let mut world = World::settled(&spec(""));
    if !phase.is_empty() {
        world.seen.output = Some(output(&[("phase", phase)]));
        world.settle();
    }
    world.notes.clear();
    world
}

#[test]
fn the_profilers_verdict_fails_the_request_with_the_sub_phase_in_the_reason() {
    for (phase, reason) in [
        ("", "InitializingFailed"),
        ("SweepingPrefill", "SweepingPrefillFailed"),
        ("SweepingDecode", "SweepingDecodeFailed"),
        ("SelectingConfig", "SelectingConfigFailed"),
        ("BuildingCurves", "BuildingCurvesFailed"),
        ("GeneratingDGD", "GeneratingDGDFailed"),
    ] {
        for state in [JobState::Complete, JobState::Failed("BackoffLimitExceeded".into())] {
            let mut world = profiling(phase);
            world.seen.output = Some(output(&[
                ("phase", phase),
                ("profiler_status", "failed"),
                ("profiler_error", "SLA out of reach"),
            ]));
            world.job(state);
            world.settle();
            assert_eq!(world.phase(), Phase::Failed);
            assert_eq!(world.says("Profiling"), said("False", reason, "profiling failed: SLA out of reach"));
            let sum = format!("{reason}: profiling failed: SLA out of reach. {LOG}");
            assert_eq!(world.says("Succeeded"), said("False", "Failed", &sum));
            assert_eq!(world.told(), ["ProfilingCheckFailed"]);
            assert_eq!(world.status().profiling_phase, None);
        }
    }
}

#[test]
fn a_verdict_without_words_says_that_there_are_none() {
    let mut world = profiling("");
    world.seen.output = Some(output(&[("profiler_status", "failed")]));
    world.job(JobState::Complete);
    world.settle();
    assert_eq!(world.says("Profiling").2, "profiling failed: profiler reported failure (no details available)");
}

#[test]
fn a_verdict_is_not_awaited_from_a_job_that_still_runs() {
    let mut world = profiling("");
    world.seen.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", "x")]));
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn a_failed_job_tells_how_its_pod_ended_and_the_profilers_words_may_come_later() {
    let mut world = profiling("SweepingDecode");
    world.job(JobState::Failed("Job has reached the specified backoff limit".into()));
    world.seen.job_pods = vec![ObservedPod {
        name: "profile-qwen-x".into(),
        phase: "Failed".into(),
        containers: vec![ObservedContainer {
            name: "profiler".into(),
            terminated: Some(Terminated { exit_code: 137, reason: "OOMKilled".into(), message: String::new() }),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    }];
    world.settle();
    let text = "profiling job failed: Job has reached the specified backoff limit. Details: Pod: profile-qwen-x, \
                Container: profiler, ExitCode: 137, Reason: OOMKilled";
    assert_eq!(world.says("Profiling"), said("False", "SweepingDecodeFailed", text));
    world.seen.output = Some(output(&[
        ("phase", "SweepingDecode"),
        ("profiler_status", "failed"),
        ("profiler_error", "out of memory"),
    ]));
    world.settle();
    assert_eq!(world.says("Profiling"), said("False", "SweepingDecodeFailed", "profiling failed: out of memory"));
    assert_eq!(world.says("Succeeded").2, format!("SweepingDecodeFailed: profiling failed: out of memory. {LOG}"));
    assert_eq!((world.phase(), world.told()), (Phase::Failed, vec!["ProfilingCheckFailed"]));
}

#[test]
fn a_result_that_was_delivered_counts_though_the_pod_was_evicted_afterwards() {
    let mut world = profiling("GeneratingDGD");
    world.seen.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.job(JobState::Failed("BackoffLimitExceeded".into()));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);

    // The Job has made another pod by now, and its profiler would begin anew.
    let mut world = profiling("GeneratingDGD");
    world.seen.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.pods("Running");
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling, "the Job is about to end");
    let evicted = ObservedPod { name: "profile-qwen-a".into(), phase: "Failed".into(), ..ObservedPod::default() };
    world.seen.job_pods.push(evicted);
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);

    let mut world = profiling("GeneratingDGD");
    world.seen.output = Some(output(&[("phase", "Done"), ("final_config.yaml", FINAL)]));
    world.job(JobState::Failed("BackoffLimitExceeded".into()));
    world.settle();
    assert_eq!(world.phase(), Phase::Failed, "without the profiler's verdict it may be half of one");
}

#[test]
fn a_running_job_gets_back_the_account_that_it_works_as() {
    let mut world = profiling("SweepingDecode");
    world.seen.account = false;
    let writes = plan(&world.seen).writes;
    let kinds: Vec<String> = writes
        .iter()
        .map(|write| match write {
            WriteOp::Unowned(write) => write.object().types.as_ref().unwrap().kind.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["ServiceAccount", "RoleBinding"]);
    world.settle();
    assert!(world.seen.account && plan(&world.seen).writes.is_empty());
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn a_running_job_gets_back_the_binding_that_it_delivers_by() {
    let mut world = profiling("SweepingDecode");
    assert!(plan(&world.seen).writes.is_empty(), "nothing is asked for while it is there");
    world.seen.binding = None;
    let forbidden = Failure {
        object: ObjectId::new("RoleBinding", "team-a", "dgdr-profiling-job-binding"),
        message: "the API server answered 403: no".into(),
        transient: true,
        conflict: false,
    };
    world.pass(Some(forbidden));
    assert_eq!((world.phase(), world.told()), (Phase::Profiling, vec!["ProfilingJobFailed"]));
    assert!(world.says("Succeeded").2.contains("RoleBinding team-a/dgdr-profiling-job-binding: the API server"));
    world.settle();
    assert!(world.seen.binding.is_some());
    assert_eq!(world.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
}

#[test]
fn without_a_sub_phase_the_reason_says_only_that_profiling_failed() {
    let mut world = profiling("");
    world.seen.object.status.as_mut().unwrap().profiling_phase = None;
    world.job(JobState::Failed("DeadlineExceeded".into()));
    world.settle();
    assert_eq!(world.says("Profiling"), said("False", "ProfilingFailed", "profiling job failed: DeadlineExceeded"));
}

#[test]
fn a_job_that_ended_before_its_output_was_seen_is_waited_for() {
    let mut world = profiling("");
    world.job(JobState::Complete);
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
    let (_, reason, message) = world.says("Profiling");
    assert_eq!(reason, "Initializing");
    assert!(message.contains("ConfigMap dgdr-output-qwen with its result is awaited"), "{message}");
    world.deliver(FINAL);
    assert_eq!(world.phase(), Phase::Deploying);
}

#[test]
fn a_job_that_is_gone_is_made_again_unless_it_has_delivered() {
    let mut world = profiling("");
    world.seen.job = None;
    world.settle();
    assert_eq!((world.phase(), world.told()), (Phase::Profiling, vec!["ProfilingJobDeleted"]));
    assert_eq!(world.notes[0].message, "jobs.batch \"profile-qwen\" not found; profiling begins anew");
    assert_eq!(world.created.iter().filter(|name| *name == "Job profile-qwen").count(), 2);

    let mut world = profiling("");
    world.seen.job = None;
    world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    assert_eq!(world.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
}

#[test]
fn what_an_earlier_job_was_busy_with_is_forgotten_with_it() {
    let mut world = profiling("SweepingDecode");
    world.seen.job = None;
    world.settle();
    assert_eq!((world.phase(), &world.seen.output), (Phase::Profiling, &None));
    assert_eq!(world.status().profiling_phase, Some(ProfilingPhase::Initializing));
}

#[test]
fn a_job_that_is_gone_before_it_was_seen_has_delivered_all_the_same() {
    let mut world = World::new(a_request(&spec("")));
    // A crash after the Job was created left the mark and no status.
    let mark = asked::mark(&world.seen.object.spec);
    world.seen.object.annotations.insert(names::ACCEPTED_SPEC.into(), mark);
    let data = [("profiler_status", "success"), ("final_config.yaml", FINAL)];
    world.seen.output = Some(output(&data));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    assert!(!world.created.contains(&"Job profile-qwen".to_owned()), "no second Job: {:?}", world.created);
}

#[test]
fn output_that_holds_no_graph_fails_the_generation() {
    for (text, why) in [
        ("", "failed to extract DGD from final_config.yaml: no DynamoGraphDeployment found in YAML content"),
        (
            "apiVersion: nvidia.com/v2\nkind: DynamoGraphDeployment\nspec: {}",
            "unsupported DynamoGraphDeployment apiVersion \"nvidia.com/v2\"",
        ),
    ] {
        let mut world = profiling("GeneratingDGD");
        world.deliver(text);
        assert_eq!(world.phase(), Phase::Failed);
        assert_eq!(world.says("SpecGenerated"), said("False", "GenerationFailed", why));
        let next = "What the profiler delivered is in ConfigMap dgdr-output-qwen.";
        assert!(world.says("Succeeded").2.starts_with(&format!("GenerationFailed: {why}. {next}")));
        assert_eq!((world.told(), world.status().profiling_phase), (vec!["GenerationFailed"], None));
    }
}

#[test]
fn a_refused_job_fails_the_request_until_its_spec_is_changed() {
    let mut world = World::new(a_request(&spec("")));
    let failure = Failure {
        object: ObjectId::new("Job", "team-a", "profile-qwen"),
        message: "invalid".into(),
        transient: false,
        conflict: false,
    };
    world.pass(Some(failure));
    world.settle();
    assert_eq!(world.phase(), Phase::Failed);
    assert_eq!(world.says("Profiling").1, "JobCreationFailed");
    let next = "Change the spec accordingly: profiling then begins anew.";
    assert_eq!(world.says("Succeeded").2, format!("JobCreationFailed: Job team-a/profile-qwen: invalid. {next}"));
    assert_eq!(world.told(), ["ProfilingJobFailed"]);
    world.edit(&spec("backend: vllm"));
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}

#[test]
fn a_job_that_is_refused_when_it_is_made_again_ends_the_request_and_promises_nothing() {
    let mut world = profiling("");
    world.seen.job = None;
    let failure = Failure {
        object: ObjectId::new("Job", "team-a", "profile-qwen"),
        message: "invalid".into(),
        transient: false,
        conflict: false,
    };
    world.pass(Some(failure));
    world.settle();
    assert_eq!((world.phase(), world.says("Profiling").1.as_str()), (Phase::Failed, "JobCreationFailed"));
    let next = "Profiling is not tried again: delete this DGDR and create a new one.";
    assert_eq!(world.says("Succeeded").2, format!("JobCreationFailed: Job team-a/profile-qwen: invalid. {next}"));
    world.edit(&spec("backend: vllm"));
    world.settle();
    assert_eq!(world.phase(), Phase::Failed);
}

#[test]
fn a_refused_graph_fails_the_request_and_one_that_cannot_be_sent_does_not() {
    for (transient, phase, reason) in
        [(false, Phase::Failed, "DeploymentRejected"), (true, Phase::Deploying, "DeploymentCreationFailed")]
    {
        let mut world = World::settled(&spec(""));
        world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
        world.job(JobState::Complete);
        let object = ObjectId::new("DynamoGraphDeployment", "team-a", "qwen-dgd");
        world.pass(Some(Failure { object, message: "denied".into(), transient, conflict: false }));
        assert_eq!(world.phase(), phase);
        let text = "DynamoGraphDeployment team-a/qwen-dgd: denied";
        assert_eq!(world.says("DeploymentReady"), said("False", reason, text));
        assert_eq!(world.told().last(), Some(&"DeploymentCreationFailed"));
        world.settle();
        assert_eq!(world.phase(), phase);
        assert_eq!(world.seen.graph.is_some(), transient);
    }
}

#[test]
fn a_config_map_that_cannot_be_written_holds_up_the_graph_that_needs_it() {
    let mut world = profiling("");
    world.seen.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    world.job(JobState::Complete);
    for _ in 0..3 {
        let object = ObjectId::new("ConfigMap", "team-a", "planner-config-1a2b");
        world.pass(Some(Failure { object, message: "quota".into(), transient: true, conflict: false }));
    }
    assert_eq!((world.phase(), world.told()), (Phase::Deploying, vec!["SpecGenerated", "ConfigMapCreationFailed"]));
    let text = "ConfigMap team-a/planner-config-1a2b: quota";
    assert_eq!(world.says("DeploymentReady"), said("False", "ConfigMapCreationFailed", text));
    let (_, _, sum) = world.says("Succeeded");
    assert!(sum.ends_with("quota. The DGD is created as soon as they can be written"), "{sum}");
    world.settle();
    assert_eq!(world.told(), ["SpecGenerated", "ConfigMapCreationFailed", "DeploymentCreated"]);
    assert_eq!(world.says("DeploymentReady").1, "DeploymentInProgress");
}

#[test]
fn a_config_map_that_cannot_be_written_is_told_once_and_hides_nothing_of_a_graph_that_serves() {
    let mut world = World::deployed(&spec(""));
    world.notes.clear();
    for _ in 0..3 {
        let object = ObjectId::new("ConfigMap", "team-a", "planner-config-1a2b");
        world.pass(Some(Failure { object, message: "quota".into(), transient: true, conflict: false }));
    }
    let text = "Failed to create ConfigMaps from profiling output: ConfigMap team-a/planner-config-1a2b: quota";
    assert_eq!((world.phase(), world.told()), (Phase::Deployed, vec!["ConfigMapCreationFailed"]));
    assert_eq!(world.notes[0].message, text);
    assert_eq!(world.says("Succeeded").2, format!("Deployment is healthy: {text}"));
}

#[test]
fn a_request_that_cannot_be_written_to_is_told_once_and_goes_on_when_it_can() {
    let mut world = World::new(a_request(&spec("")));
    let object = ObjectId::new("DynamoGraphDeploymentRequest", "team-a", "qwen");
    for _ in 0..3 {
        let message = "a policy forbids it".to_owned();
        world.pass(Some(Failure { object: object.clone(), message, transient: true, conflict: false }));
    }
    assert_eq!((world.phase(), world.told()), (Phase::Pending, vec!["UpdateFailed"]));
    let text = "What was found out cannot be written to the request itself, and is tried again: \
                DynamoGraphDeploymentRequest team-a/qwen: a policy forbids it";
    assert_eq!(world.says("Succeeded").2, format!("DGDR is pending: {text}"));
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
    assert!(!world.says("Succeeded").2.contains("policy"));
}
