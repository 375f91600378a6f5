//! The cluster of this suite, in which every request is acted on and graphs are known, though nobody runs them.

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::admission;
use steersman_api::Family;
use steersman_testkit::{Cluster, Gpu, NodePool, apply, graphs as played, object, wait};
use tokio::sync::OnceCell;

use crate::stage;
pub use crate::stage::World;

/// None (after saying so) where the cluster's programs are not built.
pub async fn world() -> Option<&'static World> {
    static WORLD: OnceCell<Option<World>> = OnceCell::const_new();
    stage::world(&WORLD, start).await
}

async fn start() -> Result<Option<World>> {
    let fleet = vec![NodePool::usual(Gpu::H100, 2), NodePool::plain("plain", 2)];
    let Some(world) = stage::start(Family::Dgdr, fleet).await? else { return Ok(None) };
    let admin = world.cluster.admin().await?;
    apply::manifests(&admin, None, played::CRD).await?;
    until_asked(&world.cluster).await.with_context(|| world.operator.log_end())?;
    Ok(Some(world))
}

/// API servers follow CRDs and configurations in their own time: until then objects slip past, or cannot be converted.
async fn until_asked(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    let judged = admission::FAMILIES.contains(&Family::Dgdr);
    wait::eventually("the operator is asked about every object", async || {
        graphs(&admin, "default").list(&Default::default()).await.ok()?;
        let alpha = json!({ "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "planner:1.4.0" } });
        would_be_stored(&admin, "default", "v1alpha1", alpha).await.ok()?;
        would_be_stored(&admin, "default", "v1beta1", json!({ "model": "m", "image": "planner:1.4.0" })).await.ok()?;
        let refused = would_be_stored(&admin, "default", "v1beta1", incompatible()).await.is_err();
        (refused == judged).then_some(())
    })
    .await
}

/// A spec that only admission finds fault with.
fn incompatible() -> Value {
    json!({ "model": "m", "image": "planner:1.4.0", "searchStrategy": "thorough", "backend": "auto" })
}

/// Whether a request with this spec would be accepted.
async fn would_be_stored(admin: &Client, namespace: &str, version: &str, spec: Value) -> kube::Result<()> {
    let wish: DynamicObject = object(json!({ "apiVersion": format!("nvidia.com/{version}"),
        "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": "probe" }, "spec": spec }));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    requests(admin, namespace, version).create(&dry_run, &wish).await.map(|_| ())
}

/// From now on nobody is asked about objects of this namespace.
pub async fn unjudge(admin: &Client, namespace: &str) {
    stage::unjudge(admin, namespace).await;
    let unasked = async || would_be_stored(admin, namespace, "v1beta1", incompatible()).await.ok();
    wait::eventually("nobody is asked about objects of the namespace", unasked).await.unwrap();
}

pub fn requests(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    stage::objects(client, Family::Dgdr, namespace, version)
}

pub fn graphs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(Family::Dgd.group(), Family::Dgd.storage_version(), Family::Dgd.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, Family::Dgd.plural()))
}
