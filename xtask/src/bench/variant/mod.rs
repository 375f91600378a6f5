//! Measures the cost of one change in fleets of VariantAutoscalings, and prints a row for each size of fleet.
//!
//! Each fleet has its own API server, Prometheus and operator. Workloads and pods are written directly into etcd, because
//! no controller runs them; the objects are created through the API. The metrics of all pods of a namespace are one page.

mod fleet;
mod row;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman::installation;
use steersman_api::Family;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::{Cluster, FakePodMetrics, Flavour, OperatorAccount, Options, PrometheusServer};

use crate::go_programs;
use crate::operator::{self, Running};
use crate::progress::Progress;

use self::fleet::{OBJECTS_PER_NAMESPACE, PODS_PER_OBJECT, SERIES_PER_POD};

const DEFAULT_SIZES: [usize; 5] = [10, 100, 500, 1_000, 10_000];

const SETTINGS: &str = "workload-variant-autoscaler-variantautoscaling-config";

const MAX_CONCURRENT_REQUESTS: usize = 16;

/// The scrape interval grows with the fleet, so that Prometheus has time for queries.
const MAX_SAMPLES_PER_SECOND: usize = 20_000;

/// Limit for one round of scrapes.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(300);

pub fn run(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let sizes = if sizes.is_empty() { &DEFAULT_SIZES } else { sizes };
    tokio::runtime::Runtime::new()?.block_on(measure(sizes, program))
}

async fn measure(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let binaries = go_programs::cluster_programs()?;
    let program = program.map_or_else(|| operator::build(true), Ok)?;
    let mut rows = Vec::new();
    for size in sizes {
        let env = BenchEnv::new(&binaries, &program, *size).await?;
        let row = row::measure(&env).await.with_context(|| env.log())?;
        println!("\n{}", row::summary(&row));
        rows.push(row);
    }
    println!("\n{}", row::table(&rows));
    Ok(())
}

/// A cluster with the workloads and pods of a fleet, whose VariantAutoscalings are not created yet.
struct BenchEnv {
    // Fields are dropped in this order: the operator before the servers that it calls, and the folder last.
    running: Running,
    prometheus: PrometheusServer,
    _pods: FakePodMetrics,
    client: Client,
    _cluster: Cluster,
    _run: RunFolder,
    size: usize,
}

impl BenchEnv {
    async fn new(binaries: &Binaries, program: &Path, size: usize) -> Result<Self> {
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let progress =
            Progress::start(&format!("starting a cluster for {size} objects with {PODS_PER_OBJECT} pods each"));
        let cluster = Cluster::start(binaries, run.path(), &Options::new(Flavour::Bare)).await?;
        let client = cluster.admin().await?;
        let account = OperatorAccount::install(&cluster).await?;
        progress.done();
        let every =
            Duration::from_secs((size * PODS_PER_OBJECT * SERIES_PER_POD / MAX_SAMPLES_PER_SECOND).clamp(1, 60) as u64);
        let prometheus = PrometheusServer::start_with_interval(ClientAuth::NotRequired, every)
            .await?
            .context("Prometheus is not built")?;
        let pods = FakePodMetrics::start().await?;
        populate(&cluster, &client, size).await?;
        scrape_pods(&prometheus, &pods, size).await?;
        create_settings(&client, &prometheus).await?;
        let running = operator::start(&cluster, &account, run.path(), program, None).await?;
        Ok(Self { running, prometheus, _pods: pods, client, _cluster: cluster, _run: run, size })
    }

    fn log(&self) -> String {
        format!("end of the operator's log:\n{}", self.running.operator.log_end())
    }

    fn variants(&self, object: usize) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &fleet::namespace(object), &resource())
    }

    async fn create(&self, object: usize) -> Result<()> {
        let variant = serde_json::from_value(fleet::variant(object))?;
        self.variants(object).create(&PostParams::default(), &variant).await?;
        Ok(())
    }

    /// Changes one setting of the whole fleet.
    async fn change_setting(&self, key: &str, value: &str) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), installation::NAMESPACE);
        let patch = Patch::Merge(json!({ "data": { key: value } }));
        maps.patch(SETTINGS, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn edit(&self, object: usize, max_replicas: usize) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "maxReplicas": max_replicas } }));
        self.variants(object).patch(&fleet::name(object), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(Family::Va.group(), Family::Va.storage_version(), Family::Va.kind());
    ApiResource::from_gvk_with_plural(&kind, Family::Va.plural())
}

async fn populate(cluster: &Cluster, client: &Client, size: usize) -> Result<()> {
    let progress = Progress::start(&format!("creating {size} workloads and {} pods", size * PODS_PER_OBJECT));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names = (0..size).step_by(OBJECTS_PER_NAMESPACE).map(fleet::namespace);
    let create = |name: String| {
        let namespaces = namespaces.clone();
        async move {
            let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            namespaces.create(&PostParams::default(), &namespace).await?;
            Ok::<_, anyhow::Error>(())
        }
    };
    let created = stream::iter(names).map(create).buffer_unordered(MAX_CONCURRENT_REQUESTS);
    created.try_for_each(|()| std::future::ready(Ok(()))).await?;
    cluster.write_to_etcd("deployments", (0..size).map(fleet::deployment)).await?;
    // The pods are stored by namespace: 100,000 pods at once would take much memory.
    for start in (0..size).step_by(OBJECTS_PER_NAMESPACE) {
        cluster.write_to_etcd("pods", (start..size.min(start + OBJECTS_PER_NAMESPACE)).flat_map(fleet::pods)).await?;
    }
    progress.done();
    Ok(())
}

/// Waits until Prometheus has scraped all pods twice, the second time with higher counters, so that rates exist.
async fn scrape_pods(prometheus: &PrometheusServer, pods: &FakePodMetrics, size: usize) -> Result<()> {
    let mut progress = Progress::start("scraping the pods");
    for scrape_round in 0..2 {
        for start in (0..size).step_by(OBJECTS_PER_NAMESPACE) {
            let page = format!("page-{start}");
            pods.set("bench", &page, fleet::page(start..size.min(start + OBJECTS_PER_NAMESPACE), scrape_round));
            if scrape_round == 0 {
                let labels = json!({ "instance": "pages", "__metrics_path__": format!("/pods/bench/{page}/metrics") });
                prometheus.add_target(&page, &pods.address().to_string(), &labels)?;
            }
        }
        let counted = scrape_round * fleet::REQUESTS_PER_POD;
        let query = format!("count(vllm:request_success_total == {counted})");
        let limit = std::time::Instant::now() + SCRAPE_TIMEOUT;
        loop {
            let known = sample_value(&prometheus.query(&query).await?);
            if known == (size * PODS_PER_OBJECT) as f64 {
                break;
            }
            anyhow::ensure!(
                std::time::Instant::now() < limit,
                "Prometheus has scraped only {known} of {} pods after {} s",
                size * PODS_PER_OBJECT,
                SCRAPE_TIMEOUT.as_secs()
            );
            progress.update(&format!("{known} pods scraped"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    progress.done();
    Ok(())
}

/// The value of a result with one sample.
fn sample_value(answer: &Value) -> f64 {
    answer[0]["value"][1].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The settings of the fleet. The interval is long, so that only changes cause a reconcile.
async fn create_settings(client: &Client, prometheus: &PrometheusServer) -> Result<()> {
    let map = json!({
        "metadata": { "name": SETTINGS },
        "data": {
            "GLOBAL_OPT_INTERVAL": "10m",
            "PROMETHEUS_BASE_URL": prometheus.url(),
            "PROMETHEUS_CA_CERT": fs::read_to_string(prometheus.file("ca.pem"))?,
        },
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), installation::NAMESPACE);
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    Ok(())
}
