//! `cargo xtask up`: runs a local cluster with simulated GPU nodes, applies the examples to it, and shows their state. Pods do
//! not run containers; the parts that would run inside them are simulated by this process. Ctrl-C ends it, and the guard ends
//! its processes.

mod fleet;
mod graphs;
pub mod lines;
mod object_state;
pub mod observe;
mod profilers;
pub mod screen;
mod servers;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::json;
use steersman::args::ClusterArgs;
use steersman_testkit::binaries::Binaries;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour};
use steersman_testkit::{
    Cluster, Flavour, Gpu, NodePool, Operator, OperatorAccount, Options, apply, fake_graphs as testkit_graphs,
};
use tokio::sync::mpsc::unbounded_channel;

use self::observe::Observer;
use crate::progress::Progress;
use crate::{go_programs, operator, real, terminal};

#[derive(Args)]
pub struct Up {
    /// Check this cluster with `steersman preflight` instead of starting one; nothing is changed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api_port", "prometheus_port"])]
    kubeconfig: Option<PathBuf>,
    /// Run containers on a real node instead of simulated ones: Steersman, its servers and Dynamo's profiler; needs root
    #[arg(long, conflicts_with_all = ["kubeconfig", "api_port", "prometheus_port"])]
    real: bool,
    /// Build the operator in release mode: the build is slower, but speed and memory are those of a release
    #[arg(long, conflicts_with = "kubeconfig")]
    release: bool,
    /// Port of the API server [default: any free port]
    #[arg(long, value_name = "PORT")]
    api_port: Option<u16>,
    /// Port of Prometheus [default: any free port]
    #[arg(long, value_name = "PORT")]
    prometheus_port: Option<u16>,
    /// Print a line for each change instead of showing a screen, as is done if the output is not a terminal
    #[arg(long, conflicts_with = "kubeconfig")]
    plain: bool,
}

const PREFLIGHT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Objects of users, and pods that show the annotations for simulated pods.
const EXAMPLE_FOLDERS: [&str; 4] = ["examples/llamastack", "examples/dynamo", "examples/variant", "cluster/examples"];

/// File in the cache folder with the operator's log of the last run that failed.
const KEPT_LOG: &str = "up-failed.log";

const SIMULATED: &str = "No containers run. Simulated: Llama Stack servers, profilers, graphs, load, HPAs";

/// Namespace of the examples.
const NAMESPACE: &str = "examples";

impl Up {
    pub fn run(self) -> Result<()> {
        if let Some(kubeconfig) = &self.kubeconfig {
            ensure!(kubeconfig.is_file(), "--kubeconfig: file {} does not exist", kubeconfig.display());
        }
        if self.real {
            real::up::check()?;
        }
        tokio::runtime::Runtime::new()?.block_on(async {
            match &self.kubeconfig {
                _ if self.real => real::up::run(self.release, self.plain).await,
                Some(kubeconfig) => {
                    preflight(kubeconfig).await?;
                    println!("\nNothing was changed.");
                    Ok(())
                }
                None => self.run_local_cluster().await,
            }
        })
    }

    async fn run_local_cluster(&self) -> Result<()> {
        let binaries = go_programs::cluster_programs()?;
        // The build comes first: the start of the cluster would compete with the compiler.
        let program = operator::build(self.release)?;
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let progress = Progress::start("starting the local cluster");
        let options = Options {
            flavour: Flavour::Full,
            api_port: self.api_port,
            prometheus_port: self.prometheus_port,
            node_pools: node_pools(),
            ..Options::new(Flavour::Full)
        };
        let mut cluster = Cluster::start(&binaries, run.path(), &options).await?;
        progress.done();
        let account = OperatorAccount::install(&cluster).await?;
        preflight(&account.kubeconfig).await?;
        let admin = cluster.admin().await?;
        settings::apply(&cluster, &admin).await?;
        apply::apply_manifests(&admin, None, testkit_graphs::GRAPH_CRD).await?;
        let gateway = servers::start(&admin).await?;
        let running = operator::start(&cluster, &account, run.path(), &program, Some(gateway.address())).await?;
        // The namespace label is that of the operator's pod, as with a ServiceMonitor, not that of the objects.
        cluster.add_scrape_target("steersman", &running.metrics, &json!({ "namespace": account.namespace }))?;
        let mut operator = running.operator;
        apply_examples(&cluster).await?;
        // A second handle for the simulators, because `show` borrows the cluster mutably.
        let opened = Cluster::open(run.path())?;
        let profilers = run.path().join("profilers");
        let observer = Observer::new(&admin, NAMESPACE);
        let (notes, received_notes) = unbounded_channel();
        let show = async {
            if shows_screen(self.plain) {
                let frame = screen::Frame {
                    title: "Steersman on a local cluster",
                    simulated: SIMULATED.to_owned(),
                    namespace: NAMESPACE,
                    environment: screen::write_environment(run.path(), &cluster, &binaries)?,
                    commands: Vec::new(),
                };
                let ensure_running = || cluster.ensure_running().and_then(|()| operator.ensure_running());
                screen::show(ensure_running, &observer, received_notes, frame).await
            } else {
                print_instructions(&cluster, &binaries, &operator);
                let ensure_running = || cluster.ensure_running().and_then(|()| operator.ensure_running());
                lines::show(ensure_running, &observer, received_notes).await
            }
        };
        let ended = tokio::select! {
            ended = show => ended,
            ended = profilers::simulate(&opened, &program, &profilers, NAMESPACE, &notes) => ended,
            ended = graphs::simulate(admin, NAMESPACE) => ended,
            ended = fleet::simulate(&opened, NAMESPACE, &notes) => ended,
        };
        ended.map_err(|error| match keep_log(operator.log().path()) {
            Some(kept) => anyhow!("{error:#}\nThe whole log of the operator is kept in {}", kept.display()),
            None => error,
        })
    }
}

/// Whether the state is shown on a screen instead of as lines.
pub fn shows_screen(plain: bool) -> bool {
    !plain && terminal::is_usable(std::os::unix::process::parent_id())
}

/// Copies the operator's log out of the folder of the run, which is removed. `None` if that fails, as on a full disk: the
/// error that ended the run matters more.
fn keep_log(log: &Path) -> Option<PathBuf> {
    let kept = cache::folder().ok()?.join(KEPT_LOG);
    fs::copy(log, &kept).ok()?;
    Some(kept)
}

/// Two pools with large GPUs, one with small GPUs, and one without GPUs.
fn node_pools() -> Vec<NodePool> {
    vec![
        NodePool::with_gpus(Gpu::H200, 2),
        NodePool::with_gpus(Gpu::H100, 2),
        NodePool::with_gpus(Gpu::L40S, 2),
        NodePool::without_gpus("cpu", 2),
    ]
}

/// Prints the report of `steersman preflight`. Fails if it contains a blocker.
async fn preflight(kubeconfig: &Path) -> Result<()> {
    let cluster = ClusterArgs {
        kubeconfig: Some(kubeconfig.to_owned()),
        context: None,
        request_timeout: PREFLIGHT_REQUEST_TIMEOUT,
    };
    let report = steersman::preflight::run(&cluster, steersman::rbac::all_rights()).await?;
    println!("\n{}", report.lines.join("\n"));
    ensure!(report.ready, "the cluster does not meet the requirements of Steersman: see the blockers above");
    Ok(())
}

async fn apply_examples(cluster: &Cluster) -> Result<()> {
    let client = cluster.admin().await?;
    // The pod of a Job runs until its simulated profiler has ended.
    let metadata =
        json!({ "name": NAMESPACE, "annotations": { BEHAVIOUR_ANNOTATION: PodBehaviour::Hang.annotation_value() } });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    apply::apply_manifests(&client, None, &namespace.to_string()).await?;
    cluster.wait_for_default_account(NAMESPACE).await?;
    let mut files = Vec::new();
    for folder in EXAMPLE_FOLDERS {
        let listed = fs::read_dir(crate::root().join(folder)).with_context(|| format!("cannot read {folder}"))?;
        files.extend(listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
    }
    files.retain(|file| is_applied(file));
    files.sort();
    for file in files {
        let manifests = fs::read_to_string(&file)?;
        apply::apply_manifests(&client, Some(NAMESPACE), &manifests)
            .await
            .with_context(|| format!("cannot apply {}", file.display()))?;
    }
    Ok(())
}

/// Leaves out the invalid examples, and the settings, which belong to another namespace.
fn is_applied(file: &Path) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    file.is_file() && name.ends_with(".yaml") && !name.contains("invalid") && !file.ends_with(settings::EXAMPLE)
}

fn print_instructions(cluster: &Cluster, binaries: &Binaries, operator: &Operator) {
    let description = cluster.description();
    println!("\nThe local cluster is up: {}", description.api_url);
    for pool in node_pools() {
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
        "\nNo containers run in the pods. Simulated are: the profiler of each request (its relay container is the real program),"
    );
    println!(
        "the Llama Stack servers, the operator of the graphs, the load on the pods of each VariantAutoscaling, and the HPAs that \
         scale them."
    );
    println!("\nThe operator runs with the RBAC rules that are shipped. Its log: {}", operator.log().path().display());
    println!("Ctrl-C ends everything.\n");
}
