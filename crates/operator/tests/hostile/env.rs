//! The cluster of these tests, with one operator for all kinds and its usual Lease of 15 seconds.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use steersman::installation::{NAME, NAMESPACE};
use steersman_testkit::{
    Cluster, Flavour, Gpu, NodePool, Operator, OperatorAccount, OperatorCommand, Options, ProcessCluster,
    WebhookFamilies, apply, fake_graphs, object, skip, start_process_cluster, wait,
};
use tokio::sync::OnceCell;

use crate::tenants;

/// Image of containers that run the operator's binary.
const OPERATOR_IMAGE: &str = "example.com/steersman:test";

pub struct TestEnv {
    pub cluster: Cluster,
    pub operator: Operator,
}

/// None if the cluster is not built; the test is then listed as skipped.
pub async fn test_env() -> Option<&'static TestEnv> {
    static ENV: OnceCell<Option<TestEnv>> = OnceCell::const_new();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let env = ENV.get_or_try_init(start).await;
    let env = env.unwrap_or_else(|error| panic!("cannot start the test environment: {error:?}"));
    if env.is_none() {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    env.as_ref()
}

async fn start() -> Result<Option<TestEnv>> {
    let node_pools = vec![NodePool::with_gpus(Gpu::H100, 2), NodePool::without_gpus("plain", 4)];
    let options = Options { node_pools, ..Options::new(Flavour::Full) };
    let Some(ProcessCluster { cluster, folder }) = start_process_cluster(&options).await? else { return Ok(None) };
    let admin = cluster.admin().await?;
    let account = OperatorAccount::install(&cluster).await?;
    apply::apply_manifests(&admin, None, fake_graphs::GRAPH_CRD).await?;
    apply::apply_manifests(&admin, None, &tenants::role().to_string()).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let command = OperatorCommand::new(program, &account.kubeconfig, "hostile");
    let command = command.args(&["--operator-image", OPERATOR_IMAGE]);
    let webhooks = WebhookFamilies { crds: &["dgdr", "llsd", "va"], admission: Some(&[]) };
    let (operator, _) = command.start_with_webhooks(&cluster, &webhooks, &folder.join("log")).await?;
    wait_for_webhooks(&admin).await.with_context(|| operator.log_end())?;
    Ok(Some(TestEnv { cluster, operator }))
}

/// Waits until the API server validates both kinds with admission. Before that, an attack would meet no defence.
async fn wait_for_webhooks(admin: &Client) -> Result<()> {
    let wrong = [
        json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": "probe" }, "spec": { "distribution": { "name": "nobody-knows" } } }),
        json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": "probe" },
            "spec": { "model": "m", "image": "planner:1.4.0", "searchStrategy": "thorough", "backend": "auto" } }),
    ];
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    wait::eventually("the API server calls the webhooks", async || {
        for manifest in &wrong {
            let rejected =
                tenants::objects(admin, "default", manifest).create(&dry_run, &object(manifest.clone())).await;
            matches!(rejected, Err(kube::Error::Api(status)) if status.code == 422).then_some(())?;
        }
        Some(())
    })
    .await
}

impl TestEnv {
    /// The operator has led since its start. Losing the Lease means that it was blocked for longer than 10 seconds.
    pub async fn expect_undisturbed_leader(&self, admin: &Client) {
        let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
        let lease = leases.get(NAME).await.unwrap();
        let name = format!("{} {}", Lease::kind(&()), lease.name_any());
        let spec = lease.spec.unwrap();
        assert_eq!(spec.lease_transitions.unwrap_or_default(), 0, "{name} changed hands\n{}", self.operator.log_end());
        assert!(spec.holder_identity.is_some_and(|holder| !holder.is_empty()), "nobody holds {name}");
        let log = self.operator.log().text();
        assert!(!log.contains("panicked"), "a part of the operator panicked\n{}", self.operator.log_end());
    }
}
