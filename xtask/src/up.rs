//! `cargo xtask up`: a local cluster to look at, with simulated GPU nodes and examples that come to life. It ends with
//! Ctrl-C; the guard ends what was started.

mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use steersman::cli::ClusterArgs;
use steersman::rbac;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::process::Process;
use steersman_testkit::{Cluster, Flavour, Gpu, NodePool, Options, apply};

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
const EXAMPLES: [&str; 3] = ["examples/llamastack", "examples/dynamo", "cluster/examples"];

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
        operator::install_account(&cluster).await?;
        preflight(&cluster.service_account_kubeconfig(rbac::NAMESPACE, rbac::NAME).await?).await?;
        let mut operator = operator::start(&cluster, run.path(), &program).await?.process;
        apply_examples(&cluster).await?;
        offer(&cluster, &binaries, &operator);
        show::changes(&mut cluster, &mut operator, NAMESPACE).await
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
    let report = steersman::preflight::run(&cluster).await?;
    println!("\n{}", report.lines.join("\n"));
    ensure!(report.ready, "the cluster is not fit for Steersman: see the blockers above");
    Ok(())
}

async fn apply_examples(cluster: &Cluster) -> Result<()> {
    let client = cluster.admin().await?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    apply::manifests(&client, None, &namespace).await?;
    cluster.wait_for_default_account(NAMESPACE).await?;
    let mut files = Vec::new();
    for folder in EXAMPLES {
        let listed = fs::read_dir(crate::root().join(folder)).with_context(|| format!("cannot read {folder}"))?;
        files.extend(listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
    }
    // Those in a folder of their own are to be refused.
    files.retain(|file| file.is_file());
    files.sort();
    for file in files {
        let manifests = fs::read_to_string(&file)?;
        apply::manifests(&client, Some(NAMESPACE), &manifests)
            .await
            .with_context(|| format!("cannot apply {}", file.display()))?;
    }
    Ok(())
}

fn offer(cluster: &Cluster, binaries: &Binaries, operator: &Process) {
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
    println!("  kubectl -n {NAMESPACE} get llsd,dgdr,pods");
    println!("\nThe operator runs with the rights that are shipped; its log: {}", operator.log().display());
    println!("Ctrl-C ends everything.\n");
}
