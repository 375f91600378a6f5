//! Failures of the Job, the profiler and writes, and which of them fail the request.

use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_plan::dynamo::{JobState, names, plan, request};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated};
use steersman_reconcile::{Failure, ObjectId, WriteOp};

use super::{FINAL, TestEnv, output, request_snapshot, spec, summary};

/// Remedy in the message of a request whose profiling failed.
const LOG_HINT: &str = "See the profiler's log: kubectl logs -n team-a job/profile-qwen -c profiler. To profile again: \
                        kubectl annotate dgdr -n team-a qwen --overwrite steersman.dev/retry=$(date +%s)";

pub fn profiling_env(phase: &str) -> TestEnv {
    let mut env = TestEnv::after_settling(&spec(""));
    if !phase.is_empty() {
        env.snapshot.output = Some(output(&[("phase", phase)]));
        env.settle();
    }
    env.events.clear();
    env
}

#[test]
fn profiler_failure_names_sub_phase_in_reason() {
    for (phase, reason) in [
        ("", "InitializingFailed"),
        ("SweepingPrefill", "SweepingPrefillFailed"),
        ("SweepingDecode", "SweepingDecodeFailed"),
        ("SelectingConfig", "SelectingConfigFailed"),
        ("BuildingCurves", "BuildingCurvesFailed"),
        ("GeneratingDGD", "GeneratingDGDFailed"),
    ] {
        for state in [JobState::Complete, JobState::Failed("BackoffLimitExceeded".into())] {
            let mut env = profiling_env(phase);
            env.snapshot.output = Some(output(&[
                ("phase", phase),
                ("profiler_status", "failed"),
                ("profiler_error", "SLA out of reach"),
            ]));
            env.set_job_state(state);
            env.settle();
            assert_eq!(env.phase(), Phase::Failed);
            assert_eq!(
                env.condition_summary("Profiling"),
                summary("False", reason, "profiling failed: SLA out of reach")
            );
            let sum = format!("{reason}: profiling failed: SLA out of reach. {LOG_HINT}");
            assert_eq!(env.condition_summary("Succeeded"), summary("False", "Failed", &sum));
            assert_eq!(env.event_reasons(), ["ProfilingCheckFailed"]);
            assert_eq!(env.status().profiling_phase, None);
        }
    }
}

#[test]
fn profiler_failure_without_message_has_default() {
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "failed")]));
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(
        env.condition_summary("Profiling").2,
        "profiling failed: profiler reported failure (no details available)"
    );
}

#[test]
fn verdict_waits_for_running_job() {
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", "x")]));
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn late_profiler_error_replaces_pod_failure() {
    let mut env = profiling_env("SweepingDecode");
    env.set_job_state(JobState::Failed("Job has reached the specified backoff limit".into()));
    env.snapshot.job_pods = vec![ObservedPod {
        name: "profile-qwen-x".into(),
        phase: "Failed".into(),
        containers: vec![ObservedContainer {
            name: "profiler".into(),
            terminated: Some(Terminated { exit_code: 137, reason: "OOMKilled".into(), message: String::new() }),
            ..ObservedContainer::default()
        }],
        ..ObservedPod::default()
    }];
    env.settle();
    let text = "profiling job failed: Job has reached the specified backoff limit. Details: Pod: profile-qwen-x, \
                Container: profiler, ExitCode: 137, Reason: OOMKilled";
    assert_eq!(env.condition_summary("Profiling"), summary("False", "SweepingDecodeFailed", text));
    env.snapshot.output = Some(output(&[
        ("phase", "SweepingDecode"),
        ("profiler_status", "failed"),
        ("profiler_error", "out of memory"),
    ]));
    env.settle();
    assert_eq!(
        env.condition_summary("Profiling"),
        summary("False", "SweepingDecodeFailed", "profiling failed: out of memory")
    );
    assert_eq!(
        env.condition_summary("Succeeded").2,
        format!("SweepingDecodeFailed: profiling failed: out of memory. {LOG_HINT}")
    );
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Failed, vec!["ProfilingCheckFailed"]));
}

#[test]
fn delivered_result_survives_pod_eviction() {
    let mut env = profiling_env("GeneratingDGD");
    env.snapshot.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Failed("BackoffLimitExceeded".into()));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);

    // The Job has replaced the evicted pod, whose profiler would start over.
    let mut env = profiling_env("GeneratingDGD");
    env.snapshot.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_pod_phase("Running");
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling, "the Job is about to end");
    let evicted = ObservedPod { name: "profile-qwen-a".into(), phase: "Failed".into(), ..ObservedPod::default() };
    env.snapshot.job_pods.push(evicted);
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);

    let mut env = profiling_env("GeneratingDGD");
    env.snapshot.output = Some(output(&[("phase", "Done"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Failed("BackoffLimitExceeded".into()));
    env.settle();
    assert_eq!(env.phase(), Phase::Failed, "a result without the profiler's verdict may be incomplete");
}

#[test]
fn deleted_service_account_is_recreated_while_profiling() {
    let mut env = profiling_env("SweepingDecode");
    env.snapshot.account = None;
    let writes = plan(&env.snapshot).writes;
    let kinds: Vec<String> = writes
        .iter()
        .map(|write| match write {
            WriteOp::Unowned(write) => write.object().types.as_ref().unwrap().kind.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["ServiceAccount", "RoleBinding"]);
    env.settle();
    assert!(env.snapshot.account.is_some() && plan(&env.snapshot).writes.is_empty());
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn deleted_role_binding_is_recreated_while_profiling() {
    let mut env = profiling_env("SweepingDecode");
    assert!(plan(&env.snapshot).writes.is_empty(), "an existing RoleBinding needs no write");
    env.snapshot.binding = None;
    let forbidden = Failure {
        object: ObjectId::new("RoleBinding", "team-a", "dgdr-profiling-job-binding"),
        message: "the API server answered 403: no".into(),
        transient: true,
        conflict: false,
    };
    env.reconcile(Some(forbidden));
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Profiling, vec!["ProfilingJobFailed"]));
    assert!(
        env.condition_summary("Succeeded").2.contains("RoleBinding team-a/dgdr-profiling-job-binding: the API server")
    );
    env.settle();
    assert!(env.snapshot.binding.is_some());
    assert_eq!(env.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
}

#[test]
fn failure_without_sub_phase_is_profiling_failed() {
    let mut env = profiling_env("");
    env.snapshot.object.status.as_mut().unwrap().profiling_phase = None;
    env.set_job_state(JobState::Failed("DeadlineExceeded".into()));
    env.settle();
    assert_eq!(
        env.condition_summary("Profiling"),
        summary("False", "ProfilingFailed", "profiling job failed: DeadlineExceeded")
    );
}

#[test]
fn complete_job_awaits_its_output() {
    let mut env = profiling_env("");
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    let (_, reason, message) = env.condition_summary("Profiling");
    assert_eq!(reason, "Initializing");
    assert!(message.contains("waiting for ConfigMap dgdr-output-qwen with its result"), "{message}");
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
}

#[test]
fn deleted_job_is_recreated_unless_delivered() {
    let mut env = profiling_env("");
    env.snapshot.job = None;
    env.settle();
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Profiling, vec!["ProfilingJobDeleted"]));
    assert_eq!(env.events[0].message, "jobs.batch \"profile-qwen\" not found; profiling starts again");
    assert_eq!(env.created.iter().filter(|name| *name == "Job profile-qwen").count(), 2);

    let mut env = profiling_env("");
    env.snapshot.job = None;
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert_eq!(env.created.iter().filter(|name| *name == "Job profile-qwen").count(), 1);
}

#[test]
fn recreated_job_resets_profiling_phase() {
    let mut env = profiling_env("SweepingDecode");
    env.snapshot.job = None;
    env.settle();
    assert_eq!((env.phase(), &env.snapshot.output), (Phase::Profiling, &None));
    assert_eq!(env.status().profiling_phase, Some(ProfilingPhase::Initializing));
}

#[test]
fn result_of_unseen_job_is_used() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    // The operator crashed after it had created the Job and before it wrote the status.
    let hash = request::spec_hash(&env.snapshot.object.spec);
    env.snapshot.object.annotations.insert(names::ACCEPTED_SPEC.into(), hash);
    let data = [("profiler_status", "success"), ("final_config.yaml", FINAL)];
    env.snapshot.output = Some(output(&data));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert!(!env.created.contains(&"Job profile-qwen".to_owned()), "no second Job: {:?}", env.created);
}

#[test]
fn output_without_graph_fails_generation() {
    for (text, why) in [
        ("", "failed to extract DGD from final_config.yaml: no DynamoGraphDeployment found in YAML content"),
        (
            "apiVersion: nvidia.com/v2\nkind: DynamoGraphDeployment\nspec: {}",
            "unsupported DynamoGraphDeployment apiVersion \"nvidia.com/v2\"",
        ),
    ] {
        let mut env = profiling_env("GeneratingDGD");
        env.deliver_result(text);
        assert_eq!(env.phase(), Phase::Failed);
        assert_eq!(env.condition_summary("SpecGenerated"), summary("False", "GenerationFailed", why));
        let next = "See the profiler's output in ConfigMap dgdr-output-qwen.";
        assert!(env.condition_summary("Succeeded").2.starts_with(&format!("GenerationFailed: {why}. {next}")));
        assert_eq!((env.event_reasons(), env.status().profiling_phase), (vec!["GenerationFailed"], None));
    }
}

#[test]
fn rejected_job_fails_request_until_spec_changes() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    let failure = Failure {
        object: ObjectId::new("Job", "team-a", "profile-qwen"),
        message: "invalid".into(),
        transient: false,
        conflict: false,
    };
    env.reconcile(Some(failure));
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    assert_eq!(env.condition_summary("Profiling").1, "JobCreationFailed");
    let next = "Correct the spec: profiling then starts.";
    assert_eq!(
        env.condition_summary("Succeeded").2,
        format!("JobCreationFailed: Job team-a/profile-qwen: invalid. {next}")
    );
    assert_eq!(env.event_reasons(), ["ProfilingJobFailed"]);
    env.edit_spec(&spec("backend: vllm"));
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn rejected_recreated_job_fails_request_permanently() {
    let mut env = profiling_env("");
    env.snapshot.job = None;
    let failure = Failure {
        object: ObjectId::new("Job", "team-a", "profile-qwen"),
        message: "invalid".into(),
        transient: false,
        conflict: false,
    };
    env.reconcile(Some(failure));
    env.settle();
    assert_eq!((env.phase(), env.condition_summary("Profiling").1.as_str()), (Phase::Failed, "JobCreationFailed"));
    let next = "Correct the spec. To profile again: kubectl annotate dgdr -n team-a qwen --overwrite \
                steersman.dev/retry=$(date +%s)";
    assert_eq!(
        env.condition_summary("Succeeded").2,
        format!("JobCreationFailed: Job team-a/profile-qwen: invalid. {next}")
    );
    env.edit_spec(&spec("backend: vllm"));
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
}

#[test]
fn only_permanent_graph_rejection_fails_request() {
    for (transient, phase, reason) in
        [(false, Phase::Failed, "DeploymentRejected"), (true, Phase::Deploying, "DeploymentCreationFailed")]
    {
        let mut env = TestEnv::after_settling(&spec(""));
        env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
        env.set_job_state(JobState::Complete);
        let object = ObjectId::new("DynamoGraphDeployment", "team-a", "qwen-dgd");
        env.reconcile(Some(Failure { object, message: "denied".into(), transient, conflict: false }));
        assert_eq!(env.phase(), phase);
        let text = "DynamoGraphDeployment team-a/qwen-dgd: denied";
        assert_eq!(env.condition_summary("DeploymentReady"), summary("False", reason, text));
        assert_eq!(env.event_reasons().last(), Some(&"DeploymentCreationFailed"));
        env.settle();
        assert_eq!(env.phase(), phase);
        assert_eq!(env.snapshot.graph.is_some(), transient);
    }
}

#[test]
fn unwritable_config_map_delays_graph() {
    let mut env = profiling_env("");
    env.snapshot.output = Some(output(&[("profiler_status", "success"), ("final_config.yaml", FINAL)]));
    env.set_job_state(JobState::Complete);
    for _ in 0..3 {
        let object = ObjectId::new("ConfigMap", "team-a", "planner-config-1a2b");
        env.reconcile(Some(Failure { object, message: "quota".into(), transient: true, conflict: false }));
    }
    assert_eq!(
        (env.phase(), env.event_reasons()),
        (Phase::Deploying, vec!["SpecGenerated", "ConfigMapCreationFailed"])
    );
    let text = "ConfigMap team-a/planner-config-1a2b: quota";
    assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "ConfigMapCreationFailed", text));
    let (_, _, sum) = env.condition_summary("Succeeded");
    assert!(sum.ends_with("quota. The DGD is created once they can be written"), "{sum}");
    env.settle();
    assert_eq!(env.event_reasons(), ["SpecGenerated", "ConfigMapCreationFailed", "DeploymentCreated"]);
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentInProgress");
}

#[test]
fn unwritable_config_map_leaves_deployed_graph_healthy() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.events.clear();
    for _ in 0..3 {
        let object = ObjectId::new("ConfigMap", "team-a", "planner-config-1a2b");
        env.reconcile(Some(Failure { object, message: "quota".into(), transient: true, conflict: false }));
    }
    let text = "Failed to create ConfigMaps from profiling output: ConfigMap team-a/planner-config-1a2b: quota";
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Deployed, vec!["ConfigMapCreationFailed"]));
    assert_eq!(env.events[0].message, text);
    assert_eq!(env.condition_summary("Succeeded").2, format!("Deployment is healthy: {text}"));
}

#[test]
fn unwritable_request_is_reported_once_and_recovers() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    let object = ObjectId::new("DynamoGraphDeploymentRequest", "team-a", "qwen");
    for _ in 0..3 {
        let message = "a policy forbids it".to_owned();
        env.reconcile(Some(Failure { object: object.clone(), message, transient: true, conflict: false }));
    }
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Pending, vec!["UpdateFailed"]));
    let text = "Cannot update this DGDR; the update is retried: DynamoGraphDeploymentRequest team-a/qwen: a policy \
                forbids it";
    assert_eq!(env.condition_summary("Succeeded").2, format!("DGDR is pending: {text}"));
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    assert!(!env.condition_summary("Succeeded").2.contains("policy"));
}
