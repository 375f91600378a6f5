//! LlamaStackDistributions on a real API server. Single passes are made by hand, each with new eyes, as after a start; what
//! makes passes by itself is `steersman run`, as a process.

mod adopt;
mod configured;
mod crashes;
mod labels;
mod leaders;
mod lives;
mod planted;
mod process;
mod upgraded;

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
use steersman_testkit::cut::{Calls, Cut, Cutter, crash_everywhere, crash_everywhere_and, stale_everywhere};
use steersman_testkit::{Cluster, Flavour, Namespace, alone, object, shared};
use tokio::sync::OnceCell;

use crate::schemas::{install, only, resource};
use crate::server::server;

pub const VERSION: &str = "v1alpha2";

fn family() -> LlamaStack {
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
    Api::namespaced_with(client.clone(), namespace, &resource(Family::Llsd, VERSION))
}

async fn create(client: &Client, namespace: &str) {
    let wish: DynamicObject = object(starter());
    objects(client, namespace).create(&PostParams::default(), &wish).await.unwrap();
}

/// What is there before a run of the crash harness.
async fn prepare(client: &Client, namespace: &Namespace) -> Result<()> {
    create(client, namespace.name()).await;
    Ok(())
}

/// The user takes a variable away.
async fn without_env(client: &Client, namespace: &Namespace) -> Result<()> {
    let without = Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": null } } } }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &without).await?;
    Ok(())
}

/// A cluster of these tests alone, with the CRD installed: each test acts in a namespace of its own, so that none has to wait
/// for its turn.
pub async fn with_crd() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = alone(&CLUSTER, async |cluster| {
        install(&cluster.admin().await?, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
}

async fn all<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()));
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(serde_json::to_value).collect::<serde_json::Result<_>>()?)
}

/// Everything that a pass may have touched.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let name = namespace.name();
    let mut left = all::<Deployment>(client, name).await?;
    left.extend(all::<Service>(client, name).await?);
    left.extend(all::<PersistentVolumeClaim>(client, name).await?);
    left.extend(all::<ServiceAccount>(client, name).await?);
    let own = objects(client, name).list(&ListParams::default()).await?;
    left.extend(own.items.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<_>>>()?);
    Ok(left)
}

/// All that a pass looks at.
struct View {
    object: DynamicObject,
    cache: Arc<Cache>,
}

async fn view(cluster: &Cluster, client: &Client, namespace: &str) -> Result<View> {
    let object = objects(client, namespace).get("starter").await?;
    let cache = Arc::new(Cache::new(family().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await?;
    Ok(View { object, cache })
}

async fn pass_on(cluster: &Cluster, client: Client, view: &View) -> Result<ReconcileOutcome> {
    let context = ReconcileContext {
        cache: view.cache.clone(),
        ..ReconcileContext::new(&family(), server(cluster, client), "test")
    };
    reconcile(&family(), &context, &view.object).await.context("a pass")
}

/// As after a start: with new eyes.
async fn pass_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<ReconcileOutcome> {
    let view = view(cluster, &client, namespace).await?;
    pass_on(cluster, client, &view).await
}
