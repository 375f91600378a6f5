//! The cluster of these tests, whose operator reconciles requests. It has the CRD of graphs, but no operator for them.

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::admission;
use steersman_api::Family;
use steersman_testkit::{Cluster, Gpu, NodePool, apply, fake_graphs as testkit_graphs, object, wait};
use tokio::sync::OnceCell;

use crate::shared_env;
pub use crate::shared_env::TestEnv;

/// None if the cluster is not built; the test is then listed as skipped.
pub async fn test_env() -> Option<&'static TestEnv> {
    static ENV: OnceCell<Option<TestEnv>> = OnceCell::const_new();
    shared_env::get_or_start(&ENV, start).await
}

async fn start() -> Result<Option<TestEnv>> {
    let fleet = vec![NodePool::with_gpus(Gpu::H100, 2), NodePool::without_gpus("plain", 2)];
    let Some(env) = shared_env::start(Family::Dgdr, fleet).await? else { return Ok(None) };
    let admin = env.cluster.admin().await?;
    apply::apply_manifests(&admin, None, testkit_graphs::GRAPH_CRD).await?;
    wait_for_webhooks(&env.cluster).await.with_context(|| env.operator.log_end())?;
    Ok(Some(env))
}

/// Waits until the API server uses the CRDs and webhook configurations; before that, objects are not validated or
/// converted.
async fn wait_for_webhooks(cluster: &Cluster) -> Result<()> {
    let admin = cluster.admin().await?;
    let has_admission = admission::FAMILIES.contains(&Family::Dgdr);
    wait::eventually("the API server calls the webhooks", async || {
        graphs(&admin, "default").list(&Default::default()).await.ok()?;
        let alpha = json!({ "model": "m", "backend": "vllm", "profilingConfig": { "profilerImage": "planner:1.4.0" } });
        create_dry_run(&admin, "default", "v1alpha1", alpha).await.ok()?;
        create_dry_run(&admin, "default", "v1beta1", json!({ "model": "m", "image": "planner:1.4.0" })).await.ok()?;
        let rejection = create_dry_run(&admin, "default", "v1beta1", incompatible()).await.is_err();
        (rejection == has_admission).then_some(())
    })
    .await
}

/// A spec that only the admission webhook rejects, not the schema.
fn incompatible() -> Value {
    json!({ "model": "m", "image": "planner:1.4.0", "searchStrategy": "thorough", "backend": "auto" })
}

/// Creates a request with this spec as a dry run.
async fn create_dry_run(admin: &Client, namespace: &str, version: &str, spec: Value) -> kube::Result<()> {
    let probe: DynamicObject = object(json!({ "apiVersion": format!("nvidia.com/{version}"),
        "kind": "DynamoGraphDeploymentRequest", "metadata": { "name": "probe" }, "spec": spec }));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    requests(admin, namespace, version).create(&dry_run, &probe).await.map(|_| ())
}

/// Exempts the namespace from admission, and waits until the API server has observed it.
pub async fn disable_admission(admin: &Client, namespace: &str) {
    shared_env::disable_admission(admin, namespace).await;
    let accepted = async || create_dry_run(admin, namespace, "v1beta1", incompatible()).await.ok();
    wait::eventually("the namespace is exempt from admission", accepted).await.unwrap();
}

pub fn requests(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    shared_env::objects(client, Family::Dgdr, namespace, version)
}

pub fn graphs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(Family::Dgd.group(), Family::Dgd.storage_version(), Family::Dgd.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, Family::Dgd.plural()))
}
