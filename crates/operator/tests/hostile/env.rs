//! The cluster of these tests, with one operator for all kinds and its usual Lease of 15 seconds.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use steersman::installation::{NAME, NAMESPACE};
use steersman_testkit::{
    Cluster, Flavour, Gpu, NodePool, Operator, OperatorAccount, OperatorCommand, Options, ProcessCluster,
    WebhookFamilies, apply, fake_graphs, object, skip, start_process_cluster, wait,
};
use tokio::sync::OnceCell;

use crate::lease::LeaseMonitor;
use crate::network::Network;
use crate::tenants::{self, Tenant, config_map};

/// Image of containers that run the operator's binary.
const OPERATOR_IMAGE: &str = "example.com/steersman:test";

/// Nodes with eight H100 each, and nodes without GPUs.
pub const GPU_NODES: u32 = 2;
pub const PLAIN_NODES: u32 = 4;

/// Time in which a tenant is served, even if the machine was faster without an attack.
const MIN_TIME_LIMIT: Duration = Duration::from_secs(20);

/// Time under attack, compared to that before any attack.
const MAX_SLOWDOWN: u32 = 5;

/// Longest time between two renewals of the Lease. The operator renews it every 2 seconds, and stops after 10 seconds.
const MAX_RENEWAL_GAP: Duration = Duration::from_secs(8);

pub struct TestEnv {
    pub cluster: &'static Cluster,
    pub operator: Operator,
    pub network: Network,
    lease: LeaseMonitor,
    /// Time until a tenant was served before any attack.
    pub baseline: Duration,
}

/// None if the cluster is not built; the test is then listed as skipped.
pub async fn test_env() -> Option<&'static TestEnv> {
    static ENV: OnceCell<Option<&'static TestEnv>> = OnceCell::const_new();
    *ENV.get_or_init(dedicated_env).await
}

/// An environment of one test, which may stop the operator.
pub async fn dedicated_env() -> Option<&'static TestEnv> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let env = start().await.unwrap_or_else(|error| panic!("cannot start the test environment: {error:?}"));
    if env.is_none() {
        skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
    }
    // The programs end with this process.
    env.map(|env| &*Box::leak(Box::new(env)))
}

async fn start() -> Result<Option<TestEnv>> {
    let node_pools = vec![NodePool::with_gpus(Gpu::H100, GPU_NODES), NodePool::without_gpus("plain", PLAIN_NODES)];
    let options = Options { node_pools, ..Options::new(Flavour::Full) };
    let Some(ProcessCluster { cluster, folder }) = start_process_cluster(&options).await? else { return Ok(None) };
    let cluster: &'static Cluster = Box::leak(Box::new(cluster));
    let admin = cluster.admin().await?;
    let account = OperatorAccount::install(cluster).await?;
    apply::apply_manifests(&admin, None, fake_graphs::GRAPH_CRD).await?;
    apply::apply_manifests(&admin, None, &tenants::role().to_string()).await?;
    apply_settings(&admin, cluster).await?;
    let network = Network::start(&folder).await?;
    let variables = network.variables();
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let gateway = network.inside.address.to_string();
    let program = Path::new(env!("CARGO_BIN_EXE_steersman"));
    let command = OperatorCommand::new(program, &account.kubeconfig, "hostile").envs(&variables);
    let command = command.args(&["--operator-image", OPERATOR_IMAGE, "--cluster-gateway", &gateway]);
    let webhooks = WebhookFamilies { crds: &["dgdr", "llsd", "va"], admission: Some(&[]) };
    let (operator, _) = command.start_with_webhooks(cluster, &webhooks, &folder.join("log")).await?;
    wait_for_webhooks(&admin).await.with_context(|| operator.log_end())?;
    let lease = LeaseMonitor::start(cluster);
    let mut env = TestEnv { cluster, operator, network, lease, baseline: wait::TIMEOUT };
    let undisturbed = Tenant::create(cluster, &admin, "undisturbed").await;
    env.baseline = undisturbed.serve(&env).await;
    println!("a tenant without an attack is served within {:?}", env.baseline);
    Ok(Some(env))
}

/// Settings with which all variants are decided every second, from the metrics that their pods serve, and share the GPUs.
async fn apply_settings(admin: &Client, cluster: &Cluster) -> Result<()> {
    let prometheus = json!({
        "GLOBAL_OPT_INTERVAL": "1s",
        "PROMETHEUS_BASE_URL": cluster.description().prometheus_url,
        "PROMETHEUS_CA_CERT": fs::read_to_string(cluster.certificate_authority())?,
    });
    let limiter = json!({ "default": "enableLimiter: true" });
    for map in
        [config_map("variantautoscaling-config", prometheus), config_map("wva-saturation-scaling-config", limiter)]
    {
        apply::apply_manifests(admin, Some(NAMESPACE), &map.to_string()).await?;
    }
    Ok(())
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
    /// Time in which a tenant must be served during an attack.
    pub fn time_limit(&self) -> Duration {
        MIN_TIME_LIMIT.max(self.baseline * MAX_SLOWDOWN)
    }

    /// Waits for an effect that an attack must not delay, and returns the time until then.
    pub async fn expect_in_time(&self, what: &str, holds: impl AsyncFnMut() -> Option<()>) -> Duration {
        let started = Instant::now();
        let seen = wait::eventually_within(self.time_limit(), what, holds).await;
        seen.unwrap_or_else(|error| {
            panic!("{error}; without an attack it took {:?}\n{}", self.baseline, self.operator.log_end())
        });
        started.elapsed()
    }

    /// The operator has led since its start, and has renewed the Lease all the time.
    pub async fn expect_undisturbed_leader(&self, admin: &Client) {
        let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
        let lease = leases.get(NAME).await.unwrap();
        let name = format!("{} {NAME}", Lease::kind(&()));
        let spec = lease.spec.unwrap();
        assert_eq!(spec.lease_transitions.unwrap_or_default(), 0, "{name} changed hands\n{}", self.operator.log_end());
        assert!(spec.holder_identity.is_some_and(|holder| !holder.is_empty()), "nobody holds {name}");
        let gap = self.longest_renewal_gap();
        assert!(gap < MAX_RENEWAL_GAP, "{name} was not renewed for {gap:?}\n{}", self.operator.log_end());
        let log = self.operator.log().text();
        assert!(!log.contains("panicked"), "a part of the operator panicked\n{}", self.operator.log_end());
    }

    pub fn longest_renewal_gap(&self) -> Duration {
        self.lease.longest_gap()
    }

    /// Resident memory of the operator in MiB.
    pub fn memory_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.operator.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }
}
