//! Tests the controller of LlamaStackDistributions on a real API server: single reconciles, each with a newly filled
//! cache as after a start, and `steersman run` as a process.

pub mod adoption;
mod crash_harness;
mod crashes;
mod generated_config;
mod labels;
mod leaders;
mod lifecycle;
mod process;
mod upgrade;

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use steersman::llamastack::LlamaStack;
use steersman_api::Family;
use steersman_runtime::controller::{ReconcileContext, ReconcileOutcome, Reconciler as _, reconcile};
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::Cache;
use steersman_testkit::fault_injection::{
    CallFault, CountedCalls, FaultInjector, crash_at_every_call, crash_at_every_call_with_invariant,
    stale_view_at_every_reconcile,
};
use steersman_testkit::{Cluster, Flavour, Namespace, object, prepared_cluster, shared_cluster};
use tokio::sync::OnceCell;

use crate::schemas::{api_resource, install_crd, single_version_crd};
use crate::server::server;

pub const VERSION: &str = "v1alpha2";

fn reconciler() -> LlamaStack {
    LlamaStack::shipped()
}

pub fn starter() -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha2",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "distribution": { "name": "starter" },
            "networking": { "port": 8321 },
            "workload": {
                "replicas": 1,
                "storage": { "size": "20Gi" },
                "overrides": { "env": [{ "name": "INFERENCE_MODEL", "value": "m" }] },
            },
        },
    })
}

fn objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(Family::Llsd, VERSION))
}

async fn create(client: &Client, namespace: &str) {
    let distribution: DynamicObject = object(starter());
    objects(client, namespace).create(&PostParams::default(), &distribution).await.unwrap();
}

/// The initial state of a run of the crash harness: one distribution, not reconciled yet.
async fn prepare(client: &Client, namespace: &Namespace) -> Result<()> {
    create(client, namespace.name()).await;
    Ok(())
}

/// Removes the environment variables from the spec, as a user does.
async fn remove_env(client: &Client, namespace: &Namespace) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": null } } } }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The cluster of this module, with the CRD. Each test uses a namespace of its own, so that tests run in parallel.
pub async fn cluster_with_crd() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = prepared_cluster(&CLUSTER, async |cluster| {
        install_crd(
            &cluster.admin().await?,
            &single_version_crd(Family::Llsd, VERSION),
            &api_resource(Family::Llsd, VERSION),
        )
        .await;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

async fn list_all<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()));
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(serde_json::to_value).collect::<serde_json::Result<_>>()?)
}

/// Every object that a reconcile may write.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let name = namespace.name();
    let mut found = list_all::<Deployment>(client, name).await?;
    found.extend(list_all::<Service>(client, name).await?);
    found.extend(list_all::<PersistentVolumeClaim>(client, name).await?);
    found.extend(list_all::<ServiceAccount>(client, name).await?);
    let own = objects(client, name).list(&ListParams::default()).await?;
    found.extend(own.items.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<_>>>()?);
    Ok(found)
}

/// The inputs of a reconcile: the object, and the cache of its children.
struct View {
    object: DynamicObject,
    cache: Arc<Cache>,
}

async fn view(cluster: &Cluster, client: &Client, namespace: &str) -> Result<View> {
    let object = objects(client, namespace).get("starter").await?;
    let cache = Arc::new(Cache::new(reconciler().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await?;
    Ok(View { object, cache })
}

async fn reconcile_view(cluster: &Cluster, client: Client, view: &View) -> Result<ReconcileOutcome> {
    let context = ReconcileContext {
        cache: view.cache.clone(),
        ..ReconcileContext::new(&reconciler(), server(cluster, client), "test")
    };
    reconcile(&reconciler(), &context, &view.object).await.context("reconcile failed")
}

/// Reconciles with a newly filled cache, as after a start of the operator.
async fn reconcile_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<ReconcileOutcome> {
    let view = view(cluster, &client, namespace).await?;
    reconcile_view(cluster, client, &view).await
}
