//! The relay next to a simulated profiler, on a real API server and with exactly the rights that it declares. The plan reads
//! the output that the relay writes.

mod crash;
pub mod env;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;
use steersman::relay::decide::Ending;
use steersman::relay::files::LIMIT;
use steersman::relay::follow::{RelayTiming, follow};
use steersman::relay::rules;
use steersman_api::Family;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::phase::{Creation, PROFILING};
use steersman_plan::dynamo::{JobState, Snapshot, graph, names, plan, profile_job};
use steersman_reconcile::WriteOp;
use steersman_testkit::fake_profiler::SAMPLE_RESULT;
use steersman_testkit::{Flavour, exclusive_cluster, shared_cluster};
use tokio_util::sync::CancellationToken;

use crate::command::{output_of, steersman};
use crate::schemas;
use env::{ProfilingEnv, Sidecar, UID, fast_timing};

const SUCCESS: &str = "status: success
timestamp: '2026-11-16T06:10:00Z'
message: Profiler completed successfully
outputs:
  final_config: final_config.yaml
phase: Done
";

/// Phase, and reason and message of the profiling condition, that the plan sets for this snapshot.
fn profiling_condition(snapshot: &Snapshot) -> (Phase, String, String) {
    let step = plan(snapshot).resolution;
    let condition = step.statements.iter().find(|statement| statement.type_ == PROFILING).unwrap();
    (step.phase, condition.reason.clone(), condition.message.clone())
}

async fn exit_code(sidecar: &mut Sidecar) -> Option<i32> {
    let code = sidecar.exit_code().await;
    sidecar.assert_log_is_json_without_token();
    code
}

#[tokio::test]
async fn sidecar_relays_progress_and_result() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay").await;
    let mut sidecar = env.start_sidecar().await;
    sidecar.wait_for_log("following the profiler").await;
    env.set_profiler_running().await;
    env.write_status("status: running\nmessage: Profiler job started\nphase: Initializing\n");
    env.wait_for_output("phase", "Initializing").await;
    let output = env.output().await;
    assert_eq!(*output.labels(), names::labels("qwen", env.namespace.name()));
    let owner = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "name": "qwen",
        "uid": UID, "controller": true, "blockOwnerDeletion": true });
    assert_eq!(json!(output.metadata.owner_references), json!([owner]));
    assert_eq!(output.data.unwrap().into_keys().collect::<Vec<_>>(), ["message", "phase"]);

    env.write_by_rename(
        "profiler_status.yaml",
        "{status: running, phase: SweepingPrefill, message: 'Candidate \"1\"/2'}",
    );
    env.wait_for_output("message", "Candidate \"1\"/2").await;
    let running = env.snapshot(JobState::Running, json!({})).await;
    assert_eq!(profiling_condition(&running), (Phase::Profiling, "SweepingPrefill".into(), "Candidate \"1\"/2".into()));
    env.write_status("status: running\nphase: 'Sweep");
    env.write_status("{status: running, phase: SweepingPrefill, message: 2 of 2}");
    env.wait_for_output("message", "2 of 2").await;

    // An early delivery is checked again when the profiler has ended.
    env.write("final_config.yaml", &SAMPLE_RESULT[..100]);
    env.write_status(SUCCESS);
    env.wait_for_output("profiler_status", "success").await;
    env.write("final_config.yaml", SAMPLE_RESULT);
    env.set_profiler_ended(0, "Completed").await;
    assert_eq!(exit_code(&mut sidecar).await, Some(0), "{}", sidecar.stderr());
    let output = env.output().await;
    let wanted = json!({ "phase": "Done", "message": "Profiler completed successfully", "profiler_status": "success",
        "profiler_status.yaml": SUCCESS, "final_config.yaml": SAMPLE_RESULT });
    assert_eq!(json!(output.data), wanted);

    let plan = plan(&env.snapshot(JobState::Complete, json!({})).await);
    let Some(WriteOp::PatchOwner(patch)) = plan.writes.first() else {
        panic!("the first write stores the graph on the request")
    };
    assert!(patch["metadata"]["annotations"][names::GENERATED_GRAPH].is_string(), "{patch}");
    let step = plan.resolution;
    assert!(matches!(step.creation, Creation::Graph(_)));
    assert_eq!((step.phase, step.dgd_name.as_deref()), (Phase::Deploying, Some("qwen-dgd")));

    let mut second = env.start_sidecar().await;
    assert_eq!(exit_code(&mut second).await, Some(0));
    assert_eq!(env.output().await.metadata.resource_version, output.metadata.resource_version, "nothing has changed");
    let relayed = |sidecar: &Sidecar| sidecar.log().matches("\"msg\":\"wrote the ConfigMap\"").count();
    assert_eq!((relayed(&sidecar) >= 5, relayed(&second)), (true, 0), "{}{}", sidecar.log(), second.log());
}

#[tokio::test]
async fn failed_profiler_is_relayed_by_successful_sidecar() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-failed").await;
    env.write_status(
        "status: failed\nphase: SweepingDecode\nmessage: 'Profiler failed with exception: X'\nerror: no GPU at C:\\\n",
    );
    env.set_profiler_ended(1, "Error").await;
    let mut sidecar = env.start_sidecar().await;
    assert_eq!(exit_code(&mut sidecar).await, Some(0), "{}", sidecar.stderr());
    let wanted = (Phase::Failed, "SweepingDecodeFailed".into(), "profiling failed: no GPU at C:\\".into());
    for state in [JobState::Complete, JobState::Failed("Job has reached the specified backoff limit".into())] {
        assert_eq!(profiling_condition(&env.snapshot(state, json!({})).await), wanted);
    }
}

#[tokio::test]
async fn killed_profiler_fails_the_sidecar() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-killed").await;
    env.write_status("{status: running, phase: BuildingCurves, message: m}");
    env.set_profiler_ended(137, "OOMKilled").await;
    let mut sidecar = env.start_sidecar().await;
    assert_eq!(exit_code(&mut sidecar).await, Some(1));
    let (phase, reason, message) = profiling_condition(&env.snapshot(JobState::Failed("x".into()), json!({})).await);
    assert_eq!((phase, reason.as_str()), (Phase::Failed, "BuildingCurvesFailed"));
    assert_eq!(
        message,
        "profiling failed: the profiler ended with exit code 137 (OOMKilled) without a result: profiler_status.yaml still has status \"running\" in BuildingCurves; see its log"
    );
}

#[tokio::test]
async fn terminated_sidecar_writes_the_latest_status() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-term").await;
    env.set_profiler_running().await;
    env.write_status("{status: running, phase: Initializing, message: m}");
    for (status, code, wanted) in [
        (
            "{status: running, phase: SweepingDecode, message: m}",
            1,
            json!({ "phase": "SweepingDecode", "message": "m" }),
        ),
        (
            "{status: success}",
            0,
            json!({ "profiler_status": "success", "profiler_status.yaml": "{status: success}",
                "final_config.yaml": SAMPLE_RESULT }),
        ),
    ] {
        let mut sidecar = env.start_sidecar().await;
        env.wait_for_output("phase", "Initializing").await;
        env.write("final_config.yaml", SAMPLE_RESULT);
        env.write_status(status);
        sidecar.signal(Signal::TERM);
        assert_eq!(exit_code(&mut sidecar).await, Some(code), "{}", sidecar.stderr());
        assert_eq!(json!(env.output().await.data), wanted);
        env.write_status("{status: running, phase: Initializing, message: m}");
    }
}

#[tokio::test]
async fn unreachable_api_server_fails_the_relay() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-mute").await;
    env.set_profiler_running().await;
    let unreachable = steersman_testkit::fault_injection::FaultInjector::fail_call(
        1,
        steersman_testkit::fault_injection::CallFault::NotSent,
    )
    .include_reads()
    .then_unreachable();
    let server = env.server(unreachable.wrap(&env.account().await));
    let stop = CancellationToken::new();
    stop.cancel();
    // The pod cannot be read either, so the status file may be of an earlier profiler and no verdict is lost.
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::NoVerdict);

    let unreachable_later = steersman_testkit::fault_injection::FaultInjector::fail_call(
        2,
        steersman_testkit::fault_injection::CallFault::NotSent,
    )
    .include_reads()
    .then_unreachable();
    let server = env.server(unreachable_later.wrap(&env.account().await));
    env.write_status("{status: failed, error: e}");
    let timing = RelayTiming { flush: std::time::Duration::from_millis(500), ..fast_timing() };
    let error = follow(&server, &env.target(), &timing, &stop).await.unwrap_err().to_string();
    assert!(error.starts_with("stopped before ConfigMap dgdr-output-qwen could be written: "), "{error}");
}

#[tokio::test]
async fn earlier_result_names_are_delivered() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-earlier").await;
    env.write_status("status: success\n");
    env.write("config_with_planner.yaml", SAMPLE_RESULT);
    env.write("mocker_config_with_planner.yaml", SAMPLE_RESULT.replace("vllm-agg", "mocker-disagg"));
    env.set_profiler_ended(0, "Completed").await;
    let server = env.server(env.account().await);
    let stop = CancellationToken::new();
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::Verdict);
    let data = env.output().await.data.unwrap();
    for (simulated, name) in [(false, "vllm-agg"), (true, "mocker-disagg")] {
        let read = graph::read(&data, simulated).unwrap();
        assert_eq!(read.graph["metadata"]["name"], name);
        let features = json!({ "mocker": { "enabled": simulated } });
        let step = plan(&env.snapshot(JobState::Complete, features).await).resolution;
        assert!(matches!(step.creation, Creation::Graph(_)), "{simulated}");
    }
}

#[tokio::test]
async fn oversized_result_fails_the_request() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-large").await;
    let server = env.server(env.account().await);
    env.write_status("status: success");
    env.set_profiler_ended(0, "Completed").await;
    let stop = CancellationToken::new();
    let room = LIMIT - "success".len();
    env.write("final_config.yaml", "x".repeat(room));
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::Verdict);
    assert_eq!(env.output().await.data.unwrap()["final_config.yaml"].len(), room);

    env.write("final_config.yaml", "x".repeat(room + 1));
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::Verdict);
    let (phase, _, message) = profiling_condition(&env.snapshot(JobState::Complete, json!({})).await);
    let cause = "more than the 1048576 that a ConfigMap can hold; leave out spec.features.planner, or shorten";
    assert!(phase == Phase::Failed && message.contains(cause), "{message}");
}

#[tokio::test]
async fn unreadable_pod_makes_status_file_authoritative() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::with_rights(cluster, "relay-hidden", |resource| resource == "configmaps").await;
    env.write_status("{status: running, phase: SweepingPrefill, message: m}");
    let server = env.server(env.account().await);
    let (place, timing, stop) = (env.target(), fast_timing(), CancellationToken::new());
    let (ending, ()) = tokio::join!(follow(&server, &place, &timing, &stop), async {
        env.wait_for_output("phase", "SweepingPrefill").await;
        env.write_status("{status: failed, error: e}");
    });
    assert_eq!(ending.unwrap(), Ending::Verdict);
    assert_eq!(env.output().await.data.unwrap()["profiler_error"], "e");
}

#[tokio::test]
async fn missing_right_is_awaited_then_reported() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::with_rights(cluster, "relay-denied", |resource| resource != "configmaps").await;
    env.write("final_config.yaml", SAMPLE_RESULT);
    env.write_status(SUCCESS);
    env.set_profiler_ended(0, "Completed").await;
    let server = env.server(env.account().await);
    let timing = RelayTiming { rights: std::time::Duration::from_millis(300), ..fast_timing() };
    let error = follow(&server, &env.target(), &timing, &CancellationToken::new()).await.unwrap_err().to_string();
    let account = format!("User \"system:serviceaccount:{}:dgdr-profiling-job\" cannot get", env.namespace.name());
    for part in [
        "gave up after 0 min without permission to write ConfigMap dgdr-output-qwen: the API server answered 403: ",
        &account,
        "; in this namespace, bind the ServiceAccount of the Job to ClusterRole steersman-profiling-job, which grants get, create, update on configmaps",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }

    let mut sidecar = env.start_sidecar().await;
    sidecar.wait_for_log("cannot write the ConfigMap").await;
    env.grant_all_rights().await;
    assert_eq!(exit_code(&mut sidecar).await, Some(0), "{}", sidecar.stderr());
    assert_eq!(env.output().await.data.unwrap()["profiler_status"], "success");
}

#[tokio::test]
async fn job_retry_replaces_the_first_verdict() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-retry").await;
    let server = env.server(env.account().await);
    let stop = CancellationToken::new();
    stop.cancel();
    env.set_profiler_running().await;
    env.write_status("{status: failed, phase: Initializing, error: e}");
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::Verdict);
    // Keys of other programs are removed, because they are no result of this profiler.
    let more = Patch::Merge(json!({ "data": { "config_with_planner.yaml": "old" }, "binaryData": { "b": "AA==" },
        "metadata": { "labels": { "team": "a" } } }));
    env.outputs().patch("dgdr-output-qwen", &PatchParams::default(), &more).await.unwrap();
    env.write_status("{status: running, phase: Initializing, message: m}");
    assert_eq!(follow(&server, &env.target(), &fast_timing(), &stop).await.unwrap(), Ending::NoVerdict);
    let output = env.output().await;
    assert_eq!(output.labels()["team"], "a");
    assert_eq!((json!(output.data), output.binary_data), (json!({ "phase": "Initializing", "message": "m" }), None));
}

#[tokio::test]
async fn stale_success_on_claim_is_ignored() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::with_claim(cluster, "relay-claim").await;
    env.write("final_config.yaml", SAMPLE_RESULT);
    env.write_status(&SUCCESS.replace("06:10:00", "05:10:00"));
    let server = env.server(env.account().await);
    let (place, timing, stop) = (env.target(), fast_timing(), CancellationToken::new());
    env.set_profiler_running().await;
    let (ending, ()) = tokio::join!(follow(&server, &place, &timing, &stop), async {
        env.set_profiler_ended(1, "Error").await;
    });
    assert_eq!(ending.unwrap(), Ending::NoVerdict);
    let (phase, _, message) = profiling_condition(&env.snapshot(JobState::Failed("x".into()), json!({})).await);
    let cause = "exit code 1 (Error) without a result: profiler_status.yaml in";
    assert!(phase == Phase::Failed && message.contains(cause), "{message}");
    assert!(message.ends_with("was written by an earlier profiler; see its log"), "{message}");

    env.write_status(SUCCESS);
    assert_eq!(
        follow(&server, &place, &timing, &stop).await.unwrap(),
        Ending::Verdict,
        "a verdict of this profiler counts"
    );
    assert_eq!(env.output().await.data.unwrap()["final_config.yaml"], SAMPLE_RESULT);
}

#[tokio::test]
async fn recreated_request_takes_over_the_output() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let admin = cluster.admin().await.unwrap();
    let served = schemas::api_resource(Family::Dgdr, "v1beta1");
    schemas::install_crd(&admin, &schemas::single_version_crd(Family::Dgdr, "v1beta1"), &served).await;
    let env = ProfilingEnv::new(cluster, "relay-two").await;
    env.write_status("{status: failed, error: mine}");
    env.set_profiler_ended(1, "Error").await;
    let requests: Api<DynamicObject> = Api::namespaced_with(admin.clone(), env.namespace.name(), &served);
    let request: DynamicObject =
        steersman_testkit::object(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(),
        "metadata": { "name": "qwen" }, "spec": { "model": "m" } }));
    let live = requests.create(&PostParams::default(), &request).await.unwrap().uid().unwrap();

    let server = env.server(env.account().await);
    let (timing, stop) = (fast_timing(), CancellationToken::new());
    let mut place = env.target();
    assert_eq!(follow(&server, &place, &timing, &stop).await.unwrap(), Ending::Verdict);
    place.request.uid = live.clone();
    assert_eq!(
        follow(&server, &place, &timing, &stop).await.unwrap(),
        Ending::Verdict,
        "the existing request takes over the output"
    );
    let adopted = env.output().await;
    assert_eq!(adopted.owner_references()[0].uid, live);

    let error = follow(&server, &env.target(), &timing, &stop).await.unwrap_err().to_string();
    assert!(error.contains("dgdr-output-qwen belongs to another request of the same name; the request of this profiler no longer exists"), "{error}");
    assert_eq!(env.output().await.metadata.resource_version, adopted.metadata.resource_version);
    schemas::uninstall_crd(&admin, Family::Dgdr).await;
}

#[tokio::test]
async fn permanent_refusal_ends_the_relay() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let env = ProfilingEnv::new(cluster, "relay-fixed").await;
    let immutable = steersman_testkit::object(json!({ "metadata": { "name": "dgdr-output-qwen" }, "immutable": true }));
    env.outputs().create(&PostParams::default(), &immutable).await.unwrap();
    env.write_status("{status: failed, error: e}");
    env.set_profiler_ended(1, "Error").await;
    let mut sidecar = env.start_sidecar().await;
    assert_eq!(exit_code(&mut sidecar).await, Some(1));
    let stderr = sidecar.stderr();
    assert!(
        stderr.starts_with("steersman: cannot write ConfigMap dgdr-output-qwen: the API server answered 422: "),
        "{stderr}"
    );
}

/// The role that NVIDIA's operator ships for profiling Jobs, and the right on finalizers: without it clusters with the admission
/// plugin OwnerReferencesPermissionEnforcement refuse the output.
#[test]
fn relay_needs_only_rights_of_profiling_jobs() {
    let shipped: [(&str, &[&str]); 4] = [
        ("configmaps", &["create", "get", "update", "patch", "delete"]),
        ("dynamographdeploymentrequests", &["get"]),
        ("dynamographdeploymentrequests/finalizers", &["update"]),
        ("pods", &["list", "get", "create", "delete"]),
    ];
    for rule in rules() {
        let (_, verbs) = shipped.iter().find(|(resource, _)| *resource == rule.resource).unwrap();
        assert!(rule.verbs.iter().all(|verb| verbs.contains(verb)), "{rule:?}");
    }
    assert_eq!(
        profile_job::reference("qwen", "8f3c")["blockOwnerDeletion"],
        true,
        "else the right on finalizers is not needed"
    );
}

#[test]
fn relay_lists_missing_arguments() {
    let output = output_of(&mut steersman(&["relay"]));
    assert_eq!(output.code, Some(2));
    for flag in ["--name", "--namespace", "--uid", "--container", "--directory", "--pod"] {
        assert!(output.stderr.contains(flag), "{}", output.stderr);
    }
}
