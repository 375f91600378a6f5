//! Simulates the profiler in the pod of each profiling Job: writes the files of a profiler, phase by phase, and runs the
//! real relay.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_plan::dynamo::graph::merge::merge;
use steersman_plan::dynamo::{names, profile_job};
use steersman_testkit::{Cluster, FakeProfiler};
use tokio::time;

use super::observe::{self, Notes, POLL_INTERVAL, list};

/// Duration of a phase once the request's status shows it. A real phase takes minutes.
const PHASE_DURATION: Duration = Duration::from_secs(2);

/// Limit for a phase to appear in the request's status; the operator may be unable to write it.
const PHASE_REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The phases that a profiler reports, with their messages.
const PHASES: [(&str, &str); 6] = [
    ("Initializing", "Profiler job started"),
    ("SweepingPrefill", "Benchmarking prefill candidate 1/1: TP1 (1 GPUs)"),
    ("SweepingDecode", "Benchmarking decode candidate 1/1: TP1 (1 GPUs)"),
    ("SelectingConfig", "Filtering results and selecting cost-efficient configuration"),
    ("BuildingCurves", "Building interpolation curves for planner integration"),
    ("GeneratingDGD", "Packaging data and generating final DGD YAML"),
];

/// Never returns, except with an error. `folder` holds the files of the profilers.
pub async fn simulate(cluster: &Cluster, program: &Path, folder: &Path, namespace: &str, notes: &Notes) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin().await?, namespace);
    let (mut started, mut running) = (BTreeSet::new(), FuturesUnordered::new());
    loop {
        for pod in list(&pods).await.into_iter().flatten().filter(has_running_profiler) {
            if started.insert(pod.name_any()) {
                running.push(simulate_profiler(cluster, program, folder.join(pod.name_any()), pod));
            }
        }
        tokio::select! {
            () = time::sleep(POLL_INTERVAL) => {}
            Some((name, Err(error))) = running.next() => {
                notes.send(format!("the profiler in pod {name} failed: {error:#}"))?;
            }
        }
    }
}

fn has_running_profiler(pod: &Pod) -> bool {
    let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    runs && spec(pod).is_some()
}

/// The spec in the arguments of the profiler.
fn spec(pod: &Pod) -> Option<Value> {
    let profiler = pod.spec.as_ref()?.containers.iter().find(|container| container.name == profile_job::PROFILER)?;
    let mut args = profiler.args.iter().flatten().skip_while(|arg| *arg != "--config");
    serde_json::from_str(args.nth(1)?).ok()
}

/// Returns the name of the pod with the result.
async fn simulate_profiler(cluster: &Cluster, program: &Path, folder: PathBuf, pod: Pod) -> (String, Result<()>) {
    (pod.name_any(), profile(cluster, program, &folder, &pod).await)
}

async fn profile(cluster: &Cluster, program: &Path, folder: &Path, pod: &Pod) -> Result<()> {
    let spec = spec(pod).context("the pod has no profiler container")?;
    let namespace = pod.namespace().context("the pod has no namespace")?;
    let requests = observe::objects(&cluster.admin().await?, Family::Dgdr, &namespace);
    let request =
        pod.labels().get(names::LABEL_PROFILED).context("the pod has no label with the name of its request")?;
    let mut profiler = FakeProfiler::start(cluster, program, folder, pod).await?;
    for (phase, message) in PHASES {
        profiler.report_progress(phase, message)?;
        // The relay polls the profiler's files and could miss a short phase: wait until the status shows this one.
        let _ = time::timeout(PHASE_REPORT_TIMEOUT, wait_for_phase(&requests, request, phase)).await;
        time::sleep(PHASE_DURATION).await;
    }
    match result(&spec) {
        Ok(result) => profiler.succeed(&result).await,
        Err(problem) => profiler.fail("GeneratingDGD", &problem).await,
    }
}

/// Waits until the request's status shows this phase, or the request is deleted.
async fn wait_for_phase(requests: &Api<DynamicObject>, request: &str, phase: &str) {
    loop {
        match requests.get_opt(request).await {
            Ok(Some(found)) if found.data["status"]["profilingPhase"] != phase => {}
            Ok(_) => return,
            // The API server is busy: try again.
            Err(_) => {}
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// A small graph as a YAML stream, after the ConfigMap that it needs. Err: the profiler's message about overrides that do
/// not fit.
fn result(spec: &Value) -> Result<String, String> {
    let image = spec["image"].as_str().unwrap_or_default();
    let backend = spec["backend"].as_str().filter(|name| *name != "auto").unwrap_or("vllm");
    let engine = if spec["features"]["mocker"]["enabled"] == true { "mocker" } else { backend };
    let container = |module: &str, more: Value| {
        let mut main = json!({ "name": "main", "image": runtime(image, engine), "command": ["python3"],
            "args": ["-m", format!("dynamo.{module}")] });
        for (name, value) in more.as_object().into_iter().flatten() {
            main[name] = value.clone();
        }
        json!({ "spec": { "containers": [main] } })
    };
    let worker = if backend == "vllm" { "VllmDecodeWorker" } else { "decode" };
    let gpu = json!({ "resources": { "limits": { "nvidia.com/gpu": "1" } } });
    let mut components = vec![
        json!({ "name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": container("frontend", json!({})) }),
        json!({ "name": worker, "type": "worker", "replicas": 2, "podTemplate": container(engine, gpu) }),
    ];
    let mut documents = Vec::new();
    if let Some(planner) = spec["features"].get("planner") {
        let name = format!("planner-config-{:04x}", planner.to_string().len());
        documents.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "planner_config.json": planner.to_string() } }));
        let template = container("planner", json!({}));
        components.push(json!({ "name": "Planner", "type": "planner", "replicas": 1, "podTemplate": template }));
    }
    let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": { "name": format!("{engine}-agg") }, "spec": { "components": components } });
    // A real profiler runs a program of the operator for this, which calls the same function.
    let graph = match (graph.as_object(), spec["overrides"]["dgd"].as_object()) {
        (Some(graph), Some(wanted)) => json!(merge(graph, wanted)?.graph),
        _ => graph,
    };
    documents.push(graph);
    Ok(documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))
}

/// The runtime image of the engine, with the same registry and tag as the profiler's image.
fn runtime(image: &str, engine: &str) -> String {
    let name = match engine {
        "trtllm" => "tensorrtllm-runtime".to_owned(),
        "mocker" => return image.to_owned(),
        other => format!("{other}-runtime"),
    };
    let (registry, last) = image.rsplit_once('/').unwrap_or(("nvcr.io", image));
    let tag = last.find(['@', ':']).and_then(|at| last.get(at..)).unwrap_or_default();
    format!("{registry}/{name}{tag}")
}
