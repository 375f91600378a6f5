//! Requests that continue after a loss: deleted pods, Jobs, outputs and labels, and retries of failed requests.

use jiff::SignedDuration;
use serde_json::json;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::names::{ACCEPTED_SPEC, GENERATED_GRAPH, RETRY};
use steersman_plan::dynamo::{JobState, ObservedAccount, ObservedBinding, ObservedJob, ObservedOwners, needs, plan};
use steersman_plan::pods::ObservedPod;
use steersman_reconcile::{Failure, ObjectId, Requeue, WriteOp};

use super::{FINAL, TestEnv, output, request_snapshot, spec, summary};

pub const RETRY_COMMAND: &str = "kubectl annotate dgdr -n team-a qwen --overwrite steersman.dev/retry=$(date +%s)";

fn fail_job(env: &mut TestEnv, reason: &str) {
    env.set_job_state(JobState::Failed("Job has reached the specified backoff limit".into()));
    env.snapshot.job.as_mut().unwrap().failure = Some(reason.into());
}

/// A request whose profiler reported a failure.
fn after_failure() -> TestEnv {
    let mut env = TestEnv::after_settling(&spec(""));
    env.snapshot.output = Some(output(&[("profiler_status", "failed"), ("profiler_error", "no such model")]));
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    env
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap()
}

fn annotate_retry(env: &mut TestEnv, value: &str) {
    env.snapshot.object.annotations.insert(RETRY.into(), value.into());
}

#[test]
fn deleted_profiling_pod_is_replaced() {
    for pods in [vec![], vec![ObservedPod { phase: "Failed".into(), deleting: true, ..ObservedPod::default() }]] {
        let mut env = TestEnv::after_settling(&spec(""));
        let first = env.snapshot.job.as_ref().unwrap().uid.clone();
        fail_job(&mut env, "BackoffLimitExceeded");
        env.snapshot.job_pods = pods;
        env.events.clear();
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling);
        assert_eq!(env.event_reasons(), ["ProfilingPodDeleted"]);
        let job = env.snapshot.job.as_ref().unwrap();
        assert_eq!(job.state, JobState::Running);
        assert_ne!(job.uid, first);
    }
}

#[test]
fn failed_pod_and_deadline_end_request() {
    for (reason, pods) in [
        ("BackoffLimitExceeded", vec![ObservedPod { phase: "Failed".into(), ..ObservedPod::default() }]),
        ("DeadlineExceeded", vec![]),
    ] {
        let mut env = TestEnv::after_settling(&spec(""));
        fail_job(&mut env, reason);
        env.snapshot.job_pods = pods;
        env.settle();
        assert_eq!(env.phase(), Phase::Failed, "{reason}");
    }
}

#[test]
fn failure_hint_follows_the_log() {
    let mut env = after_failure();
    let log = "See the profiler's log: kubectl logs -n team-a job/profile-qwen -c profiler.";
    assert!(env.condition_summary("Succeeded").2.contains(log), "{:?}", env.condition_summary("Succeeded"));
    for job in [env.snapshot.job.clone(), None] {
        env.snapshot.job = job;
        env.snapshot.job_pods.clear();
        env.settle();
        let message = env.condition_summary("Succeeded").2;
        assert!(!message.contains("kubectl logs"), "{message}");
        assert!(message.contains("The pod of the profiling Job is gone, and its log with it."), "{message}");
        assert!(message.ends_with(RETRY_COMMAND), "{message}");
    }
    assert!(needs(&env.snapshot.object, Some(&ObservedJob::default()), None).job_pods);
}

#[test]
fn missing_result_fails_after_deadline() {
    let mut env = TestEnv::after_settling(&spec(""));
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    assert!(matches!(plan(&env.snapshot).requeue, Requeue::After(_)), "no watch reports that time has passed");
    env.snapshot.now += SignedDuration::from_mins(5);
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    let message =
        "the profiling Job ended more than 5 minutes ago, and ConfigMap dgdr-output-qwen does not have its result";
    assert_eq!(env.condition_summary("Profiling"), summary("False", "ProfilingFailed", message));
    assert!(env.condition_summary("Succeeded").2.ends_with(RETRY_COMMAND));
    assert_eq!(env.event_reasons().last(), Some(&"ProfilingCheckFailed"));
    // The sidecar delivers the result. The hint stays when the status is rendered again.
    env.snapshot.job_pods = vec![ObservedPod { phase: "Succeeded".into(), ..ObservedPod::default() }];
    env.settle();
    let message = env.condition_summary("Succeeded").2;
    assert!(message.contains("kubectl logs -n team-a job/profile-qwen -c output-copier"), "{message}");
    annotate_retry(&mut env, "1");
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
}

#[test]
fn graph_without_labels_is_still_followed() {
    let mut env = TestEnv::after_deployment(&spec(""));
    assert_eq!(plan(&env.snapshot).requeue, Requeue::AwaitChange);
    env.graph_mut().labels.clear();
    env.graph_mut().state = Some("failed".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentDegraded");
    assert!(matches!(plan(&env.snapshot).requeue, Requeue::After(_)), "no watch covers the graph");
}

#[test]
fn unobserved_graph_without_labels_is_ours() {
    let mut env = TestEnv::after_profiling(&spec(""));
    let annotations = env.snapshot.object.annotations.clone();
    let status = env.snapshot.object.status.as_mut().unwrap();
    status.conditions.retain(|known| known.type_ != "DeploymentReady");
    env.snapshot.object.annotations.insert(GENERATED_GRAPH.into(), annotations[GENERATED_GRAPH].clone());
    env.graph_mut().labels.clear();
    env.settle();
    assert_eq!(env.condition_summary("DeploymentReady").1, "DeploymentInProgress");
}

#[test]
fn retry_annotation_restarts_failed_request_once() {
    let mut env = after_failure();
    env.events.clear();
    annotate_retry(&mut env, "2026-11-18");
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    assert_eq!(env.event_reasons(), ["Retrying", "Initialized", "ProfilingJobCreated"]);
    assert_eq!(env.status().last_retry.as_deref(), Some("2026-11-18"));
    assert_eq!(env.snapshot.output, None);
    assert_eq!(env.objects["Job profile-qwen"]["metadata"]["annotations"][RETRY], "2026-11-18");
    let types: Vec<String> = env.status().conditions.into_iter().map(|known| known.type_).collect();
    assert_eq!(types, ["Validation", "Profiling", "Succeeded", "SpecAccepted"]);
    // The next failure is final until the annotation gets another value.
    env.snapshot.output = Some(output(&[("profiler_status", "failed")]));
    env.set_job_state(JobState::Complete);
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    annotate_retry(&mut env, "2026-11-19");
    env.settle();
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
}

#[test]
fn retry_uses_the_changed_spec() {
    let mut env = after_failure();
    env.edit_spec(&spec("backend: vllm"));
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    let (status, reason, message) = env.condition_summary("SpecAccepted");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SpecChangeIgnored"));
    assert!(message.ends_with(RETRY_COMMAND), "{message}");
    annotate_retry(&mut env, "1");
    env.settle();
    let job = &env.objects["Job profile-qwen"]["spec"]["template"]["spec"]["containers"][0]["args"][1];
    assert!(job.as_str().unwrap().contains(r#""backend":"vllm""#), "{job}");
    assert_eq!(env.condition_summary("SpecAccepted").0, "True");
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn retry_without_change_keeps_running_job() {
    let mut env = TestEnv::after_settling(&spec(""));
    annotate_retry(&mut env, "early");
    env.settle();
    assert_eq!((env.phase(), env.status().last_retry), (Phase::Profiling, None));
    env.snapshot.object.annotations.remove(RETRY);
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
}

/// A crash after any write of the retry, before its status is written.
#[test]
fn interrupted_retry_is_completed() {
    let mut whole = after_failure();
    annotate_retry(&mut whole, "1");
    let writes = plan(&whole.snapshot).writes;
    whole.settle();
    for done in 0..=writes.len() {
        let mut env = after_failure();
        annotate_retry(&mut env, "1");
        for write in &writes[..done] {
            env.apply_write(write);
        }
        env.settle();
        assert_eq!((env.phase(), env.status().last_retry.as_deref()), (Phase::Profiling, Some("1")), "{done}");
        assert_eq!(env.snapshot.output, None, "{done}");
        assert_eq!(env.snapshot.job.as_ref().unwrap().retry.as_deref(), Some("1"), "{done}");
    }
}

#[test]
fn retry_waits_for_missing_objects_without_old_result() {
    let mut env = after_failure();
    env.snapshot.settings.profiling_cluster_role_found = false;
    annotate_retry(&mut env, "1");
    env.settle();
    assert_eq!(env.phase(), Phase::Pending);
    assert_eq!((env.snapshot.job.as_ref(), env.snapshot.output.as_ref()), (None, None));
    env.snapshot.settings.profiling_cluster_role_found = true;
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
}

#[test]
fn rejected_job_ends_the_retry() {
    let mut env = after_failure();
    annotate_retry(&mut env, "1");
    let rejected = || {
        let object = ObjectId::new("Job", "team-a", "profile-qwen");
        Some(Failure { object, message: "invalid".into(), transient: false, conflict: false })
    };
    env.reconcile(rejected());
    assert_eq!((env.phase(), env.status().last_retry.as_deref()), (Phase::Failed, Some("1")));
    assert!(!plan(&env.snapshot).resolution.restarts);
}

#[test]
fn retry_of_deleted_graph_profiles_again() {
    let mut env = TestEnv::after_deployment(&spec(""));
    env.snapshot.graph = None;
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    annotate_retry(&mut env, "1");
    env.settle();
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
    assert!(env.snapshot.graph.is_some());
}

#[test]
fn foreign_account_is_used_as_it_is() {
    let mut snapshot = request_snapshot(&spec(""));
    snapshot.account = Some(ObservedAccount { foreign: true, ..ObservedAccount::default() });
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    assert_eq!(env.created, ["RoleBinding dgdr-profiling-job-binding", "Job profile-qwen"]);
}

/// The role of a binding is immutable, and that of NVIDIA's operator is deleted with its release.
#[test]
fn binding_to_another_role_is_replaced_while_profiling() {
    let mut env = TestEnv::new(request_snapshot(&spec("")));
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    let stale = ObservedBinding { uid: "b".into(), cluster_role: "theirs".into(), ..ObservedBinding::default() };
    env.snapshot.binding = Some(stale);
    let writes = plan(&env.snapshot).writes;
    let place = |is: &dyn Fn(&WriteOp) -> bool| writes.iter().position(is).unwrap_or_else(|| panic!("{writes:?}"));
    let deleted =
        place(&|write| matches!(write, WriteOp::Delete { kind, uid, .. } if kind.kind == "RoleBinding" && uid == "b"));
    let created = place(&|write| write.object().is_some_and(|object| json!(object)["kind"] == "RoleBinding"));
    assert!(deleted < created, "{writes:?}");
    assert!(
        !writes.iter().any(|write| matches!(write, WriteOp::Delete { kind, .. } if kind.kind == "Job")),
        "{writes:?}"
    );
}

#[test]
fn foreign_binding_to_same_role_is_used_as_it_is() {
    for (role, expected) in
        [("dgdr-profiling", &["ServiceAccount dgdr-profiling-job", "Job profile-qwen"][..]), ("view", &[])]
    {
        let mut snapshot = request_snapshot(&spec(""));
        snapshot.binding =
            Some(ObservedBinding { cluster_role: role.into(), foreign: true, ..ObservedBinding::default() });
        let writes = plan(&snapshot).writes;
        assert!(!writes.iter().any(|write| matches!(write, WriteOp::Delete { .. })), "{writes:?}");
        let written: Vec<_> = writes.iter().filter_map(WriteOp::object).map(|object| json!(object)).collect();
        let names: Vec<_> = written
            .iter()
            .map(|object| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])))
            .collect();
        let binding = "RoleBinding dgdr-profiling-job-binding".to_owned();
        assert_eq!(names.contains(&binding), expected.is_empty(), "{names:?}");
        assert!(expected.iter().all(|name| names.iter().any(|known| known == name)), "{names:?}");
    }
}

#[test]
fn graph_deleted_in_ready_is_created_again() {
    let mut env = TestEnv::after_profiling(&spec(""));
    env.graph_mut().state = Some("pending".into());
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    env.edit_spec(&spec("autoApply: false"));
    env.settle();
    assert_eq!(env.phase(), Phase::Ready);
    env.snapshot.graph = None;
    env.settle();
    let text = "DGD qwen-dgd was deleted. It is created again once spec.autoApply is true.";
    assert_eq!(env.condition_summary("DeploymentReady"), summary("False", "DeploymentNotCreated", text));
    env.edit_spec(&spec("autoApply: true"));
    env.settle();
    assert_eq!(env.phase(), Phase::Deploying);
    assert!(env.snapshot.graph.is_some());
}

#[test]
fn early_retry_is_reported() {
    let mut env = TestEnv::after_deployment(&spec(""));
    annotate_retry(&mut env, "1");
    env.settle();
    let (status, reason, message) = env.condition_summary("SpecAccepted");
    assert_eq!([status.as_str(), reason.as_str()], ["True", "RetryPending"]);
    assert!(
        message.contains("steersman.dev/retry has the new value \"1\", but this request has not failed."),
        "{message}"
    );
    env.snapshot.object.annotations.remove(RETRY);
    env.settle();
    assert_eq!(env.condition_summary("SpecAccepted").1, "SpecAccepted");
}

#[test]
fn account_is_owned_by_every_request_that_shares_it() {
    let other =
        json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "name": "a", "uid": "1" });
    let mut snapshot = request_snapshot(&spec(""));
    let owners = ObservedOwners { resource_version: Some("3".into()), references: vec![other.clone()] };
    snapshot.account = Some(ObservedAccount { foreign: false, owners });
    let mut env = TestEnv::new(snapshot);
    env.settle();
    let account = &env.objects["ServiceAccount dgdr-profiling-job"]["metadata"];
    let own = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "name": "qwen", "uid": "8f3c" });
    assert_eq!((&account["ownerReferences"], &account["resourceVersion"]), (&json!([other, own]), &json!("3")));
    // Another request has taken the reference away.
    env.snapshot.account.as_mut().unwrap().owners.references.pop();
    assert!(!plan(&env.snapshot).writes.is_empty());
    env.settle();
    assert!(plan(&env.snapshot).writes.is_empty());
}

#[test]
fn only_thorough_request_gets_further_rights() {
    for (strategy, bound) in [("rapid", false), ("thorough", true)] {
        let env = TestEnv::after_settling(&spec(&format!("backend: vllm\nsearchStrategy: {strategy}")));
        assert_eq!(env.snapshot.thorough_binding.is_some(), bound, "{strategy}");
        assert_eq!(env.snapshot.binding.as_ref().unwrap().cluster_role, "dgdr-profiling");
    }
    let mut snapshot = request_snapshot(&spec("backend: vllm\nsearchStrategy: thorough"));
    snapshot.settings.thorough_cluster_role_found = false;
    let mut env = TestEnv::new(snapshot);
    env.settle();
    assert_eq!(env.phase(), Phase::Pending);
    assert!(env.condition_summary("Validation").2.contains("\"dgdr-profiling-thorough\" does not exist"));
}

#[test]
fn taken_graph_name_blocks_profiling() {
    let named =
        spec("overrides: {dgd: {apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: mine}}}");
    for (labelled, whose) in
        [(false, "was not created for this request"), (true, "an earlier request of the same name")]
    {
        let mut env = TestEnv::after_deployment(&spec(""));
        let mut graph = env.snapshot.graph.take().unwrap();
        graph.annotations.insert("steersman.dev/request-uid".into(), "earlier".into());
        if !labelled {
            graph.labels.clear();
        }
        env = TestEnv::new(request_snapshot(&spec("")));
        env.snapshot.graph = Some(graph);
        assert_eq!(needs(&env.snapshot.object, None, None).graph.as_deref(), Some("qwen-dgd"));
        env.settle();
        assert_eq!(env.phase(), Phase::Pending);
        let message = env.condition_summary("Validation").2;
        assert!(message.starts_with("DGD qwen-dgd exists and") && message.contains(whose), "{message}");
        assert_eq!(env.status().reported[0].reason, "DeploymentNameTaken");
        assert_eq!(env.event_reasons(), ["ValidationFailed"]);
        assert!(matches!(plan(&env.snapshot).requeue, Requeue::After(_)), "no watch covers the graph");
        env.edit_spec(&named);
        assert_eq!(needs(&env.snapshot.object, None, None).graph.as_deref(), Some("mine"));
        env.snapshot.graph = None;
        env.settle();
        assert_eq!(env.phase(), Phase::Profiling);
    }
}

#[test]
fn taken_graph_name_allows_manual_request() {
    let snapshot = request_snapshot(&spec("autoApply: false"));
    assert_eq!(needs(&snapshot.object, None, None).graph, None);
}

#[test]
fn stored_annotation_of_restart_is_new() {
    let mut env = after_failure();
    let before = env.snapshot.object.annotations[ACCEPTED_SPEC].clone();
    env.edit_spec(&spec("backend: sglang"));
    annotate_retry(&mut env, "1");
    env.settle();
    assert_ne!(env.snapshot.object.annotations[ACCEPTED_SPEC], before);
    let deletes = |write: &WriteOp| matches!(write, WriteOp::Delete { .. });
    assert!(!plan(&env.snapshot).writes.iter().any(deletes));
}

/// NVIDIA's operator sets no annotation with the hash, and `kubectl replace` removes it.
#[test]
fn edited_failed_request_without_hash_is_reported() {
    for inherited in [false, true] {
        let mut env = after_failure();
        env.snapshot.object.annotations.remove(ACCEPTED_SPEC);
        let status = env.snapshot.object.status.as_mut().unwrap();
        if inherited {
            status.conditions.retain(|known| known.type_ != "SpecAccepted");
            env.settle();
            assert!(env.status().conditions.iter().all(|known| known.type_ != "SpecAccepted"));
        } else {
            env.settle();
            assert_eq!(env.condition_summary("SpecAccepted").1, "SpecAccepted", "the same spec is no change");
        }
        env.edit_spec(&spec("backend: vllm"));
        env.settle();
        for _ in 0..2 {
            let (status, reason, message) = env.condition_summary("SpecAccepted");
            assert_eq!((status.as_str(), reason.as_str()), ("False", "SpecChangeIgnored"), "inherited: {inherited}");
            assert!(message.ends_with(RETRY_COMMAND), "{message}");
            // Another change of the object keeps the report.
            env.snapshot.object.annotations.insert("team".into(), "search".into());
            env.settle();
        }
        annotate_retry(&mut env, "1");
        env.settle();
        assert_eq!((env.phase(), env.condition_summary("SpecAccepted").1.as_str()), (Phase::Profiling, "SpecAccepted"));
    }
}

/// `autoApply` is not part of the hash, because it may change for longer.
#[test]
fn spec_of_failed_request_is_said_to_await_a_retry() {
    let mut env = after_failure();
    env.edit_spec(&spec("autoApply: false"));
    env.settle();
    let message = "Every field of the spec was acted on. A change has an effect once the request is retried.";
    assert_eq!(env.condition_summary("SpecAccepted"), summary("True", "SpecAccepted", message));
}

#[test]
fn only_a_new_visible_value_retries() {
    let long = "x".repeat(128);
    for (first, second, retries) in [
        ("1", "", false),
        ("1", "1", false),
        ("1", " ", true),
        (long.as_str(), &format!("{long}y"), false),
        ("\u{1f3b5}", "\u{1f3b6}", true),
    ] {
        let mut env = after_failure();
        annotate_retry(&mut env, first);
        env.settle();
        env.snapshot.output = Some(output(&[("profiler_status", "failed")]));
        env.set_job_state(JobState::Complete);
        env.settle();
        assert_eq!((env.phase(), env.status().last_retry.as_deref()), (Phase::Failed, Some(first)));
        annotate_retry(&mut env, second);
        env.settle();
        assert_eq!(env.phase() == Phase::Profiling, retries, "{first:?} {second:?}");
    }
}

/// What profiling leaves behind has no effect on the later phases.
#[test]
fn remains_of_profiling_may_be_deleted() {
    let ready = || TestEnv::after_profiling(&spec("autoApply: false"));
    let envs: [fn() -> TestEnv; 3] =
        [|| TestEnv::after_profiling(&spec("")), || TestEnv::after_deployment(&spec("")), after_failure];
    for mut env in envs.into_iter().map(|env| env()).chain([ready()]) {
        let (phase, created) = (env.phase(), env.created.clone());
        let graph = env.snapshot.graph.clone();
        env.snapshot.job_pods.clear();
        env.settle();
        env.snapshot.job = None;
        env.settle();
        env.snapshot.output = None;
        env.events.clear();
        env.settle();
        assert_eq!((env.phase(), env.event_reasons()), (phase, vec![]));
        assert_eq!((&env.created, &env.snapshot.graph), (&created, &graph));
    }
}

#[test]
fn unlabelled_job_is_polled() {
    let mut env = TestEnv::after_settling(&spec(""));
    assert_eq!(plan(&env.snapshot).requeue, Requeue::AwaitChange);
    env.snapshot.job.as_mut().unwrap().unlabelled = true;
    assert!(matches!(plan(&env.snapshot).requeue, Requeue::After(_)), "no watch covers the Job");
    env.deliver_result(FINAL);
    env.snapshot.job.as_mut().unwrap().unlabelled = true;
    assert_eq!(plan(&env.snapshot).requeue, Requeue::AwaitChange, "the Job has no effect any more");
}

/// A graph of the same request is followed and never changed: it would hide the new result.
#[test]
fn retry_waits_until_the_old_graph_is_gone() {
    let mut env = TestEnv::after_deployment(&spec(""));
    let own = env.snapshot.graph.take();
    env.settle();
    assert_eq!(env.phase(), Phase::Failed);
    // Its user has created the graph again.
    env.snapshot.graph = own;
    annotate_retry(&mut env, "1");
    env.settle();
    assert_eq!(env.phase(), Phase::Pending);
    let why =
        "DGD qwen-dgd exists and was created for this request before. Steersman does not change it. Delete it, or set";
    assert!(env.condition_summary("Validation").2.starts_with(why), "{:?}", env.condition_summary("Validation"));
    env.snapshot.graph = None;
    env.settle();
    assert_eq!(env.phase(), Phase::Profiling);
    env.deliver_result(FINAL);
    assert_eq!(env.phase(), Phase::Deploying);
}
