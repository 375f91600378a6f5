//! `cargo xtask up`: a local cluster to look at, with simulated GPU nodes and examples that come to life. What would run
//! inside pods is played. It ends with Ctrl-C; the guard ends what was started.

mod fleet;
mod graphs;
mod profilers;
mod settings;
mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use steersman::args::ClusterArgs;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::play::{PLAY, Play};
use steersman_testkit::{Account, Cluster, Flavour, Gpu, NodePool, Operator, Options, apply, graphs as stand_in};

use crate::progress::Progress;
use crate::{local_cluster, operator};

#[derive(Args)]
pub struct Up {
    /// Use this cluster instead of starting one: say what Steersman finds there, and change nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api_port", "prometheus_port"])]
    kubeconfig: Option<PathBuf>,
    /// Build the operator as it is shipped: slower to build, and what its speed and memory are to be judged by
    #[arg(long, conflicts_with = "kubeconfig")]
    release: bool,
    /// Port of the API server [default: any free one]
    #[arg(long, value_name = "PORT")]
    api_port: Option<u16>,
    /// Port of Prometheus [default: any free one]
    #[arg(long, value_name = "PORT")]
    prometheus_port: Option<u16>,
}

/// How long one request of the preflight may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is shown: users' objects, and what simulated pods can be told to do.
const EXAMPLES: [&str; 4] = ["examples/llamastack", "examples/dynamo", "examples/variant", "cluster/examples"];

/// The namespace that the examples go to.
const NAMESPACE: &str = "examples";

impl Up {
    pub fn run(self) -> Result<()> {
        if let Some(kubeconfig) = &self.kubeconfig {
            ensure!(kubeconfig.is_file(), "--kubeconfig: there is no file {}", kubeconfig.display());
        }
        tokio::runtime::Runtime::new()?.block_on(async {
            match &self.kubeconfig {
                Some(kubeconfig) => {
                    preflight(kubeconfig).await?;
                    println!("\nNothing was changed. What to install, and how, is in the README.");
                    Ok(())
                }
                None => self.run_local_cluster().await,
            }
        })
    }

    async fn run_local_cluster(&self) -> Result<()> {
        let binaries = local_cluster::programs()?;
        // Before the cluster starts, which would compete with the compiler.
        let program = operator::build(self.release)?;
        let run = RunFolder::create(&cache::runs()?)?;
        let progress = Progress::start("starting the local cluster");
        let options = Options {
            flavour: Flavour::Full,
            api_port: self.api_port,
            prometheus_port: self.prometheus_port,
            fleet: usual_fleet(),
        };
        let mut cluster = Cluster::start(&binaries, run.path(), &options).await?;
        progress.done();
        let account = Account::install(&cluster).await?;
        preflight(&account.kubeconfig).await?;
        let admin = cluster.admin().await?;
        settings::apply(&cluster, &admin).await?;
        apply::manifests(&admin, None, stand_in::CRD).await?;
        let running = operator::start(&cluster, &account, run.path(), &program).await?;
        // The way in which it is scraped in a cluster: its pod's namespace is not that of the objects.
        cluster.scrape("steersman", &running.metrics, &json!({ "namespace": account.namespace }))?;
        let mut operator = running.operator;
        apply_examples(&cluster).await?;
        offer(&cluster, &binaries, &operator);
        // For the players: the programs are looked after below.
        let opened = Cluster::open(run.path())?;
        let profilers = run.path().join("profilers");
        tokio::select! {
            ended = show::changes(&mut cluster, &mut operator, NAMESPACE) => ended,
            ended = profilers::play(&opened, &program, &profilers, NAMESPACE) => ended,
            ended = graphs::play(admin, NAMESPACE) => ended,
            ended = fleet::play(&opened, NAMESPACE) => ended,
        }
    }
}

/// Two pools of large GPUs, one of small ones, and nodes without any.
fn usual_fleet() -> Vec<NodePool> {
    vec![
        NodePool::usual(Gpu::H200, 2),
        NodePool::usual(Gpu::H100, 2),
        NodePool::usual(Gpu::L40S, 2),
        NodePool::plain("cpu", 2),
    ]
}

/// What `steersman preflight` says about the cluster.
async fn preflight(kubeconfig: &Path) -> Result<()> {
    let cluster = ClusterArgs { kubeconfig: Some(kubeconfig.to_owned()), context: None, request_timeout: PATIENCE };
    let report = steersman::preflight::run(&cluster, steersman::rbac::all_rights()).await?;
    println!("\n{}", report.lines.join("\n"));
    ensure!(report.ready, "the cluster is not fit for Steersman: see the blockers above");
    Ok(())
}

async fn apply_examples(cluster: &Cluster) -> Result<()> {
    let client = cluster.admin().await?;
    // Pods of Jobs run until their profiler is played to its end.
    let metadata = json!({ "name": NAMESPACE, "annotations": { PLAY: Play::Hang.value() } });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    apply::manifests(&client, None, &namespace.to_string()).await?;
    cluster.wait_for_default_account(NAMESPACE).await?;
    let mut files = Vec::new();
    for folder in EXAMPLES {
        let listed = fs::read_dir(crate::root().join(folder)).with_context(|| format!("cannot read {folder}"))?;
        files.extend(listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
    }
    files.retain(|file| is_shown(file));
    files.sort();
    for file in files {
        let manifests = fs::read_to_string(&file)?;
        apply::manifests(&client, Some(NAMESPACE), &manifests)
            .await
            .with_context(|| format!("cannot apply {}", file.display()))?;
    }
    Ok(())
}

/// Not those that are to be refused, nor settings, which are not for this namespace.
fn is_shown(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    file.is_file() && name.ends_with(".yaml") && !name.contains("invalid") && !file.ends_with(settings::EXAMPLE)
}

fn offer(cluster: &Cluster, binaries: &Binaries, operator: &Operator) {
    let description = cluster.description();
    println!("\nThe local cluster is up: {}", description.api_url);
    for pool in usual_fleet() {
        let gpus = pool.gpus.map_or_else(String::new, |(gpu, count)| format!(" with {count} x {}", gpu.product));
        println!("  {} nodes {}-*{gpus}", pool.nodes, pool.name);
    }
    if let Some(url) = &description.prometheus_url {
        println!("  Prometheus {url}");
    }
    println!("\nIn another terminal:");
    println!("  export KUBECONFIG='{}'", cluster.admin_kubeconfig().display());
    println!("  alias kubectl='{}'", binaries.path("kubectl").display());
    println!("  kubectl -n {NAMESPACE} get llsd,dgdr,dgd,va,pods");
    println!(
        "\nNothing runs inside pods here. Played are: the profiler of each request (the relay beside it is the real one),"
    );
    println!(
        "whoever runs the graphs, the load on pods that have a VariantAutoscaling, and the HPAs that follow its number."
    );
    println!("\nThe operator runs with the rights that are shipped; its log: {}", operator.log().path().display());
    println!("Ctrl-C ends everything.\n");
}
