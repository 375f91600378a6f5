//! The cluster of these tests, whose operator reconciles and validates LlamaStackDistributions.

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::{Cluster, NodePool, object, wait};
use tokio::sync::OnceCell;

use crate::shared_env;
pub use crate::shared_env::{IDENTITY, OPERATOR_IMAGE, TestEnv};

/// None if the cluster is not built; the test is then listed as skipped.
pub async fn test_env() -> Option<&'static TestEnv> {
    static ENV: OnceCell<Option<TestEnv>> = OnceCell::const_new();
    shared_env::get_or_start(&ENV, start).await
}

async fn start() -> Result<Option<TestEnv>> {
    let Some(env) = shared_env::start(Family::Llsd, vec![NodePool::without_gpus("plain", 4)]).await? else {
        return Ok(None);
    };
    wait_for_webhooks(&env.cluster).await.with_context(|| env.operator.log_end())?;
    Ok(Some(env))
}

/// Waits until the API server uses the CRDs and webhook configurations; before that, objects are not validated or
/// converted.
async fn wait_for_webhooks(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    wait::eventually("the API server calls the webhooks", async || {
        for version in ["v1alpha1", "v1alpha2"] {
            create_dry_run(&admin, "default", version, "starter").await.ok()?;
            let rejection = create_dry_run(&admin, "default", version, "nobody-knows").await.err()?;
            rejection.contains("Unknown distribution").then_some(())?;
        }
        Some(())
    })
    .await
}

/// Creates an object with this distribution as a dry run. Err: the message of the rejection.
async fn create_dry_run(admin: &Client, namespace: &str, version: &str, distribution: &str) -> Result<(), String> {
    let distribution = json!({ "distribution": { "name": distribution } });
    let spec = if version == "v1alpha1" { json!({ "server": distribution }) } else { distribution };
    let probe: DynamicObject = object(json!({ "apiVersion": format!("llamastack.io/{version}"),
        "kind": "LlamaStackDistribution", "metadata": { "name": "probe" }, "spec": spec }));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let stored = objects(admin, namespace, version).create(&dry_run, &probe).await;
    stored.map(|_| ()).map_err(|error| error.to_string())
}

/// Exempts the namespace from admission, and waits until the API server has observed it.
pub async fn disable_admission(admin: &Client, namespace: &str) {
    shared_env::disable_admission(admin, namespace).await;
    let accepted = async || create_dry_run(admin, namespace, "v1alpha2", "nobody-knows").await.ok();
    wait::eventually("the namespace is exempt from admission", accepted).await.unwrap();
}

pub fn objects(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    shared_env::objects(client, Family::Llsd, namespace, version)
}
