//! The relay beside a played profiler, on a real API server and with no more rights than it asks for: what it writes is what
//! the plan reads.

mod crash;
pub mod scene;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;
use steersman::relay::decide::Ending;
use steersman::relay::files::LIMIT;
use steersman::relay::follow::{Pace, follow};
use steersman::relay::rules;
use steersman_api::Family;
use steersman_api::dynamo::v1beta1::Phase;
use steersman_plan::dynamo::phase::{Act, PROFILING};
use steersman_plan::dynamo::{JobState, Snapshot, graph, names, plan, profile_job};
use steersman_reconcile::WriteOp;
use steersman_testkit::profiler::RESULT;
use steersman_testkit::{Flavour, shared, turn};
use tokio_util::sync::CancellationToken;

use crate::command::{output_of, steersman};
use crate::schemas;
use scene::{Scene, Sidecar, UID, quick};

const SUCCESS: &str = "status: success
timestamp: '2026-11-16T06:10:00Z'
message: Profiler completed successfully
outputs:
  final_config: final_config.yaml
phase: Done
";

/// What the request's condition on profiling says after the next pass.
fn told(seen: &Snapshot) -> (Phase, String, String) {
    let step = plan(seen).resolution;
    let said = step.statements.iter().find(|statement| statement.type_ == PROFILING).unwrap();
    (step.phase, said.reason.clone(), said.message.clone())
}

async fn ended(sidecar: &mut Sidecar) -> Option<i32> {
    let code = sidecar.exit_code().await;
    sidecar.assert_log_is_fit_for_all();
    code
}

#[tokio::test]
async fn the_sidecar_of_a_job_tells_the_whole_way_of_its_profiler() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay").await;
    let mut sidecar = scene.start().await;
    sidecar.until_said("following the profiler").await;
    scene.runs().await;
    scene.status("status: running\nmessage: Profiler job started\nphase: Initializing\n");
    scene.until("phase", "Initializing").await;
    let output = scene.output().await;
    assert_eq!(*output.labels(), names::labels("qwen", scene.namespace.name()));
    let owner = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "name": "qwen",
        "uid": UID, "controller": true, "blockOwnerDeletion": true });
    assert_eq!(json!(output.metadata.owner_references), json!([owner]));
    assert_eq!(output.data.unwrap().into_keys().collect::<Vec<_>>(), ["message", "phase"]);

    scene.write_by_rename(
        "profiler_status.yaml",
        "{status: running, phase: SweepingPrefill, message: 'Candidate \"1\"/2'}",
    );
    scene.until("message", "Candidate \"1\"/2").await;
    let running = scene.seen(JobState::Running, json!({})).await;
    assert_eq!(told(&running), (Phase::Profiling, "SweepingPrefill".into(), "Candidate \"1\"/2".into()));
    scene.status("status: running\nphase: 'Sweep");
    scene.status("{status: running, phase: SweepingPrefill, message: 2 of 2}");
    scene.until("message", "2 of 2").await;

    // What is delivered early is looked at again in the end.
    scene.write("final_config.yaml", &RESULT[..100]);
    scene.status(SUCCESS);
    scene.until("profiler_status", "success").await;
    scene.write("final_config.yaml", RESULT);
    scene.ends(0, "Completed").await;
    assert_eq!(ended(&mut sidecar).await, Some(0), "{}", sidecar.complaint());
    let output = scene.output().await;
    let wanted = json!({ "phase": "Done", "message": "Profiler completed successfully", "profiler_status": "success",
        "profiler_status.yaml": SUCCESS, "final_config.yaml": RESULT });
    assert_eq!(json!(output.data), wanted);

    let plan = plan(&scene.seen(JobState::Complete, json!({})).await);
    let Some(WriteOp::PatchOwner(patch)) = plan.writes.first() else {
        panic!("the graph is kept on the request first")
    };
    assert!(patch["metadata"]["annotations"][names::GENERATED_GRAPH].is_string(), "{patch}");
    let step = plan.resolution;
    assert!(matches!(step.act, Act::Graph(_)));
    assert_eq!((step.phase, step.dgd_name.as_deref()), (Phase::Deploying, Some("qwen-dgd")));

    let mut again = scene.start().await;
    assert_eq!(ended(&mut again).await, Some(0));
    assert_eq!(scene.output().await.metadata.resource_version, output.metadata.resource_version, "nothing is new");
    let relayed = |sidecar: &Sidecar| sidecar.log().matches("\"msg\":\"relayed\"").count();
    assert_eq!((relayed(&sidecar) >= 5, relayed(&again)), (true, 0), "{}{}", sidecar.log(), again.log());
}

#[tokio::test]
async fn a_verdict_of_failure_is_no_failure_of_the_sidecar() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-failed").await;
    scene.status(
        "status: failed\nphase: SweepingDecode\nmessage: 'Profiler failed with exception: X'\nerror: no GPU at C:\\\n",
    );
    scene.ends(1, "Error").await;
    let mut sidecar = scene.start().await;
    assert_eq!(ended(&mut sidecar).await, Some(0), "{}", sidecar.complaint());
    let wanted = (Phase::Failed, "SweepingDecodeFailed".into(), "profiling failed: no GPU at C:\\".into());
    for state in [JobState::Complete, JobState::Failed("Job has reached the specified backoff limit".into())] {
        assert_eq!(told(&scene.seen(state, json!({})).await), wanted);
    }
}

#[tokio::test]
async fn a_profiler_that_was_killed_is_told_of_and_the_sidecar_fails_with_it() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-killed").await;
    scene.status("{status: running, phase: BuildingCurves, message: m}");
    scene.ends(137, "OOMKilled").await;
    let mut sidecar = scene.start().await;
    assert_eq!(ended(&mut sidecar).await, Some(1));
    let (phase, reason, message) = told(&scene.seen(JobState::Failed("x".into()), json!({})).await);
    assert_eq!((phase, reason.as_str()), (Phase::Failed, "BuildingCurvesFailed"));
    assert_eq!(
        message,
        "profiling failed: the profiler ended with exit code 137 (OOMKilled) without a verdict: profiler_status.yaml still \
         says \"running\" in BuildingCurves; see its log"
    );
}

#[tokio::test]
async fn a_sidecar_that_is_told_to_stop_writes_what_is_there_first() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-term").await;
    scene.runs().await;
    scene.status("{status: running, phase: Initializing, message: m}");
    for (status, code, wanted) in [
        (
            "{status: running, phase: SweepingDecode, message: m}",
            1,
            json!({ "phase": "SweepingDecode", "message": "m" }),
        ),
        (
            "{status: success}",
            0,
            json!({ "profiler_status": "success", "profiler_status.yaml": "{status: success}", "final_config.yaml": RESULT }),
        ),
    ] {
        let mut sidecar = scene.start().await;
        scene.until("phase", "Initializing").await;
        scene.write("final_config.yaml", RESULT);
        scene.status(status);
        sidecar.signal(Signal::TERM);
        assert_eq!(ended(&mut sidecar).await, Some(code), "{}", sidecar.complaint());
        assert_eq!(json!(scene.output().await.data), wanted);
        scene.status("{status: running, phase: Initializing, message: m}");
    }
}

#[tokio::test]
async fn without_an_api_server_a_result_is_tried_until_the_end_and_then_missed_aloud() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-mute").await;
    scene.runs().await;
    let gone = steersman_testkit::cut::Cutter::at(1, steersman_testkit::cut::Cut::NotSent).with_reads().then_gone();
    let server = scene.server(gone.around(&scene.account().await));
    let stop = CancellationToken::new();
    stop.cancel();
    // The pod cannot be read either: what is there may be of anybody, so there is nothing to be missed.
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::NoVerdict);

    let late = steersman_testkit::cut::Cutter::at(2, steersman_testkit::cut::Cut::NotSent).with_reads().then_gone();
    let server = scene.server(late.around(&scene.account().await));
    scene.status("{status: failed, error: e}");
    let pace = Pace { flush: std::time::Duration::from_millis(500), ..quick() };
    let missed = follow(&server, &scene.place(), &pace, &stop).await.unwrap_err().to_string();
    assert!(missed.starts_with("told to stop before ConfigMap dgdr-output-qwen could be written: "), "{missed}");
}

#[tokio::test]
async fn the_earlier_names_of_results_are_delivered_and_the_request_chooses() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-earlier").await;
    scene.status("status: success\n");
    scene.write("config_with_planner.yaml", RESULT);
    scene.write("mocker_config_with_planner.yaml", RESULT.replace("vllm-agg", "mocker-disagg"));
    scene.ends(0, "Completed").await;
    let server = scene.server(scene.account().await);
    let stop = CancellationToken::new();
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::Verdict);
    let data = scene.output().await.data.unwrap();
    for (simulated, name) in [(false, "vllm-agg"), (true, "mocker-disagg")] {
        let read = graph::read(&data, simulated).unwrap();
        assert_eq!(read.graph["metadata"]["name"], name);
        let features = json!({ "mocker": { "enabled": simulated } });
        let step = plan(&scene.seen(JobState::Complete, features).await).resolution;
        assert!(matches!(step.act, Act::Graph(_)), "{simulated}");
    }
}

#[tokio::test]
async fn the_limit_is_the_api_servers_and_beyond_it_is_a_failure_that_says_so() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-large").await;
    let server = scene.server(scene.account().await);
    scene.status("status: success");
    scene.ends(0, "Completed").await;
    let stop = CancellationToken::new();
    let room = LIMIT - "success".len();
    scene.write("final_config.yaml", "x".repeat(room));
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::Verdict);
    assert_eq!(scene.output().await.data.unwrap()["final_config.yaml"].len(), room);

    scene.write("final_config.yaml", "x".repeat(room + 1));
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::Verdict);
    let (phase, _, message) = told(&scene.seen(JobState::Complete, json!({})).await);
    let why = "more than the 1048576 that a ConfigMap can hold; leave out spec.features.planner, or shorten";
    assert!(phase == Phase::Failed && message.contains(why), "{message}");
}

#[tokio::test]
async fn who_may_not_read_the_pod_goes_by_the_profilers_word() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::with_rights(cluster, "relay-hidden", |resource| resource == "configmaps").await;
    scene.status("{status: running, phase: SweepingPrefill, message: m}");
    let server = scene.server(scene.account().await);
    let (place, pace, stop) = (scene.place(), quick(), CancellationToken::new());
    let (ending, ()) = tokio::join!(follow(&server, &place, &pace, &stop), async {
        scene.until("phase", "SweepingPrefill").await;
        scene.status("{status: failed, error: e}");
    });
    assert_eq!(ending.unwrap(), Ending::Verdict);
    assert_eq!(scene.output().await.data.unwrap()["profiler_error"], "e");
}

#[tokio::test]
async fn a_right_that_comes_late_delivers_the_result_and_one_that_never_comes_is_named() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::with_rights(cluster, "relay-denied", |resource| resource != "configmaps").await;
    scene.write("final_config.yaml", RESULT);
    scene.status(SUCCESS);
    scene.ends(0, "Completed").await;
    let server = scene.server(scene.account().await);
    let pace = Pace { rights: std::time::Duration::from_millis(300), ..quick() };
    let missed = follow(&server, &scene.place(), &pace, &CancellationToken::new()).await.unwrap_err().to_string();
    let account = format!("User \"system:serviceaccount:{}:dgdr-profiling-job\" cannot get", scene.namespace.name());
    for part in [
        "gave up after 0 min without the right to write ConfigMap dgdr-output-qwen: the API server answered 403: ",
        &account,
        "; the account needs get, create, update of configmaps, and all that ClusterRole steersman-profiling-job gives: bind",
    ] {
        assert!(missed.contains(part), "{part:?} is in: {missed}");
    }

    let mut sidecar = scene.start().await;
    sidecar.until_said("cannot write the ConfigMap").await;
    scene.grant().await;
    assert_eq!(ended(&mut sidecar).await, Some(0), "{}", sidecar.complaint());
    assert_eq!(scene.output().await.data.unwrap()["profiler_status"], "success");
}

#[tokio::test]
async fn a_second_try_of_the_job_takes_the_verdict_of_the_first_back() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-retry").await;
    let server = scene.server(scene.account().await);
    let stop = CancellationToken::new();
    stop.cancel();
    scene.runs().await;
    scene.status("{status: failed, phase: Initializing, error: e}");
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::Verdict);
    // Keys of other programs in it are nobody's result.
    let more = Patch::Merge(json!({ "data": { "config_with_planner.yaml": "old" }, "binaryData": { "b": "AA==" },
        "metadata": { "labels": { "team": "a" } } }));
    scene.outputs().patch("dgdr-output-qwen", &PatchParams::default(), &more).await.unwrap();
    scene.status("{status: running, phase: Initializing, message: m}");
    assert_eq!(follow(&server, &scene.place(), &quick(), &stop).await.unwrap(), Ending::NoVerdict);
    let output = scene.output().await;
    assert_eq!(output.labels()["team"], "a");
    assert_eq!((json!(output.data), output.binary_data), (json!({ "phase": "Initializing", "message": "m" }), None));
}

#[tokio::test]
async fn an_old_success_on_a_claim_is_not_the_success_of_a_profiler_that_died() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::on_a_claim(cluster, "relay-claim").await;
    scene.write("final_config.yaml", RESULT);
    scene.status(&SUCCESS.replace("06:10:00", "05:10:00"));
    let server = scene.server(scene.account().await);
    let (place, pace, stop) = (scene.place(), quick(), CancellationToken::new());
    scene.runs().await;
    let (ending, ()) = tokio::join!(follow(&server, &place, &pace, &stop), async {
        scene.ends(1, "Error").await;
    });
    assert_eq!(ending.unwrap(), Ending::NoVerdict);
    let (phase, _, message) = told(&scene.seen(JobState::Failed("x".into()), json!({})).await);
    let why = "exit code 1 (Error) without a verdict: profiler_status.yaml in";
    assert!(phase == Phase::Failed && message.contains(why), "{message}");
    assert!(message.ends_with("is of an earlier profiler; see its log"), "{message}");

    scene.status(SUCCESS);
    assert_eq!(follow(&server, &place, &pace, &stop).await.unwrap(), Ending::Verdict, "one of its own is");
    assert_eq!(scene.output().await.data.unwrap()["final_config.yaml"], RESULT);
}

#[tokio::test]
async fn of_two_requests_with_one_name_the_one_that_is_there_has_the_output() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let cluster = turn.cluster;
    let admin = cluster.admin().await.unwrap();
    let served = schemas::resource(Family::Dgdr, "v1beta1");
    schemas::install(&admin, &schemas::only(Family::Dgdr, "v1beta1"), &served).await;
    let scene = Scene::new(cluster, "relay-two").await;
    scene.status("{status: failed, error: mine}");
    scene.ends(1, "Error").await;
    let requests: Api<DynamicObject> = Api::namespaced_with(admin.clone(), scene.namespace.name(), &served);
    let request: DynamicObject =
        steersman_testkit::object(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(),
        "metadata": { "name": "qwen" }, "spec": { "model": "m" } }));
    let live = requests.create(&PostParams::default(), &request).await.unwrap().uid().unwrap();

    let server = scene.server(scene.account().await);
    let (pace, stop) = (quick(), CancellationToken::new());
    let mut place = scene.place();
    assert_eq!(follow(&server, &place, &pace, &stop).await.unwrap(), Ending::Verdict);
    place.request.uid = live.clone();
    assert_eq!(
        follow(&server, &place, &pace, &stop).await.unwrap(),
        Ending::Verdict,
        "it takes over what is not its own"
    );
    let taken = scene.output().await;
    assert_eq!(taken.owner_references()[0].uid, live);

    let late = follow(&server, &scene.place(), &pace, &stop).await.unwrap_err().to_string();
    assert!(late.contains("dgdr-output-qwen is of another request of the same name; ours is gone"), "{late}");
    assert_eq!(scene.output().await.metadata.resource_version, taken.metadata.resource_version);
    schemas::uninstall(&admin, Family::Dgdr).await;
}

#[tokio::test]
async fn what_the_api_server_will_never_take_is_said_and_not_tried_for_ever() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let scene = Scene::new(cluster, "relay-fixed").await;
    let fixed = steersman_testkit::object(json!({ "metadata": { "name": "dgdr-output-qwen" }, "immutable": true }));
    scene.outputs().create(&PostParams::default(), &fixed).await.unwrap();
    scene.status("{status: failed, error: e}");
    scene.ends(1, "Error").await;
    let mut sidecar = scene.start().await;
    assert_eq!(ended(&mut sidecar).await, Some(1));
    let said = sidecar.complaint();
    assert!(
        said.starts_with("steersman: cannot write ConfigMap dgdr-output-qwen: the API server answered 422: "),
        "{said}"
    );
}

/// The role of the profiling Jobs, as it has been shipped with them. It lacks what clusters demand that check who may hold up
/// a deletion; on those nothing was ever delivered by it.
#[test]
fn the_relay_asks_for_no_right_that_profiling_jobs_do_not_have_but_to_own_outputs() {
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
    assert_eq!(profile_job::reference("qwen", "8f3c")["blockOwnerDeletion"], true, "or the last right is not needed");
}

#[test]
fn without_its_arguments_the_relay_names_them() {
    let output = output_of(&mut steersman(&["relay"]));
    assert_eq!(output.code, Some(2));
    for flag in ["--name", "--namespace", "--uid", "--container", "--directory", "--pod"] {
        assert!(output.stderr.contains(flag), "{}", output.stderr);
    }
}
