//! Tests the controller of DynamoGraphDeploymentRequests on a real API server. The tests set everything outside the
//! operator: the status of the profiling Job, the output of the relay, and the state of the graph.

mod adoption;
mod blocked_requests;
mod crashes;
mod examples;
mod generated_configs;
mod gpus;
mod graph_crd;
mod lifecycle;
mod process;
mod real_profiler;

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
use steersman_testkit::fake_profiler::SAMPLE_RESULT;
use steersman_testkit::fault_injection::FaultInjector;
use steersman_testkit::{Cluster, Flavour, Namespace, apply, condition_parts, object, prepared_cluster};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::process::operator::TestInstallation;
use crate::schemas::{api_resource, install_crd, single_version_crd};
use crate::server::server;

const VERSION: &str = "v1beta1";
const NAME: &str = "qwen";
const GRAPH: &str = "qwen-dgd";

/// The cluster of this module, with both CRDs and the shipped roles. Each test uses a namespace of its own.
pub async fn cluster_with_crds() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = prepared_cluster(&CLUSTER, async |cluster| {
        let admin = cluster.admin().await?;
        install_crd(&admin, &single_version_crd(Family::Dgdr, VERSION), &api_resource(Family::Dgdr, VERSION)).await;
        install_crd(&admin, &graph_crd(), &api_resource(Family::Dgd, VERSION)).await;
        apply::apply_manifests(&admin, None, &rbac::manifests()?).await?;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

/// Serializes tests of hardware discovery, because nodes and exporters are shared by the whole cluster. Each starts
/// without nodes and exporters.
async fn lock_gpus(admin: &Client) -> MutexGuard<'static, ()> {
    static GPU_LOCK: Mutex<()> = Mutex::const_new(());
    let lock = GPU_LOCK.lock().await;
    let nodes: Api<Node> = Api::all(admin.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::all(admin.clone());
    for pod in pods.list(&ListParams::default().labels("exporter")).await.unwrap() {
        let pods: Api<Pod> = Api::namespaced(admin.clone(), &pod.namespace().unwrap());
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    lock
}

/// The CRD of DynamoGraphDeployment, reduced to the fields that requests use.
fn graph_crd() -> CustomResourceDefinition {
    serde_saphyr::from_str(steersman_testkit::fake_graphs::GRAPH_CRD).unwrap()
}

pub fn reconciler() -> Dynamo {
    Dynamo::new(
        &Installation { operator_image: Some("steersman:1".to_owned()), ..Installation::default() },
        &RequestOptions::default(),
    )
}

/// A spec with complete hardware, so that nothing has to be discovered. `overrides` replaces top-level fields.
pub fn spec(overrides: Value) -> Value {
    let mut spec = json!({
        "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0",
        "hardware": { "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
            "interconnect": "nvlink", "rdma": false },
    });
    for (name, value) in overrides.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// A namespace with one request, and the actions of users, the profiler and other controllers on it.
struct TestNamespace {
    cluster: &'static Cluster,
    admin: Client,
    namespace: Namespace,
}

impl TestNamespace {
    async fn new(prefix: &str, spec: Value) -> Option<Self> {
        let (cluster, admin) = cluster_with_crds().await?;
        let namespace = cluster.namespace(prefix).await.unwrap();
        create(&admin, namespace.name(), spec).await.unwrap();
        Some(Self { cluster, admin, namespace })
    }

    /// The installation to start operators from. The lock serializes tests, because the cluster has one Lease for operators.
    async fn installation(&self) -> (MutexGuard<'static, ()>, TestInstallation) {
        static LEASE_LOCK: Mutex<()> = Mutex::const_new(());
        let lock = LEASE_LOCK.lock().await;
        (lock, TestInstallation::create(self.cluster).await)
    }

    fn requests(&self) -> Api<DynamicObject> {
        requests(&self.admin, self.namespace.name())
    }

    fn graphs(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), self.namespace.name(), &api_resource(Family::Dgd, VERSION))
    }

    async fn request(&self) -> DynamicObject {
        self.requests().get(NAME).await.unwrap()
    }

    async fn status(&self) -> Value {
        self.request().await.data["status"].clone()
    }

    /// The phase, and the message of the condition Succeeded.
    async fn phase_and_message(&self) -> (String, String) {
        let status = self.status().await;
        let phase = status["phase"].as_str().unwrap_or_default().to_owned();
        (phase, condition(&status, "Succeeded").1)
    }

    /// Reconciles until nothing is written any more.
    async fn settle(&self) {
        for _ in 0..20 {
            let outcome = reconcile_request(self.cluster, self.admin.clone(), self.namespace.name(), NAME).await;
            match outcome.unwrap() {
                ReconcileOutcome::Reconciled { written: 0, .. } => return,
                outcome => assert_ne!(outcome, ReconcileOutcome::Deleting),
            }
        }
        panic!("still writing after 20 reconciles: {:?}", self.status().await);
    }

    async fn assert_no_writes(&self) {
        let counter = FaultInjector::without_fault();
        reconcile_once(self.cluster, counter.wrap(&self.admin), self.namespace.name()).await.unwrap();
        assert_eq!(counter.call_count(), 0, "a settled request must cause no write");
    }

    async fn patch_request(&self, patch: Value) {
        self.requests().patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn job(&self) -> Job {
        self.namespace.api::<Job>().get("profile-qwen").await.unwrap()
    }

    async fn complete_job(&self) {
        patch_job_status(
            &self.namespace,
            json!({ "succeeded": 1, "completionTime": "2026-11-16T06:01:00Z", "conditions": [
            { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" }] }),
        )
        .await;
    }

    async fn fail_job(&self, message: &str) {
        patch_job_status(
            &self.namespace,
            json!({ "failed": 1, "conditions": [
            { "type": "FailureTarget", "status": "True", "message": message },
            { "type": "Failed", "status": "True", "message": message }] }),
        )
        .await;
    }

    /// Writes the output ConfigMap as the relay does, owned by the request.
    async fn deliver_output(&self, data: Value) {
        let request = self.request().await;
        deliver_output(&self.admin, self.namespace.name(), &request.uid().unwrap(), data).await;
    }

    /// Completes profiling with a result, and reconciles it.
    async fn complete_profiling(&self) {
        self.settle().await;
        self.deliver_output(
            json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT }),
        )
        .await;
        self.complete_job().await;
        self.settle().await;
    }

    async fn set_graph_state(&self, state: &str) {
        patch_graph_status(&self.graphs(), state).await;
    }
}

fn requests(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(Family::Dgdr, VERSION))
}

async fn create(client: &Client, namespace: &str, spec: Value) -> Result<DynamicObject> {
    create_named(client, namespace, NAME, spec).await
}

pub async fn create_named(client: &Client, namespace: &str, name: &str, spec: Value) -> Result<DynamicObject> {
    let request: DynamicObject = object(json!({
        "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": name },
        "spec": spec,
    }));
    Ok(requests(client, namespace).create(&PostParams::default(), &request).await?)
}

async fn patch_job_status(namespace: &Namespace, mut status: Value) {
    status["startTime"] = "2026-11-16T06:00:00Z".into();
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["lastTransitionTime"] = "2026-11-16T06:01:00Z".into();
        condition["lastProbeTime"] = "2026-11-16T06:01:00Z".into();
    }
    let patch = Patch::Merge(json!({ "status": status }));
    namespace.api::<Job>().patch_status("profile-qwen", &PatchParams::default(), &patch).await.unwrap();
}

async fn deliver_output(client: &Client, namespace: &str, uid: &str, data: Value) {
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

async fn patch_graph_status(graphs: &Api<DynamicObject>, state: &str) {
    let components =
        json!({ "Frontend": { "replicas": 1, "availableReplicas": 1 }, "VllmDecodeWorker": { "replicas": 2 } });
    let patch = Patch::Merge(json!({ "status": { "state": state, "components": components } }));
    graphs.patch_status(GRAPH, &PatchParams::default(), &patch).await.unwrap();
}

/// Reason and message of a condition.
fn condition(status: &Value, type_: &str) -> (String, String) {
    let (_, reason, message) = condition_parts(status, type_);
    (reason.to_owned(), message.to_owned())
}

/// Reconciles with a newly filled cache, as after a start of the operator.
async fn reconcile_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<ReconcileOutcome> {
    reconcile_request(cluster, client, namespace, NAME).await
}

async fn reconcile_request(cluster: &Cluster, client: Client, namespace: &str, name: &str) -> Result<ReconcileOutcome> {
    let object = requests(&client, namespace).get(name).await?;
    let cache = Arc::new(Cache::new(reconciler().children()));
    let server = server(cluster, client);
    cache.fill(&server, &Scope::Namespace(namespace.to_owned())).await?;
    let context = ReconcileContext { cache, ..ReconcileContext::new(&reconciler(), server, "test") };
    reconcile(&reconciler(), &context, &object).await.context("reconcile failed")
}

/// Sets the phase of the profiling Job's pod and the state of its container `profiler`; creates the pod if needed.
async fn set_profiler_pod(namespace: &Namespace, phase: &str, state: Value) {
    let pods: Api<Pod> = namespace.api();
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
