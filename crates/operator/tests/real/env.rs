//! The cluster that all tests share.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;
use steersman::resource::custom_resource;
use steersman_api::Family;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::fake_graphs::GRAPH_CRD;
use steersman_testkit::real_node::scenario::NAMESPACE;
use steersman_testkit::real_node::{Parts, RealCluster};
use steersman_testkit::{apply, skip, wait};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// For states that need the start of a server, or a whole profiling Job, on a loaded machine.
pub const SLOW: Duration = Duration::from_secs(420);

/// Tests that disturb others, such as by a restart of the operator, hold the lock for writing.
static DISTURBANCE: RwLock<()> = RwLock::const_new(());

/// The cluster, and the promise that no other test disturbs this one.
pub struct SharedCluster {
    pub cluster: &'static RealCluster,
    _guard: RwLockReadGuard<'static, ()>,
}

/// The cluster for a test that disturbs others.
pub struct ExclusiveCluster {
    pub cluster: &'static RealCluster,
    _guard: RwLockWriteGuard<'static, ()>,
}

/// The cluster with the operator installed. `None` after reporting a skip if this run has no real node.
pub async fn shared() -> Option<SharedCluster> {
    let guard = DISTURBANCE.read().await;
    Some(SharedCluster { cluster: cluster().await?, _guard: guard })
}

pub async fn exclusive() -> Option<ExclusiveCluster> {
    let guard = DISTURBANCE.write().await;
    Some(ExclusiveCluster { cluster: cluster().await?, _guard: guard })
}

async fn cluster() -> Option<&'static RealCluster> {
    static CLUSTER: OnceCell<Option<RealCluster>> = OnceCell::const_new();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let start = async || {
        let Some(parts) = Parts::from_environment()? else { return Ok(None) };
        // The cluster ends with the process, which never drops it; the next run removes its folder.
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let cluster = RealCluster::start(&parts, run.path()).await?;
        std::mem::forget(run);
        let (operator, archive) = &parts.operator;
        cluster.import(archive).await?;
        for image in &parts.server_images {
            cluster.import(image).await?;
        }
        cluster.install_operator(operator).await?;
        cluster.configure_operator().await?;
        apply::apply_manifests(&cluster.cluster.admin().await?, None, GRAPH_CRD).await?;
        cluster.start_engine().await?;
        cluster.start_prometheus().await?;
        anyhow::Ok(Some(cluster))
    };
    let cluster =
        CLUSTER.get_or_try_init(start).await.unwrap_or_else(|error| panic!("cannot start a real cluster: {error:?}"));
    if cluster.is_none() {
        skip::skip(&test, "its programs and images are not prepared; run it with `cargo xtask test --suite real`");
    }
    cluster.as_ref()
}

/// The objects of a family in the namespace of the scenario.
pub async fn objects(cluster: &RealCluster, family: Family) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&custom_resource(family).gvk());
    Api::namespaced_with(cluster.cluster.admin().await.unwrap(), NAMESPACE, &resource)
}

/// Waits until the object's `status` is as expected, and returns it. A failure shows the status and the pods.
pub async fn wait_for_status(
    cluster: &RealCluster,
    family: Family,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let objects = objects(cluster, family).await;
    let found = wait::eventually_within(SLOW, what, async || {
        let status = objects.get_opt(name).await.ok()??.data["status"].take();
        holds(&status).then_some(status)
    });
    match found.await {
        Ok(status) => status,
        Err(timeout) => {
            let status = objects.get_opt(name).await.unwrap().map(|object| object.data["status"].clone());
            panic!("{timeout}: {name}: {:#}\npods: {:#?}", status.unwrap_or_default(), pods(cluster).await);
        }
    }
}

/// Name, phase and readiness of the pods in the namespace of the scenario.
async fn pods(cluster: &RealCluster) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.cluster.admin().await.unwrap(), NAMESPACE);
    let describe = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let states: Vec<String> =
            containers.iter().map(|container| format!("{}: {:?}", container.name, container.state)).collect();
        format!("{:?} {:?} {}", pod.metadata.name, status.phase, states.join(", "))
    };
    pods.list(&ListParams::default()).await.unwrap().items.iter().map(describe).collect()
}
