//! `cargo xtask up --real`: a cluster with a real node, on which the operator, its users' objects and their servers run in
//! containers. Only the engine is simulated.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use steersman_api::Family;
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::fake_graphs::GRAPH_CRD;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::scenario::{MODEL, NAMESPACE, REQUEST, ROLLOUT_TIMEOUT, SERVER, VARIANT};
use steersman_testkit::{apply, wait};
use tokio::sync::mpsc::unbounded_channel;

use super::free_space;
use crate::progress::elapsed;
use crate::up::observe::Observer;
use crate::up::screen::{self, Command, Frame};
use crate::up::{lines, observe, shows_screen};

const SIMULATED: &str = "Containers run; only the model engine is simulated, so answers are random words; \
                         no controller runs the graph yet, so the request stays in Deploying";

/// Fails with one sentence if this machine cannot run a real node.
pub fn check() -> Result<()> {
    match super::missing_requirement()? {
        None => Ok(()),
        Some(why) => Err(anyhow!(
            "a real node cannot run here: {why}; `cargo xtask up` without --real starts the simulated cluster, which needs no root"
        )),
    }
}

/// Starts everything, then shows the state of the objects on a screen, or as lines if the output is no terminal or `plain`.
pub async fn run(release: bool, plain: bool) -> Result<()> {
    let started = Instant::now();
    let parts = super::prepare(release)?;
    let built = started.elapsed();
    let run = RunFolder::create(&cache::runs_folder()?)?;
    let free_before = free_space(run.path());

    let mut steps = Steps { started: Instant::now() };
    let mut cluster = RealCluster::start(&parts, run.path()).await?;
    steps.done("the control plane and a node with DNS");
    let (operator, archive) = &parts.operator;
    cluster.import(archive).await?;
    let imports = async {
        for image in &parts.server_images {
            cluster.import(image).await?;
        }
        anyhow::Ok(())
    };
    let (imported, installed) = tokio::join!(imports, cluster.install_operator(operator));
    imported?;
    installed?;
    cluster.configure_operator().await?;
    steps.done("Steersman, with two replicas, and the images of the servers");
    apply::apply_manifests(&cluster.cluster.admin().await?, None, GRAPH_CRD).await?;
    cluster.start_engine().await?;
    cluster.start_prometheus().await?;
    steps.done("the engine simulator behind Dynamo's frontend, and Prometheus");
    for manifests in [SERVER, REQUEST, VARIANT] {
        cluster.apply(manifests).await?;
    }
    wait_for_status(&cluster, Family::Llsd, "stack", "is Ready", |status| status["phase"] == "Ready").await?;
    steps.done("a LlamaStackDistribution is Ready");
    let url = cluster.service_url(NAMESPACE, "stack-service").await?;
    let model = cluster.wait_for_model(&url, MODEL).await?;
    let answer = cluster.chat(&url, &model).await?;
    steps.done("the first chat completion through a LlamaStackDistribution");
    println!("        {model} answers:{answer}");
    let deploys = |status: &serde_json::Value| status["phase"] == "Deploying";
    wait_for_status(&cluster, Family::Dgdr, "profiled", "has a graph", deploys).await?;
    steps.done("Dynamo's profiler has written the graph of a DynamoGraphDeploymentRequest");

    let (pods, programs) = cluster.memory();
    let figures = [
        ("time", format!("{} to build, {} to start", elapsed(built), elapsed(steps.started.elapsed()))),
        (
            "memory",
            format!("{} for the pods, {} for the control plane and the node", megabytes(pods), megabytes(programs)),
        ),
        ("disk", format!("{} for this run", megabytes(free_before.saturating_sub(free_space(run.path()))))),
    ];
    println!();
    for (name, figure) in &figures {
        println!("{name:<9} {figure}");
    }
    let kubectl = &parts.binaries.control_plane;
    let observer = Observer::new(&cluster.cluster.admin().await?, NAMESPACE);
    // Nothing that runs here is simulated by this process.
    let (_, notes) = unbounded_channel();
    if !shows_screen(plain) {
        print_instructions(&cluster, &kubectl.path("kubectl"), &model);
        return lines::show(|| cluster.ensure_running(), &observer, notes).await;
    }
    let figures: Vec<String> = figures.iter().map(|(name, figure)| format!("{name}: {figure}")).collect();
    let frame = Frame {
        title: "Steersman on a real node",
        simulated: format!("{SIMULATED}; {}", figures.join("; ")),
        namespace: NAMESPACE,
        environment: screen::write_environment(run.path(), &cluster.cluster, kubectl)?,
        commands: server_commands(),
    };
    screen::show(|| cluster.ensure_running(), &observer, notes, frame).await
}

/// Commands that send a request to the server.
fn server_commands() -> Vec<Command> {
    let forward = format!("kubectl -n {NAMESPACE} port-forward service/stack-service 8321:8321 &");
    let command = |line: &str, purpose| Command { line: line.to_owned(), purpose };
    vec![command(&forward, "a way to the server"), command("curl http://127.0.0.1:8321/v1/models", "its models")]
}

/// Prints the steps with the time since the start.
struct Steps {
    started: Instant,
}

impl Steps {
    fn done(&mut self, what: &str) {
        println!("{:>6}  {what}", elapsed(self.started.elapsed()));
    }
}

/// Waits for the status of an object. The error has the state of all pods.
async fn wait_for_status(
    cluster: &RealCluster,
    family: Family,
    name: &str,
    what: &str,
    holds: impl Fn(&serde_json::Value) -> bool,
) -> Result<DynamicObject> {
    let client = cluster.cluster.admin().await?;
    let objects = observe::objects(&client, family, NAMESPACE);
    let described = format!("{} {name} {what}", family.kind());
    let found = wait::eventually_within(ROLLOUT_TIMEOUT, &described, async || {
        objects.get_opt(name).await.ok()?.filter(|object| holds(&object.data["status"]))
    });
    match found.await {
        Ok(object) => Ok(object),
        Err(timeout) => {
            let pods = Api::<Pod>::namespaced(client, NAMESPACE).list(&ListParams::default()).await?;
            let lines = pods.items.iter().map(lines::pod_line).collect::<Vec<_>>().join("\n");
            let status = objects.get_opt(name).await?.map(|object| object.data["status"].to_string());
            Err(timeout.context(format!("status: {}\npods:\n{lines}", status.unwrap_or_default())))
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}

fn print_instructions(cluster: &RealCluster, kubectl: &Path, model: &str) {
    println!("\nIn another terminal:");
    println!("  export KUBECONFIG='{}'", cluster.cluster.admin_kubeconfig().display());
    println!("  alias kubectl='{}'", kubectl.display());
    println!("  kubectl get pods -A");
    println!("  kubectl -n {NAMESPACE} get llsd,dgdr,dgd,va");
    println!("  kubectl -n {NAMESPACE} logs job/$(kubectl -n {NAMESPACE} get jobs -o name | cut -d/ -f2) -c profiler");
    println!("  kubectl -n steersman-system logs deployment/steersman");
    println!("  kubectl -n {NAMESPACE} port-forward service/stack-service 8321:8321 &");
    println!("  curl http://127.0.0.1:8321/v1/models");
    println!("  curl http://127.0.0.1:8321/v1/chat/completions -H 'content-type: application/json' \\");
    println!("    -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'");
    println!(
        "\nAll of this runs in containers. The engine is Dynamo's engine simulator: its answers are random words."
    );
    println!("No controller for DynamoGraphDeployments exists yet, so the request stays in the phase Deploying.");
    println!("Ctrl-C ends everything.\n");
}
