//! The phase machine, item by item of the document that asked for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::names::{ACCEPTED_SPEC, GENERATED_GRAPH};
use steersman_plan::dynamo::phase::succeeded;
use steersman_plan::dynamo::{JobState, plan};
use steersman_reconcile::{Failure, ObjectId, Requeue, WriteOp};

use super::{World, a_request, output, said, spec};

#[test]
fn item_2_1_a_request_walks_through_its_phases_and_is_told_of_each_once() {
    let world = World::deployed(&spec(""));
    assert_eq!(world.phases, [Phase::Profiling, Phase::Deploying, Phase::Deployed]);
    let told = ["Initialized", "ProfilingJobCreated", "SpecGenerated", "DeploymentCreated", "DeploymentReady"];
    assert_eq!(world.told(), told);
    let created = [
        "ServiceAccount dgdr-profiling-job",
        "RoleBinding dgdr-profiling-job-binding",
        "Job profile-qwen",
        "ConfigMap planner-config-1a2b",
        "DynamoGraphDeployment qwen-dgd",
    ];
    assert_eq!(world.created, created);
}

#[test]
fn item_2_1_without_auto_apply_it_stops_at_ready() {
    let world = World::profiled(&spec("autoApply: false"));
    assert_eq!(world.phases, [Phase::Profiling, Phase::Ready]);
    assert_eq!(world.seen.graph, None);
    let message = format!("Generated spec is available in annotation {GENERATED_GRAPH}");
    assert_eq!(world.says("SpecGenerated"), said("True", "SpecGenerated", &message));
    assert!(world.seen.object.annotations[GENERATED_GRAPH].contains("VllmDecodeWorker"));
    assert_eq!(world.status().dgd_name.as_deref(), Some("qwen-dgd"));
}

#[test]
fn item_2_1_auto_apply_can_be_switched_on_at_ready() {
    let mut world = World::profiled(&spec("autoApply: false"));
    world.edit(&spec("autoApply: true"));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    assert_eq!(world.seen.graph.as_ref().unwrap().name, "qwen-dgd");
    assert_eq!(world.says("SpecAccepted").0, "True");
}

#[test]
fn item_2_1_auto_apply_switched_off_while_deploying_leads_to_ready() {
    let mut world = World::profiled(&spec(""));
    assert_eq!(world.phase(), Phase::Deploying);
    world.edit(&spec("autoApply: false"));
    world.settle();
    assert_eq!(world.phase(), Phase::Ready);
    // The annotation was emptied when the graph was seen.
    let next = "set spec.autoApply to true to create DGD qwen-dgd, or create it yourself from \
                status.profilingResults.selectedConfig";
    let sum = format!("Profiling complete, spec available: {next}");
    assert_eq!(world.says("Succeeded"), said("True", "SpecGenerated", &sum));
}

#[test]
fn item_2_2_the_stored_phase_decides_what_is_done() {
    // The same cluster, with a Job that has failed: who profiles fails, who has deployed does not look.
    for (phase, want) in [
        (Phase::Profiling, Phase::Failed),
        (Phase::Ready, Phase::Deployed),
        (Phase::Failed, Phase::Failed),
        (Phase::Deployed, Phase::Deployed),
    ] {
        let mut world = World::deployed(&spec(""));
        world.seen.output = None;
        world.job(JobState::Failed("BackoffLimitExceeded".into()));
        world.seen.object.status.as_mut().unwrap().phase = Some(phase);
        assert_eq!(plan(&world.seen).resolution.phase, want, "{phase:?}");
    }
}

#[test]
fn item_2_3_initializing_is_pending_with_no_generation_observed() {
    let mut world = World::new(a_request(&spec("")));
    world.seen.hardware = ObservedHardware::awaited();
    world.seen.object.spec.hardware = None;
    assert!(world.pass(None));
    assert_eq!(world.phase(), Phase::Pending);
    assert_eq!(world.status().observed_generation, Some(1));
    assert_eq!(world.told(), ["Initialized"]);
    assert_eq!(world.notes[0].message, "DGDR initialized successfully");
    let preparing = "Discovering GPU hardware and preparing profiling job";
    assert_eq!(world.says("Profiling"), said("False", "DiscoveringHardware", preparing));
    assert_eq!(world.created, Vec::<String>::new());
    let mut known = world.seen.clone();
    known.object.status.as_mut().unwrap().observed_generation = Some(0);
    assert_eq!(plan(&known).events[0].reason, "Initialized");
}

/// Where nothing is awaited, what was said of Pending would be over before anybody read it, and hold up the Job.
#[test]
fn item_2_3_a_request_that_lacks_nothing_is_first_told_of_when_its_job_is_there() {
    let mut world = World::new(a_request(&spec("")));
    assert!(world.pass(None), "it is marked and its Job is made");
    assert_eq!(world.created.last().map(String::as_str), Some("Job profile-qwen"));
    assert_eq!(world.phase(), Phase::Profiling);
    assert_eq!(world.told(), ["Initialized", "ProfilingJobCreated"]);
    assert_eq!(world.says("Validation"), said("True", "ValidationPassed", "DGDR spec validation passed"));
}

#[test]
fn item_2_4_a_deployed_graph_that_degrades_is_deploying_until_it_serves_again() {
    let mut world = World::deployed(&spec(""));
    assert_eq!(
        world.says("DeploymentReady"),
        said("True", "DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready")
    );
    world.notes.clear();
    world.graph().state = Some("pending".into());
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    assert_eq!(world.says("DeploymentReady"), said("False", "DeploymentDegraded", "Deployment degraded to pending"));
    assert_eq!(world.told(), ["DeploymentDegraded"]);
    assert_eq!(world.notes[0].message, "DynamoGraphDeployment qwen-dgd degraded from Ready to pending");
    world.graph().state = Some("successful".into());
    world.settle();
    assert_eq!(world.phase(), Phase::Deployed);
    assert_eq!(world.told(), ["DeploymentDegraded", "DeploymentReady"]);
}

#[test]
fn item_2_4_replicas_are_followed_in_silence() {
    let mut world = World::deployed(&spec(""));
    world.notes.clear();
    (world.graph().replicas, world.graph().available) = (3, 2);
    world.settle();
    let info = world.status().deployment_info.unwrap();
    assert_eq!((info.replicas, info.available_replicas), (Some(3), Some(2)));
    assert_eq!(world.told(), Vec::<&str>::new());
}

#[test]
fn item_2_5_a_graph_that_its_user_deleted_ends_the_request() {
    for state in ["successful", "pending"] {
        let mut world = World::deployed(&spec(""));
        world.graph().state = Some(state.into());
        world.settle();
        world.notes.clear();
        world.seen.graph = None;
        world.settle();
        assert_eq!(world.phase(), Phase::Failed, "{state}");
        let text = "Deployment was deleted by user. Create a new DGDR to redeploy.";
        assert_eq!(world.says("DeploymentReady"), said("False", "DeploymentDeleted", text));
        assert_eq!(world.says("Succeeded"), said("False", "Failed", &format!("DeploymentDeleted: {text}")));
        assert_eq!(
            world.notes[0].message,
            "DGD qwen-dgd was deleted. DGDR will not recreate it. Delete this DGDR and create a new one to redeploy."
        );
        assert_eq!((world.told(), world.status().dgd_name), (vec!["DeploymentDeleted"], None));
        assert_eq!(world.status().deployment_info, None);
    }
}

#[test]
fn item_2_6_a_change_of_a_fixed_spec_is_rejected_once_and_can_be_taken_back() {
    for mut world in [World::settled(&spec("")), World::profiled(&spec("")), World::deployed(&spec(""))] {
        let (phase, generation) = (world.phase(), world.status().observed_generation);
        world.notes.clear();
        world.edit(&spec("backend: vllm"));
        world.settle();
        let text = format!(
            "Cannot modify spec in phase '{phase:?}'. DynamoGraphDeploymentRequest is immutable once profiling starts. \
             Create a new resource with a different name instead."
        );
        assert_eq!((world.told(), &world.notes[0].message), (vec!["SpecChangeRejected"], &text));
        let (status, reason, message) = world.says("SpecAccepted");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "SpecChangeRejected"));
        assert!(message.starts_with(&text), "{message}");
        assert_eq!((world.phase(), world.status().observed_generation), (phase, generation));
        world.edit(&spec(""));
        world.settle();
        assert_eq!(world.says("SpecAccepted").0, "True");
        assert_eq!(world.status().observed_generation, generation.map(|generation| generation + 2));
        assert_eq!(world.told(), ["SpecChangeRejected"]);
    }
}

#[test]
fn item_2_6_a_change_between_the_making_of_the_job_and_its_sight_comes_too_late() {
    for late in [spec("backend: vllm"), spec("searchStrategy: thorough")] {
        let mut world = World::new(a_request(&spec("")));
        while world.seen.job.is_none() {
            assert!(world.pass(None));
        }
        world.edit(&late);
        world.settle();
        assert_eq!((world.phase(), world.says("SpecAccepted").1.as_str()), (Phase::Profiling, "SpecChangeRejected"));
        world.edit(&spec(""));
        world.settle();
        assert_eq!((world.phase(), world.says("SpecAccepted").0.as_str()), (Phase::Profiling, "True"));
    }
}

#[test]
fn item_2_6_what_runs_goes_on_while_a_change_stands_rejected() {
    let mut world = World::deployed(&spec(""));
    world.edit(&spec("backend: vllm\nautoApply: false"));
    world.graph().state = Some("pending".into());
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
    world.graph().state = Some("successful".into());
    world.settle();
    assert_eq!(world.phase(), Phase::Deployed);
}

#[test]
fn item_2_6_a_graph_of_a_changed_spec_waits_at_ready_until_the_change_is_taken_back() {
    let mut world = World::settled(&spec(""));
    world.edit(&spec("backend: vllm"));
    world.deliver(super::FINAL);
    assert_eq!((world.phase(), world.seen.graph.is_none()), (Phase::Ready, true));
    world.edit(&spec(""));
    world.settle();
    assert_eq!(world.phase(), Phase::Deploying);
}

#[test]
fn item_2_6_the_runtime_version_can_be_set_until_the_graph_is_made() {
    for (world, want) in [
        (World::settled(&spec("autoApply: false")), "True"),
        (World::profiled(&spec("autoApply: false")), "True"),
        (World::settled(&spec("")), "False"),
        (World::deployed(&spec("")), "False"),
    ] {
        let mut world = world;
        let auto = world.seen.object.spec.auto_apply;
        world.edit(&spec("runtimeVersionOverride: 1.4.1"));
        world.seen.object.spec.auto_apply = auto;
        world.settle();
        assert_eq!(world.says("SpecAccepted").0, want, "{:?}", world.phases);
    }
}

#[test]
fn item_2_6_a_request_from_an_earlier_operator_is_taken_as_it_stands() {
    let mut world = World::deployed(&spec(""));
    world.seen.object.annotations.remove(ACCEPTED_SPEC);
    world.seen.object.generation = Some(7);
    world.notes.clear();
    world.settle();
    assert!(world.seen.object.annotations.contains_key(ACCEPTED_SPEC));
    assert_eq!((world.phase(), world.told()), (Phase::Deployed, vec![]));
}

#[test]
fn item_2_7_a_transition_moves_the_time_of_its_conditions_and_nothing_else_does() {
    let mut world = World::deployed(&spec(""));
    let Condition { last_transition_time: since, .. } = world.condition("Succeeded");
    (world.graph().replicas, world.seen.object.generation) = (9, Some(9));
    world.settle();
    assert_eq!(world.condition("Succeeded").last_transition_time, since);
    assert_eq!(world.condition("Succeeded").observed_generation, Some(9));
    world.graph().state = None;
    world.settle();
    assert!(world.condition("Succeeded").last_transition_time > since);
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
    assert_eq!(World::profiled(&spec("autoApply: false")).says("Succeeded").1, "SpecGenerated");
    assert_eq!(World::deployed(&spec("")).says("Succeeded"), said("True", "Deployed", "Deployment is healthy"));
}

#[test]
fn item_2_9_the_sub_phase_is_set_relayed_and_cleared() {
    let mut world = World::settled(&spec(""));
    assert_eq!(world.status().profiling_phase, Some(ProfilingPhase::Initializing));
    world.pods("Running");
    world.settle();
    assert_eq!(world.says("Profiling"), said("False", "ProfilingRunning", "Profiling is in progress"));
    for (word, phase, reason) in [
        ("SweepingPrefill", ProfilingPhase::SweepingPrefill, "SweepingPrefill"),
        ("SweepingDecode", ProfilingPhase::SweepingDecode, "SweepingDecode"),
        ("SelectingConfig", ProfilingPhase::SelectingConfig, "SelectingConfig"),
        ("BuildingCurves", ProfilingPhase::BuildingCurves, "BuildingCurves"),
        ("GeneratingDGD", ProfilingPhase::GeneratingDgd, "GeneratingDGD"),
        ("Done", ProfilingPhase::Done, "Completed"),
    ] {
        world.seen.output = Some(output(&[("phase", word), ("message", "Candidate 1/4")]));
        world.settle();
        assert_eq!(world.status().profiling_phase, Some(phase));
        assert_eq!(world.says("Profiling"), said("False", reason, "Candidate 1/4"));
    }
    world.deliver(super::FINAL);
    assert_eq!(world.status().profiling_phase, None);
    let completed = said("True", "ProfilingCompleted", "Profiling job completed successfully");
    assert_eq!(world.says("Profiling"), completed);
}

#[test]
fn item_2_9_news_within_one_sub_phase_are_shown_and_words_nobody_knows_are_not() {
    let mut world = World::settled(&spec(""));
    for (word, message, reason) in [
        ("SweepingDecode", "1/2", "SweepingDecode"),
        ("SweepingDecode", "2/2", "SweepingDecode"),
        ("Dancing", "3", "SweepingDecode"),
    ] {
        world.seen.output = Some(output(&[("phase", word), ("message", message)]));
        world.settle();
        assert_eq!(world.says("Profiling"), said("False", reason, message));
        assert_eq!(world.status().profiling_phase, Some(ProfilingPhase::SweepingDecode));
    }
}

#[test]
fn item_2_10_the_job_is_named_in_the_status_once_it_is_there() {
    let mut world = World::new(a_request(&spec("")));
    world.seen.hardware = ObservedHardware::awaited();
    world.seen.object.spec.hardware = None;
    assert!(world.pass(None));
    assert_eq!(world.status().profiling_job_name, None);
    world.seen.object.spec = a_request(&spec("")).object.spec;
    assert!(world.pass(None));
    assert!(world.seen.job.is_some());
    assert_eq!(world.status().profiling_job_name.as_deref(), Some("profile-qwen"));
    let world = World::deployed(&spec(""));
    assert_eq!(world.status().profiling_job_name.as_deref(), Some("profile-qwen"));
}

/// The version that the patch names keeps a reconcile of an outdated request from creating anything.
#[test]
fn owner_patch_comes_before_all_other_writes() {
    let mut world = World::new(a_request(&spec("")));
    let mut patched = 0;
    for _ in 0..6 {
        let plan = plan(&world.seen);
        let is_patch = |write: &WriteOp| matches!(write, WriteOp::PatchOwner(_));
        assert!(plan.writes.iter().skip(1).all(|write| !is_patch(write)), "{:?}", plan.writes);
        patched += usize::from(plan.writes.first().is_some_and(is_patch));
        world.pass(None);
        if world.phase() == Phase::Profiling && world.seen.output.is_none() {
            world.seen.output =
                Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", super::FINAL)]));
            world.job(JobState::Complete);
        }
    }
    assert_eq!((patched, world.phase()), (3, Phase::Deploying), "the mark, the graph, and that the graph was seen");
}

/// With hardware given: the Job; once it has delivered, the graph; and once the graph is there, that it is followed.
#[test]
fn request_reaches_graph_in_three_reconciles() {
    let mut world = World::settled(&spec(""));
    assert_eq!((world.reconciles, world.created.last().unwrap().as_str()), (1, "Job profile-qwen"));
    world.seen.output =
        Some(output(&[("phase", "Done"), ("profiler_status", "success"), ("final_config.yaml", super::FINAL)]));
    world.job(JobState::Complete);
    world.pass(None);
    assert_eq!((world.reconciles, world.created.last().unwrap().as_str()), (2, "DynamoGraphDeployment qwen-dgd"));
    world.settle();
    assert_eq!((world.reconciles, world.phase()), (3, Phase::Deploying));
    assert_eq!(world.says("DeploymentReady").1, "DeploymentInProgress");
    world.graph().state = Some("successful".into());
    world.settle();
    assert_eq!((world.reconciles, world.phase()), (4, Phase::Deployed));
}

#[test]
fn the_finalizer_of_an_earlier_operator_goes_with_the_request_and_others_stay() {
    let mut world = World::deployed(&spec(""));
    world.seen.object.finalizers = vec!["nvidia.com/finalizer".into(), "kept".into()];
    world.settle();
    assert_eq!(world.seen.object.finalizers.len(), 2, "not before it is deleted");
    world.seen.object.deleting = true;
    world.settle();
    assert_eq!(world.seen.object.finalizers, ["kept"]);
    assert_eq!(plan(&world.seen).writes, []);
    assert_eq!(plan(&world.seen).requeue, Requeue::AwaitChange);
}

#[test]
fn a_call_that_fails_for_a_while_moves_no_phase() {
    let flaky = || {
        Some(Failure {
            object: ObjectId::new("Job", "team-a", "profile-qwen"),
            message: "timeout".into(),
            transient: true,
            conflict: false,
        })
    };
    let mut world = World::new(a_request(&spec("")));
    (0..3).for_each(|_| {
        world.pass(flaky());
    });
    assert_eq!(world.phase(), Phase::Pending);
    assert_eq!(world.says("Profiling"), said("False", "JobCreationFailed", "Job team-a/profile-qwen: timeout"));
    assert_eq!(world.told(), ["ProfilingJobFailed"]);
    world.settle();
    assert_eq!(world.phase(), Phase::Profiling);
}
