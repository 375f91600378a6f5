//! Plays the profiler of every request: nothing runs inside the pods of this cluster.
//! Comes in: pods of profiling Jobs; goes out: what a profiler writes, phase by phase, with the real relay beside it.

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
use steersman_testkit::{Cluster, Profiler};
use tokio::time;

use super::show::{self, LOOK_EVERY, listed};

/// How long each phase takes once it is told; a real one takes minutes.
const PHASE: Duration = Duration::from_secs(2);

/// How long a phase waits to be told, where nobody may be there who would.
const TOLD: Duration = Duration::from_secs(60);

/// What a profiler says on its way.
const SAID: [(&str, &str); 6] = [
    ("Initializing", "Profiler job started"),
    ("SweepingPrefill", "Benchmarking prefill candidate 1/1: TP1 (1 GPUs)"),
    ("SweepingDecode", "Benchmarking decode candidate 1/1: TP1 (1 GPUs)"),
    ("SelectingConfig", "Filtering results and selecting cost-efficient configuration"),
    ("BuildingCurves", "Building interpolation curves for planner integration"),
    ("GeneratingDGD", "Packaging data and generating final DGD YAML"),
];

/// Without end. `folder` is for the profilers' files.
pub async fn play(cluster: &Cluster, program: &Path, folder: &Path, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin().await?, namespace);
    let (mut known, mut playing) = (BTreeSet::new(), FuturesUnordered::new());
    loop {
        for pod in listed(&pods).await.into_iter().flatten().filter(profiles) {
            if known.insert(pod.name_any()) {
                playing.push(one(cluster, program, folder.join(pod.name_any()), pod));
            }
        }
        tokio::select! {
            () = time::sleep(LOOK_EVERY) => {}
            Some((name, Err(error))) = playing.next() => println!("played: the profiler in {name} gives up: {error:#}"),
        }
    }
}

/// Whether a profiler runs in it.
fn profiles(pod: &Pod) -> bool {
    let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    runs && spec(pod).is_some()
}

/// What the profiler is asked.
fn spec(pod: &Pod) -> Option<Value> {
    let profiler = pod.spec.as_ref()?.containers.iter().find(|known| known.name == profile_job::PROFILER)?;
    let mut args = profiler.args.iter().flatten().skip_while(|arg| *arg != "--config");
    serde_json::from_str(args.nth(1)?).ok()
}

/// Under the name of its pod.
async fn one(cluster: &Cluster, program: &Path, folder: PathBuf, pod: Pod) -> (String, Result<()>) {
    (pod.name_any(), profile(cluster, program, &folder, &pod).await)
}

async fn profile(cluster: &Cluster, program: &Path, folder: &Path, pod: &Pod) -> Result<()> {
    let spec = spec(pod).context("the pod has no profiler")?;
    let namespace = pod.namespace().context("the pod has no namespace")?;
    let requests = show::objects(&cluster.admin().await?, Family::Dgdr, &namespace);
    let request = pod.labels().get(names::LABEL_PROFILED).context("the pod is of no request")?;
    let mut profiler = Profiler::start(cluster, program, folder, pod).await?;
    for (phase, message) in SAID {
        profiler.says(phase, message)?;
        // The relay looks as seldom as the phases change: one of them could go by between two of its looks.
        let _ = time::timeout(TOLD, until_told(&requests, request, phase)).await;
        time::sleep(PHASE).await;
    }
    match result(&spec) {
        Ok(result) => profiler.succeeds(&result).await,
        Err(problem) => profiler.fails("GeneratingDGD", &problem).await,
    }
}

/// Until the request says that it is in this phase, or is gone.
async fn until_told(requests: &Api<DynamicObject>, request: &str, phase: &str) {
    loop {
        match requests.get_opt(request).await {
            Ok(Some(found)) if found.data["status"]["profilingPhase"] != phase => {}
            Ok(_) => return,
            // As long as the API server is busy.
            Err(_) => {}
        }
        time::sleep(LOOK_EVERY).await;
    }
}

/// A small graph, and what it needs before it. Err: what the profiler would say of overrides that fit no graph.
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
    // The profiler calls a program for this, which is the operator's own and does the same.
    let graph = match (graph.as_object(), spec["overrides"]["dgd"].as_object()) {
        (Some(graph), Some(wanted)) => json!(merge(graph, wanted)?.graph),
        _ => graph,
    };
    documents.push(graph);
    Ok(documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))
}

/// Of the same registry and tag.
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
