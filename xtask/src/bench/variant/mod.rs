//! Fleets of VariantAutoscalings: what one change costs.
//! Comes in: how many objects; goes out: a table with a row for each fleet, beside the goals.
//!
//! Each fleet has an API server, a Prometheus and an operator of its own. Workloads and pods are put into the API server's
//! store, as nobody here runs them; the objects are created as users do. One page tells the metrics of a namespace's pods.

mod fleet;
mod row;

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
use steersman_testkit::prometheus::Door;
use steersman_testkit::{Account, Cluster, Flavour, Options, Pods, Prometheus};

use crate::local_cluster;
use crate::operator::{self, Running};
use crate::progress::Progress;

use self::fleet::{IN_NAMESPACE, PODS, SERIES};

const SIZES: [usize; 5] = [10, 100, 500, 1_000, 10_000];

const SETTINGS: &str = "workload-variant-autoscaler-variantautoscaling-config";

/// Requests under way at once.
const AT_ONCE: usize = 16;

/// How many samples Prometheus is given to read in a second: it shall have time for questions.
const SAMPLES: usize = 20_000;

/// All pods have been scraped twice by then, or never will.
const LONGEST: Duration = Duration::from_secs(300);

pub fn run(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let sizes = if sizes.is_empty() { &SIZES } else { sizes };
    tokio::runtime::Runtime::new()?.block_on(measure(sizes, program))
}

async fn measure(sizes: &[usize], program: Option<PathBuf>) -> Result<()> {
    let binaries = local_cluster::programs()?;
    let program = program.map_or_else(|| operator::build(true), Ok)?;
    let mut rows = Vec::new();
    for size in sizes {
        let stage = Stage::new(&binaries, &program, *size).await?;
        let row = row::measure(&stage).await.with_context(|| stage.log())?;
        println!("\n{}", row::told(&row));
        rows.push(row);
    }
    println!("\n{}", row::table(&rows));
    Ok(())
}

/// A fleet whose objects are yet to be created.
struct Stage {
    // In this order: the operator ends before those whom it asks, and the folder goes last.
    running: Running,
    prometheus: Prometheus,
    _pods: Pods,
    client: Client,
    _cluster: Cluster,
    _run: RunFolder,
    size: usize,
}

impl Stage {
    async fn new(binaries: &Binaries, program: &Path, size: usize) -> Result<Self> {
        let run = RunFolder::create(&cache::runs()?)?;
        let progress = Progress::start(&format!("a cluster for {size} objects with {PODS} pods each"));
        let cluster = Cluster::start(binaries, run.path(), &Options::new(Flavour::Bare)).await?;
        let client = cluster.admin().await?;
        let account = Account::install(&cluster).await?;
        progress.done();
        let every = Duration::from_secs((size * PODS * SERIES / SAMPLES).clamp(1, 60) as u64);
        let prometheus = Prometheus::start_scraping(Door::Open, every).await?.context("Prometheus is not built")?;
        let pods = Pods::start().await?;
        populate(&cluster, &client, size).await?;
        play(&prometheus, &pods, size).await?;
        settings(&client, &prometheus).await?;
        let running = operator::start(&cluster, &account, run.path(), program).await?;
        Ok(Self { running, prometheus, _pods: pods, client, _cluster: cluster, _run: run, size })
    }

    fn log(&self) -> String {
        format!("the operator's log ends with:\n{}", self.running.operator.log_end())
    }

    fn variants(&self, object: usize) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &fleet::namespace(object), &resource())
    }

    async fn create(&self, object: usize) -> Result<()> {
        let variant = serde_json::from_value(fleet::variant(object))?;
        self.variants(object).create(&PostParams::default(), &variant).await?;
        Ok(())
    }

    /// One change of the settings of all.
    async fn set(&self, key: &str, value: &str) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), installation::NAMESPACE);
        let patch = Patch::Merge(json!({ "data": { key: value } }));
        maps.patch(SETTINGS, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// One change of one object.
    async fn edit(&self, object: usize, most: usize) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "maxReplicas": most } }));
        self.variants(object).patch(&fleet::name(object), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(Family::Va.group(), Family::Va.storage_version(), Family::Va.kind());
    ApiResource::from_gvk_with_plural(&kind, Family::Va.plural())
}

async fn populate(cluster: &Cluster, client: &Client, size: usize) -> Result<()> {
    let progress = Progress::start(&format!("{size} workloads and {} pods", size * PODS));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names = (0..size).step_by(IN_NAMESPACE).map(fleet::namespace);
    let create = |name: String| {
        let namespaces = namespaces.clone();
        async move {
            let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            namespaces.create(&PostParams::default(), &namespace).await?;
            Ok::<_, anyhow::Error>(())
        }
    };
    let created = stream::iter(names).map(create).buffer_unordered(AT_ONCE);
    created.try_for_each(|()| std::future::ready(Ok(()))).await?;
    cluster.store("deployments", (0..size).map(fleet::deployment)).await?;
    // In parts: a hundred thousand pods at once are much to hold.
    for start in (0..size).step_by(IN_NAMESPACE) {
        cluster.store("pods", (start..size.min(start + IN_NAMESPACE)).flat_map(fleet::pods)).await?;
    }
    progress.done();
    Ok(())
}

/// Until Prometheus has seen all pods, and then what they have done meanwhile.
async fn play(prometheus: &Prometheus, pods: &Pods, size: usize) -> Result<()> {
    let mut progress = Progress::start("scraping the pods");
    for look in 0..2 {
        for start in (0..size).step_by(IN_NAMESPACE) {
            let page = format!("page-{start}");
            pods.say("bench", &page, fleet::page(start..size.min(start + IN_NAMESPACE), look));
            if look == 0 {
                let labels = json!({ "instance": "pages", "__metrics_path__": format!("/pods/bench/{page}/metrics") });
                prometheus.scrape(&page, &pods.address().to_string(), &labels)?;
            }
        }
        let counted = look * fleet::REQUESTS;
        let query = format!("count(vllm:request_success_total == {counted})");
        let limit = std::time::Instant::now() + LONGEST;
        loop {
            let known = number(&prometheus.query(&query).await?);
            if known == (size * PODS) as f64 {
                break;
            }
            anyhow::ensure!(std::time::Instant::now() < limit, "Prometheus knows only {known} pods");
            progress.say(&format!("{known} pods"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    progress.done();
    Ok(())
}

/// Of an answer with one sample.
fn number(answer: &Value) -> f64 {
    answer[0]["value"][1].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Rarely, so that passes are made by changes alone.
async fn settings(client: &Client, prometheus: &Prometheus) -> Result<()> {
    let map = json!({
        "metadata": { "name": SETTINGS },
        "data": {
            "GLOBAL_OPT_INTERVAL": "10m",
            "PROMETHEUS_BASE_URL": prometheus.url(),
            "PROMETHEUS_CA_CERT_PATH": prometheus.file("ca.pem"),
        },
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), installation::NAMESPACE);
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    Ok(())
}
