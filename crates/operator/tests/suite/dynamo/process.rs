//! `steersman run --controllers dgdr` as a process, as the operator's account with exactly the rights that are shipped.

use k8s_openapi::api::events::v1::Event;
use steersman_testkit::play::{PLAY, Play};
use steersman_testkit::{Turn, turn, wait};

use super::*;
use crate::process::operator::{Operator, Place};
use crate::schemas::uninstall;

/// By the watches of the operator alone: nobody asks for a pass.
async fn until_phase(requests: &Api<DynamicObject>, phase: &str, operator: &Operator) {
    let is = |object: &DynamicObject| object.data["status"]["phase"] == phase;
    let what = format!("the request is {phase}");
    let reached = wait::eventually(&what, async || requests.get_opt(NAME).await.ok()?.filter(is));
    reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

#[tokio::test]
async fn a_request_lives_through_all_its_phases_by_watches_alone() {
    let Some(scene) = Scene::new("process", spec(json!({}))).await else { return };
    let (_turn, place) = scene.place().await;
    let namespace = scene.namespace.name();
    let flags = ["--controllers", "dgdr", "--watch-namespace", namespace, "--operator-image", "steersman:1"];
    let operator = place.start("dgdr", &flags).await;
    let requests = scene.requests();
    until_phase(&requests, "Profiling", &operator).await;

    // As the account of the Job, with the rights that it was given.
    let account = scene.cluster.service_account(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    wait::until_allowed(&account, "create", "", "configmaps", Some(namespace)).await.unwrap();
    let uid = scene.request().await.uid().unwrap();
    deliver(&account, namespace, &uid, json!({ "phase": "SweepingDecode", "message": "Benchmarking 1/2" })).await;
    let relayed = wait::eventually("the sub-phase is relayed", async || {
        (scene.status().await["profilingPhase"] == "SweepingDecode").then_some(())
    });
    relayed.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let pull = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
    a_pod(&scene.namespace, "Pending", pull).await;
    let told = wait::eventually("the pod's trouble is told", async || {
        scene.says().await.1.contains("ErrImagePull").then_some(())
    });
    told.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let result = json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT });
    deliver(&account, namespace, &uid, result).await;
    scene.job_ends().await;
    until_phase(&requests, "Deploying", &operator).await;
    let made = wait::eventually("the graph is made", async || scene.graphs().get_opt(GRAPH).await.ok()?);
    made.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    scene.graph_is("successful").await;
    until_phase(&requests, "Deployed", &operator).await;
    scene.graph_is("failed").await;
    until_phase(&requests, "Deploying", &operator).await;
    scene.graph_is("successful").await;
    until_phase(&requests, "Deployed", &operator).await;

    let events = scene.namespace.all::<Event>().list(&ListParams::default()).await.unwrap();
    let told = |reason: &str| events.items.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
    for reason in ["Initialized", "ProfilingJobCreated", "ImagePullFailed", "SpecGenerated", "DeploymentCreated"] {
        assert_eq!(told(reason), 1, "{reason}: {events:#?}");
    }
    scene.graphs().delete(GRAPH, &Default::default()).await.unwrap();
    until_phase(&requests, "Failed", &operator).await;
    operator.assert_log_is_json();
}

/// An operator for one request where Kubernetes' own controllers do their part: the Job has a pod, which runs until it is told
/// to end.
pub struct Live {
    // In this order: the operator ends before another test has its turn.
    pub operator: Operator,
    pub scene: Scene,
    _turn: Turn,
}

impl Live {
    /// With or without the CRD of graphs. None (after saying so) where no cluster is to be had.
    pub async fn start(prefix: &str, graphs: bool) -> Option<Self> {
        let turn = turn(Flavour::Full).await?;
        let cluster = turn.cluster;
        let place = Place::of(cluster).await;
        let admin = cluster.admin().await.unwrap();
        install(&admin, &only(Family::Dgdr, VERSION), &resource(Family::Dgdr, VERSION)).await;
        if graphs {
            install(&admin, &graph_crd(), &resource(Family::Dgd, VERSION)).await;
        }
        let namespace = cluster.namespace_with(prefix, &[(PLAY, Play::Hang.value())]).await.unwrap();
        create(&admin, namespace.name(), spec(json!({}))).await.unwrap();
        let scene = Scene { cluster, admin, namespace };
        let operator = place.start(prefix, &["--controllers", "dgdr", "--operator-image", "steersman:1"]).await;
        let live = Self { operator, scene, _turn: turn };
        live.until("the profiler runs", |status| condition(status, "Profiling").0 == "ProfilingRunning").await;
        Some(live)
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let seen = wait::eventually(what, async || holds(&self.scene.status().await).then_some(()));
        seen.await.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// The profiler ends, and with its pod the Job.
    pub async fn pod_ends(&self) {
        let pods = self.scene.namespace.all::<Pod>();
        let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(Play::Run.patch())).await.unwrap();
    }

    pub async fn delivers(&self) {
        let result = json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT });
        self.scene.deliver(result).await;
    }

    pub async fn until_graph(&self) {
        let made = wait::eventually("the graph is made", async || self.scene.graphs().get_opt(GRAPH).await.ok()?);
        made.await.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// The next test finds a cluster without our CRDs.
    pub async fn end(self) {
        drop(self.operator);
        for family in [Family::Dgdr, Family::Dgd] {
            uninstall(&self.scene.admin, family).await;
        }
    }
}

/// With the controllers of Kubernetes and a node on which the Job's pod runs.
#[tokio::test]
async fn a_request_becomes_a_job_that_runs_and_all_but_the_graph_goes_with_it() {
    let Some(live) = Live::start("dgdr-job", true).await else { return };
    let (scene, operator) = (&live.scene, &live.operator);
    live.pod_ends().await;
    live.until("the Job has ended", |status| condition(status, "Succeeded").1.contains("the log of container")).await;
    live.delivers().await;
    let requests = scene.requests();
    until_phase(&requests, "Deploying", operator).await;
    live.until_graph().await;
    scene.graph_is("successful").await;
    until_phase(&requests, "Deployed", operator).await;

    requests.delete(NAME, &Default::default()).await.unwrap();
    wait::until_gone(scene.namespace.all::<Job>(), "profile-qwen").await.unwrap();
    wait::until_gone(scene.namespace.all::<ConfigMap>(), &names::output(NAME)).await.unwrap();
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_some(), "it outlives its request");
    assert!(scene.namespace.all::<ConfigMap>().get_opt("planner-config-1a2b").await.unwrap().is_some());
    operator.assert_log_is_json();
    live.end().await;
}
