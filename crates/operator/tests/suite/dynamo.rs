//! DynamoGraphDeploymentRequests on a real API server. The tests play what stands around the operator: the Job's end, what
//! the relay delivers, and how the graph fares.

mod absent;
mod crashes;
mod examples;
mod gpus;
mod kept;
mod lives;
mod process;
mod real;
mod waiting;

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use steersman::dynamo::{Dynamo, RequestOptions};
use steersman::installation::Installation;
use steersman::rbac;
use steersman_api::Family;
use steersman_plan::dynamo::{names, profile_job};
use steersman_runtime::client::Server;
use steersman_runtime::controller::{ReconcileContext, ReconcileOutcome, Reconciler as _, reconcile};
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::Cache;
use steersman_testkit::cut::Cutter;
use steersman_testkit::profiler::RESULT;
use steersman_testkit::{Cluster, Flavour, Namespace, alone, apply, object, statement};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::process::operator::Place;
use crate::schemas::{install, only, resource};
use crate::server::server;

const VERSION: &str = "v1beta1";
const NAME: &str = "qwen";
const GRAPH: &str = "qwen-dgd";

/// A cluster of these tests alone, with both CRDs and the shipped roles: each test acts in a namespace of its own.
pub async fn with_crds() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = alone(&CLUSTER, async |cluster| {
        let admin = cluster.admin().await?;
        install(&admin, &only(Family::Dgdr, VERSION), &resource(Family::Dgdr, VERSION)).await;
        install(&admin, &graph_crd(), &resource(Family::Dgd, VERSION)).await;
        apply::manifests(&admin, None, &rbac::manifests()?).await?;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

/// Nodes and exporters belong to the whole cluster: tests in which hardware is discovered take turns, and begin without any.
async fn without_gpus(admin: &Client) -> MutexGuard<'static, ()> {
    static GPUS: Mutex<()> = Mutex::const_new(());
    let turn = GPUS.lock().await;
    let nodes: Api<Node> = Api::all(admin.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::all(admin.clone());
    for pod in pods.list(&ListParams::default().labels("exporter")).await.unwrap() {
        let pods: Api<Pod> = Api::namespaced(admin.clone(), &pod.namespace().unwrap());
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    turn
}

/// As far as requests look at graphs, whoever runs them.
fn graph_crd() -> CustomResourceDefinition {
    serde_saphyr::from_str(steersman_testkit::graphs::CRD).unwrap()
}

pub fn family() -> Dynamo {
    Dynamo::new(
        &Installation { operator_image: Some("steersman:1".to_owned()), ..Installation::default() },
        &RequestOptions::default(),
    )
}

/// With all hardware given.
pub fn spec(more: Value) -> Value {
    let mut spec = json!({
        "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0",
        "hardware": { "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
            "interconnect": "nvlink", "rdma": false },
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// A namespace with one request, and everything that happens around it.
struct Scene {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
}

impl Scene {
    async fn new(prefix: &str, spec: Value) -> Option<Self> {
        let (cluster, admin) = with_crds().await?;
        let namespace = cluster.namespace(prefix).await.unwrap();
        create(&admin, namespace.name(), spec).await.unwrap();
        Some(Self { cluster, admin, namespace })
    }

    /// Where operators compete for the cluster's one Lease: those of one test at a time.
    async fn place(&self) -> (MutexGuard<'static, ()>, Place) {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        (turn, Place::of(self.cluster).await)
    }

    fn requests(&self) -> Api<DynamicObject> {
        requests(&self.admin, self.namespace.name())
    }

    fn graphs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &resource(Family::Dgd, VERSION))
    }

    async fn request(&self) -> DynamicObject {
        self.requests().get(NAME).await.unwrap()
    }

    async fn status(&self) -> Value {
        self.request().await.data["status"].clone()
    }

    /// Phase, and what Succeeded says.
    async fn says(&self) -> (String, String) {
        let status = self.status().await;
        let phase = status["phase"].as_str().unwrap_or_default().to_owned();
        (phase, condition(&status, "Succeeded").1)
    }

    /// Passes until nothing is written any more.
    async fn settle(&self) {
        for _ in 0..20 {
            let passed = pass_of(self.cluster, self.admin.clone(), self.namespace.name(), NAME).await;
            match passed.unwrap() {
                ReconcileOutcome::Reconciled { written: 0, .. } => return,
                passed => assert_ne!(passed, ReconcileOutcome::Deleting),
            }
        }
        panic!("it still writes: {:?}", self.status().await);
    }

    async fn assert_silent(&self) {
        let counter = Cutter::counting();
        pass_once(self.cluster, counter.around(&self.admin), self.namespace.name()).await.unwrap();
        assert_eq!(counter.calls(), 0, "settled means silent");
    }

    async fn change(&self, patch: Value) {
        self.requests().patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn job(&self) -> Job {
        self.namespace.all::<Job>().get("profile-qwen").await.unwrap()
    }

    async fn job_ends(&self) {
        job_status(
            &self.namespace,
            json!({ "succeeded": 1, "completionTime": "2026-11-16T06:01:00Z", "conditions": [
            { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" }] }),
        )
        .await;
    }

    async fn job_fails(&self, message: &str) {
        job_status(
            &self.namespace,
            json!({ "failed": 1, "conditions": [
            { "type": "FailureTarget", "status": "True", "message": message },
            { "type": "Failed", "status": "True", "message": message }] }),
        )
        .await;
    }

    /// As the relay does, in the name of the request.
    async fn deliver(&self, data: Value) {
        let request = self.request().await;
        deliver(&self.admin, self.namespace.name(), &request.uid().unwrap(), data).await;
    }

    /// Profiled, with a result.
    async fn profiled(&self) {
        self.settle().await;
        self.deliver(json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": RESULT })).await;
        self.job_ends().await;
        self.settle().await;
    }

    async fn graph_is(&self, state: &str) {
        graph_status(&self.graphs(), state).await;
    }
}

fn requests(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(Family::Dgdr, VERSION))
}

async fn create(client: &Client, namespace: &str, spec: Value) -> Result<DynamicObject> {
    create_named(client, namespace, NAME, spec).await
}

pub async fn create_named(client: &Client, namespace: &str, name: &str, spec: Value) -> Result<DynamicObject> {
    let wish: DynamicObject = object(json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": name },
        "spec": spec,
    }));
    Ok(requests(client, namespace).create(&PostParams::default(), &wish).await?)
}

async fn job_status(namespace: &Namespace, mut status: Value) {
    status["startTime"] = "2026-11-16T06:00:00Z".into();
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["lastTransitionTime"] = "2026-11-16T06:01:00Z".into();
        condition["lastProbeTime"] = "2026-11-16T06:01:00Z".into();
    }
    let patch = Patch::Merge(json!({ "status": status }));
    namespace.all::<Job>().patch_status("profile-qwen", &PatchParams::default(), &patch).await.unwrap();
}

async fn deliver(client: &Client, namespace: &str, uid: &str, data: Value) {
    let output = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": names::output(NAME), "labels": names::labels(NAME, namespace),
            "ownerReferences": [profile_job::reference(NAME, uid)] },
        "data": data,
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match maps.get_opt(&names::output(NAME)).await.unwrap() {
        None => maps.create(&PostParams::default(), &object(output)).await.unwrap(),
        Some(found) => {
            let mut output: ConfigMap = object(output);
            output.metadata.resource_version = found.metadata.resource_version;
            maps.replace(&names::output(NAME), &PostParams::default(), &output).await.unwrap()
        }
    };
}

async fn graph_status(graphs: &Api<DynamicObject>, state: &str) {
    let components =
        json!({ "Frontend": { "replicas": 1, "availableReplicas": 1 }, "VllmDecodeWorker": { "replicas": 2 } });
    let patch = Patch::Merge(json!({ "status": { "state": state, "components": components } }));
    graphs.patch_status(GRAPH, &PatchParams::default(), &patch).await.unwrap();
}

/// Reason and message.
fn condition(status: &Value, type_: &str) -> (String, String) {
    let (_, reason, message) = statement(status, type_);
    (reason.to_owned(), message.to_owned())
}

/// As after a start: with new eyes.
async fn pass_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<ReconcileOutcome> {
    pass_of(cluster, client, namespace, NAME).await
}

async fn pass_of(cluster: &Cluster, client: Client, namespace: &str, name: &str) -> Result<ReconcileOutcome> {
    let object = requests(&client, namespace).get(name).await?;
    let cache = Arc::new(Cache::new(family().children()));
    let server = server(cluster, client);
    cache.fill(&server, &Scope::Namespace(namespace.to_owned())).await?;
    let context = ReconcileContext { cache, ..ReconcileContext::new(&family(), server, "test") };
    reconcile(&family(), &context, &object).await.context("a pass")
}

/// The pod of the profiling Job in this phase, its profiler in this state.
async fn a_pod(namespace: &Namespace, phase: &str, state: Value) {
    let pods: Api<Pod> = namespace.all();
    if pods.get_opt("profile-qwen-x").await.unwrap().is_none() {
        let pod: Pod = object(json!({
            "metadata": { "name": "profile-qwen-x", "labels": { "batch.kubernetes.io/job-name": "profile-qwen",
                names::LABEL_PROFILED: NAME } },
            "spec": { "serviceAccountName": names::SERVICE_ACCOUNT,
                "containers": [{ "name": "profiler", "image": "planner:1.4.0" }] },
        }));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let status = json!({ "name": "profiler", "image": "planner:1.4.0", "imageID": "", "ready": false, "restartCount": 0,
        "state": state });
    let patch = Patch::Merge(json!({ "status": { "phase": phase, "containerStatuses": [status] } }));
    pods.patch_status("profile-qwen-x", &PatchParams::default(), &patch).await.unwrap();
}
