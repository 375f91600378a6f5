//! The cluster of this suite, in which every LlamaStackDistribution is judged and acted on.

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::{Cluster, NodePool, object, wait};
use tokio::sync::OnceCell;

use crate::stage;
pub use crate::stage::{IDENTITY, OPERATOR_IMAGE, World};

/// None (after saying so) where the cluster's programs are not built.
pub async fn world() -> Option<&'static World> {
    static WORLD: OnceCell<Option<World>> = OnceCell::const_new();
    stage::world(&WORLD, start).await
}

async fn start() -> Result<Option<World>> {
    let Some(world) = stage::start(Family::Llsd, vec![NodePool::plain("plain", 4)]).await? else { return Ok(None) };
    until_asked(&world.cluster).await.with_context(|| world.operator.log_end())?;
    Ok(Some(world))
}

/// API servers follow CRDs and configurations in their own time: until then objects slip past, or cannot be converted.
async fn until_asked(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    wait::eventually("the operator is asked about every object", async || {
        for version in ["v1alpha1", "v1alpha2"] {
            would_be_stored(&admin, "default", version, "starter").await.ok()?;
            let refused = would_be_stored(&admin, "default", version, "nobody-knows").await.err()?;
            refused.contains("Unknown distribution").then_some(())?;
        }
        Some(())
    })
    .await
}

/// Whether an object with this distribution would be accepted, or why not.
async fn would_be_stored(admin: &Client, namespace: &str, version: &str, distribution: &str) -> Result<(), String> {
    let distribution = json!({ "distribution": { "name": distribution } });
    let spec = if version == "v1alpha1" { json!({ "server": distribution }) } else { distribution };
    let wish: DynamicObject = object(json!({ "apiVersion": format!("llamastack.io/{version}"),
        "kind": "LlamaStackDistribution", "metadata": { "name": "probe" }, "spec": spec }));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let stored = objects(admin, namespace, version).create(&dry_run, &wish).await;
    stored.map(|_| ()).map_err(|error| error.to_string())
}

/// From now on nobody is asked about objects of this namespace.
pub async fn unjudge(admin: &Client, namespace: &str) {
    stage::unjudge(admin, namespace).await;
    let unasked = async || would_be_stored(admin, namespace, "v1alpha2", "nobody-knows").await.ok();
    wait::eventually("nobody is asked about objects of the namespace", unasked).await.unwrap();
}

pub fn objects(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    stage::objects(client, Family::Llsd, namespace, version)
}
