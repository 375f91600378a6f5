//! The phases of a request. Tests are numbered by the items of the requirements document.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::names::{ACCEPTED_SPEC, GENERATED_GRAPH};
use steersman_plan::dynamo::phase::succeeded;
use steersman_plan::dynamo::{JobState, plan};
use steersman_reconcile::{Failure, ObjectId, Requeue, WriteOp};

use super::recovery::RETRY_COMMAND;
use super::{TestEnv, output, request_snapshot, spec, summary};

#[test]
fn item_2_1_phases_are_reported_once_each() {
    let env = TestEnv::after_deployment(&spec(""));
    assert_eq!(env.phases, [Phase::Profiling, Phase::Deploying, Phase::Deployed]);
    let reasons = ["Initialized", "ProfilingJobCreated", "SpecGenerated", "DeploymentCreated", "DeploymentReady"];
    assert_eq!(env.event_reasons(), reasons);
    let created = [
        "ServiceAccount dgdr-profiling-job",
        "RoleBinding dgdr-profiling-job-binding",
        "Job profile-qwen",
        "ConfigMap planner-config-1a2b",
        "DynamoGraphDeployment qwen-dgd",
    ];
    assert_eq!(env.created, created);
    let (status, reason, _) = env.condition_summary("Succeeded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Deployed"));
}

#[test]
fn item_2_1_manual_apply_stops_at_ready() {
    let env = TestEnv::after_profiling(&spec("autoApply: false"));
    assert_eq!(env.phases, [Phase::Profiling, Phase::Ready]);
    assert_eq!(env.snapshot.graph, None);
    let message = format!("Generated spec is available in annotation {GENERATED_GRAPH}");
    assert_eq!(env.condition_summary("SpecGenerated"), summary("True", "SpecGenerated", &message));
    assert!(env.snapshot.object.annotations[GENERATED_GRAPH].contains("VllmDecodeWorker"));
    assert_eq!(env.status().dgd_name.as_deref(), Some("qwen-dgd"));
    let (status, reason, _) = env.condition_summary("Succeeded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "SpecGenerated"));
}

#[test]
fn item_2_1_ready_request_enables_auto_apply() {
    let mut env = TestEnv::after_profiling(&spec("autoApply: false"));
    env.edit_spec(&spec("autoApply: true"));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert_eq!(env.snapshot.graph.as_ref().unwrap().name, "qwen-dgd");
    assert_eq!(env.condition_summary("SpecAccepted").0, "True");
}

#[test]
fn item_2_1_deploying_request_disables_auto_apply() {
    let mut env = TestEnv::after_profiling(&spec(""));
    assert_eq!(env.phase(), Phase::Deploying);
    env.edit_spec(&spec("autoApply: false"));
    env.settle();
    assert_eq!(env.phase(), Phase::Ready);
    let next = "DGD qwen-dgd exists; set spec.autoApply to true to follow its state";
    let sum = format!("Profiling complete, spec available: {next}");
    assert_eq!(env.condition_summary("Succeeded"), summary("True", "SpecGenerated", &sum));
    // The annotation was emptied when the graph was observed.
    env.snapshot.graph = None;
    env.settle();
    let next = "set spec.autoApply to true to create DGD qwen-dgd, or create it yourself from \
                status.profilingResults.selectedConfig";
    let sum = format!("Profiling complete, spec available: {next}");
    assert_eq!(env.condition_summary("Succeeded"), summary("True", "SpecGenerated", &sum));
}

#[test]
fn item_2_2_stored_phase_decides_next_step() {
    // A failed Job fails a request in Profiling only; later phases do not read the Job.
    for (phase, want) in [
        (Phase::Profiling, Phase::Failed),
        (Phase::Ready, Phase::Deployed),
        (Phase::Failed, Phase::Failed),
        (Phase::Deployed, Phase::Deployed),
    ] {
        let mut env = TestEnv::after_deployment(&spec(""));
        env.snapshot.output = None;
        env.set_job_state(JobState::Failed("BackoffLimitExceeded".into()));
        env.snapshot.object.status.as_mut().unwrap().phase = Some(phase);
        assert_eq!(plan(&env.snapshot).resolution.phase, want, "{phase:?}");
    }
}

#[test]
fn item_2_3_new_request_initializes_as_pending() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.snapshot.hardware = ObservedHardware::awaited();
    env.snapshot.object.spec.hardware = None;
    assert!(env.reconcile(None));
    assert_eq!(env.phase(), Phase::Pending);
    assert_eq!(env.status().observed_generation, Some(1));
    assert_eq!(env.event_reasons(), ["Initialized"]);
    assert_eq!(env.events[0].message, "DGDR initialized successfully");
    let preparing = "Discovering GPU hardware and preparing profiling job";
    assert_eq!(env.condition_summary("Profiling"), summary("False", "DiscoveringHardware", preparing));
    assert_eq!(env.created, Vec::<String>::new());
    let mut known = env.snapshot.clone();
    known.object.status.as_mut().unwrap().observed_generation = Some(0);
    assert_eq!(plan(&known).events[0].reason, "Initialized");
}

/// A separate status write for Pending would only delay the Job.
#[test]
fn item_2_3_complete_request_skips_pending() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    assert!(env.reconcile(None), "the first reconcile writes the hash and the Job");
    assert_eq!(env.created.last().map(String::as_str), Some("Job profile-qwen"));
    assert_eq!(env.phase(), Phase::Profiling);
    assert_eq!(env.event_reasons(), ["Initialized", "ProfilingJobCreated"]);
    assert_eq!(env.condition_summary("Validation"), summary("True", "ValidationPassed", "DGDR spec validation passed"));
}

#[test]
fn item_2_4_degraded_graph_returns_to_deploying() {
    let mut env = TestEnv::after_deployment(&spec(""));
    assert_eq!(
        env.condition_summary("DeploymentReady"),
        summary("True", "DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready")
    );
    env.events.clear();
    env.graph_mut().state = Some("pending".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert_eq!(
        env.condition_summary("DeploymentReady"),
        summary("False", "DeploymentDegraded", "Deployment degraded to pending")
    );
    assert_eq!(env.event_reasons(), ["DeploymentDegraded"]);
    assert_eq!(env.events[0].message, "DynamoGraphDeployment qwen-dgd degraded from Ready to pending");
    let (status, reason, _) = env.condition_summary("Succeeded");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Deploying"));
    env.graph_mut().state = Some("successful".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deployed);
    assert_eq!(env.event_reasons(), ["DeploymentDegraded", "DeploymentReady"]);
}

#[test]
fn item_2_4_replica_changes_emit_no_event() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.events.clear();
    (env.graph_mut().replicas, env.graph_mut().available) = (3, 2);
    env.settle();
    let info = env.status().deployment_info.unwrap();
    assert_eq!((info.replicas, info.available_replicas), (Some(3), Some(2)));
    assert_eq!(env.event_reasons(), Vec::<&str>::new());
}

#[test]
fn item_2_5_deleted_graph_fails_request() {
    for state in ["successful", "pending"] {
        let mut env = TestEnv::after_deployment(&spec(""));
        env.graph_mut().state = Some(state.into());
        env.settle();
        env.events.clear();
        env.snapshot.graph = None;
        env.settle();
        assert_eq!(env.phase(), Phase::Failed, "{state}");
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentDeleted", text));
        assert_eq!(
            env.condition_summary("Succeeded"),
            summary(
                "False",
                "Failed",
                &format!("DeploymentDeleted: {text} Or start this request again: {RETRY_COMMAND}")
            )
        );
        assert_eq!(
            env.events[0].message,
            "DGD qwen-dgd was deleted. DGDR will not recreate it. Delete this DGDR and create a new one to redeploy."
        );
        assert_eq!((env.event_reasons(), env.status().dgd_name), (vec!["DeploymentDeleted"], None));
        assert_eq!(env.status().deployment_info, None);
    }
}

#[test]
fn item_2_6_spec_change_is_rejected_once() {
    for mut env in
        [TestEnv::after_settling(&spec("")), TestEnv::after_profiling(&spec("")), TestEnv::after_deployment(&spec(""))]
    {
        let (phase, generation) = (env.phase(), env.status().observed_generation);
        env.events.clear();
        env.edit_spec(&spec("backend: vllm"));
        env.settle();
        let text = format!(
            "Cannot modify spec in phase '{phase:?}'. DynamoGraphDeploymentRequest is immutable once profiling starts. \
             Create a new resource with a different name instead."
        );
        assert_eq!((env.event_reasons(), &env.events[0].message), (vec!["SpecChangeRejected"], &text));
        let (status, reason, message) = env.condition_summary("SpecAccepted");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "SpecChangeRejected"));
        assert!(message.starts_with(&text), "{message}");
        assert_eq!((env.phase(), env.status().observed_generation), (phase, generation));
        env.edit_spec(&spec(""));
        env.settle();
        assert_eq!(env.condition_summary("SpecAccepted").0, "True");
        assert_eq!(env.status().observed_generation, generation.map(|generation| generation + 2));
        assert_eq!(env.event_reasons(), ["SpecChangeRejected"]);
    }
}

#[test]
fn item_2_6_change_after_job_creation_rejected() {
    for late_spec in [spec("backend: vllm"), spec("searchStrategy: thorough")] {
        let mut env = TestEnv::new(request_snapshot(&spec("")));
        while env.snapshot.job.is_none() {
            assert!(env.reconcile(None));
        }
        env.edit_spec(&late_spec);
        env.settle();
        assert_eq!(
            (env.phase(), env.condition_summary("SpecAccepted").1.as_str()),
            (Phase::Profiling, "SpecChangeRejected")
        );
        env.edit_spec(&spec(""));
        env.settle();
        assert_eq!((env.phase(), env.condition_summary("SpecAccepted").0.as_str()), (Phase::Profiling, "True"));
    }
}

#[test]
fn item_2_6_rejected_change_leaves_graph_running() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.edit_spec(&spec("backend: vllm\nautoApply: false"));
    env.graph_mut().state = Some("pending".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    env.graph_mut().state = Some("successful".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deployed);
}

#[test]
fn item_2_6_rejected_change_blocks_deployment() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.edit_spec(&spec("backend: vllm"));
    env.deliver_result(super::FINAL);
    assert_eq!((env.phase(), env.snapshot.graph.is_none()), (Phase::Ready, true));
    env.edit_spec(&spec(""));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
}

#[test]
fn item_2_6_runtime_version_mutable_until_graph() {
    for (env, want) in [
        (TestEnv::after_settling(&spec("autoApply: false")), "True"),
        (TestEnv::after_profiling(&spec("autoApply: false")), "True"),
        (TestEnv::after_settling(&spec("")), "False"),
        (TestEnv::after_deployment(&spec("")), "False"),
    ] {
        let mut env = env;
        let auto_apply = env.snapshot.object.spec.auto_apply;
        env.edit_spec(&spec("runtimeVersionOverride: 1.4.1"));
        env.snapshot.object.spec.auto_apply = auto_apply;
        env.settle();
        assert_eq!(env.condition_summary("SpecAccepted").0, want, "{:?}", env.phases);
    }
}

#[test]
fn item_2_6_inherited_spec_without_hash_is_accepted() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.snapshot.object.annotations.remove(ACCEPTED_SPEC);
    env.snapshot.object.generation = Some(7);
    env.events.clear();
    env.settle();
    assert!(env.snapshot.object.annotations.contains_key(ACCEPTED_SPEC));
    assert_eq!((env.phase(), env.event_reasons()), (Phase::Deployed, vec![]));
}

#[test]
fn item_2_7_only_transitions_change_condition_time() {
    let mut env = TestEnv::after_deployment(&spec(""));
    let Condition { last_transition_time: since, .. } = env.condition("Succeeded");
    (env.graph_mut().replicas, env.snapshot.object.generation) = (9, Some(9));
    env.settle();
    assert_eq!(env.condition("Succeeded").last_transition_time, since);
    assert_eq!(env.condition("Succeeded").observed_generation, Some(9));
    env.graph_mut().state = None;
    env.settle();
    assert!(env.condition("Succeeded").last_transition_time > since);
}

#[test]
fn item_2_8_succeeded_follows_the_phase() {
    for (phase, status, reason, message) in [
        (Phase::Pending, "False", "Pending", "DGDR is pending"),
        (Phase::Profiling, "False", "Profiling", "Profiling is in progress"),
        (Phase::Ready, "True", "SpecGenerated", "Profiling complete, spec available"),
        (Phase::Deploying, "False", "Deploying", "Deployment is in progress"),
        (Phase::Deployed, "True", "Deployed", "Deployment is healthy"),
        (Phase::Failed, "False", "Failed", "DGDR has failed"),
    ] {
        let statement = succeeded(phase, None, None);
        let found = (statement.truth.as_str(), statement.reason.as_str(), statement.message.as_str());
        assert_eq!(found, (status, reason, message));
    }
    assert_eq!(TestEnv::after_profiling(&spec("autoApply: false")).condition_summary("Succeeded").1, "SpecGenerated");
    assert_eq!(
        TestEnv::after_deployment(&spec("")).condition_summary("Succeeded"),
        summary("True", "Deployed", "Deployment is healthy")
    );
}

#[test]
fn item_2_9_profiling_phase_relayed_and_cleared() {
    let mut env = TestEnv::after_settling(&spec(""));
    assert_eq!(env.status().profiling_phase, Some(ProfilingPhase::Initializing));
    env.set_pod_phase("Running");
    env.settle();
    assert_eq!(env.condition_summary("Profiling"), summary("False", "ProfilingRunning", "Profiling is in progress"));
    for (profiler_phase, phase, reason) in [
        ("SweepingPrefill", ProfilingPhase::SweepingPrefill, "SweepingPrefill"),
        ("SweepingDecode", ProfilingPhase::SweepingDecode, "SweepingDecode"),
        ("SelectingConfig", ProfilingPhase::SelectingConfig, "SelectingConfig"),
        ("BuildingCurves", ProfilingPhase::BuildingCurves, "BuildingCurves"),
        ("GeneratingDGD", ProfilingPhase::GeneratingDgd, "GeneratingDGD"),
        ("Done", ProfilingPhase::Done, "Completed"),
    ] {
        env.snapshot.output = Some(output(&[("phase", profiler_phase), ("message", "Candidate 1/4")]));
        env.settle();
        assert_eq!(env.status().profiling_phase, Some(phase));
        assert_eq!(env.condition_summary("Profiling"), summary("False", reason, "Candidate 1/4"));
    }
    env.deliver_result(super::FINAL);
    assert_eq!(env.status().profiling_phase, None);
    let completed = summary("True", "ProfilingCompleted", "Profiling job completed successfully");
    assert_eq!(env.condition_summary("Profiling"), completed);
}

#[test]
fn item_2_9_unknown_sub_phase_keeps_last() {
    let mut env = TestEnv::after_settling(&spec(""));
    for (profiler_phase, message, reason) in [
        ("SweepingDecode", "1/2", "SweepingDecode"),
        ("SweepingDecode", "2/2", "SweepingDecode"),
        ("Dancing", "3", "SweepingDecode"),
    ] {
        env.snapshot.output = Some(output(&[("phase", profiler_phase), ("message", message)]));
        env.settle();
        assert_eq!(env.condition_summary("Profiling"), summary("False", reason, message));
        assert_eq!(env.status().profiling_phase, Some(ProfilingPhase::SweepingDecode));
    }
}

#[test]
fn item_2_10_status_names_existing_job() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.snapshot.hardware = ObservedHardware::awaited();
    env.snapshot.object.spec.hardware = None;
    assert!(env.reconcile(None));
    assert_eq!(env.status().profiling_job_name, None);
    env.snapshot.object.spec = request_snapshot(&spec("")).object.spec;
    assert!(env.reconcile(None));
    assert!(env.snapshot.job.is_some());
    assert_eq!(env.status().profiling_job_name.as_deref(), Some("profile-qwen"));
    let env = TestEnv::after_deployment(&spec(""));
    assert_eq!(env.status().profiling_job_name.as_deref(), Some("profile-qwen"));
}

/// The version that the patch names keeps a reconcile of an outdated request from creating anything.
#[test]
fn owner_patch_comes_before_all_other_writes() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    let mut patched = 0;
    for _ in 0..6 {
        let plan = plan(&env.snapshot);
        let is_patch = |write: &WriteOp| matches!(write, WriteOp::PatchOwner(_));
        assert!(plan.writes.iter().skip(1).all(|write| !is_patch(write)), "{:?}", plan.writes);
        patched += usize::from(plan.writes.first().is_some_and(is_patch));
        env.reconcile(None);
        if env.phase() == Phase::Profiling && env.snapshot.output.is_none() {
            env.snapshot.output =
                Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", super::FINAL)]));
            env.set_job_state(JobState::Complete);
        }
    }
    assert_eq!(
        (patched, env.phase()),
        (3, Phase::Deploying),
        "one patch each for the hash, the graph, and the emptied annotation"
    );
}

/// With hardware in the spec, one reconcile each creates the Job, creates the graph, and observes the graph.
#[test]
fn request_reaches_graph_in_three_reconciles() {
    let mut env = TestEnv::after_settling(&spec(""));
    assert_eq!((env.reconciles, env.created.last().unwrap().as_str()), (1, "Job profile-qwen"));
    env.snapshot.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", super::FINAL)]));
    env.set_job_state(JobState::Complete);
    env.reconcile(None);
    assert_eq!((env.reconciles, env.created.last().unwrap().as_str()), (2, "DynamoGraphDeployment qwen-dgd"));
    env.settle();
    assert_eq!((env.reconciles, env.phase()), (3, Phase::Deploying));
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentInProgress");
    env.graph_mut().state = Some("successful".into());
    env.settle();
    assert_eq!((env.reconciles, env.phase()), (4, Phase::Deployed));
}

#[test]
fn earlier_operators_finalizer_is_removed_on_deletion() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.snapshot.object.finalizers = vec!["nvidia.com/finalizer".into(), "kept".into()];
    env.settle();
    assert_eq!(env.snapshot.object.finalizers.len(), 2, "finalizers stay until deletion");
    env.snapshot.object.deleting = true;
    env.settle();
    assert_eq!(env.snapshot.object.finalizers, ["kept"]);
    assert_eq!(plan(&env.snapshot).writes, []);
    assert_eq!(plan(&env.snapshot).requeue, Requeue::AwaitChange);
}

#[test]
fn transient_failure_keeps_phase() {
    let timeout_failure = || {
        Some(Failure {
            object: ObjectId::new("Job", "team-a", "profile-qwen"),
            message: "timeout".into(),
            transient: true,
            conflict: false,
        })
    };
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    (0..3).for_each(|_| {
        env.reconcile(timeout_failure());
    });
    assert_eq!(env.phase(), Phase::Pending);
    assert_eq!(
        env.condition_summary("Profiling"),
        summary("False", "JobCreationFailed", "Job team-a/profile-qwen: timeout")
    );
    assert_eq!(env.event_reasons(), ["ProfilingJobFailed"]);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}
