//! The real profiler, from the packages of Dynamo: it reads what Jobs hand to it, and what it generates comes through the
//! relay and becomes a graph. Run by `cargo xtask test --suite dynamo-real`, which installs the packages.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steersman_plan::dynamo::profile_job::{COPIER, OUTPUT_PATH, PROFILER};
use steersman_testkit::{process, wait};
use tempfile::TempDir;

use super::examples::{Place, as_request, documents, examples, files, stored};
use super::*;

/// Set by the suite.
const PYTHON: &str = "STEERSMAN_DYNAMO_PYTHON";
const PACKAGES: &str = "STEERSMAN_DYNAMO_PACKAGES";

fn scripts() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/dynamo-real"].iter().collect()
}

/// Python with the packages and nothing of the user's environment; models are not downloaded.
fn python(home: &Path) -> Command {
    let set = |name| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set; see the head of this file"));
    let mut path = OsString::from(scripts().join("stand-ins"));
    path.push(":");
    path.push(set(PACKAGES));
    let mut command = Command::new(set(PYTHON));
    command.env_clear().env("PATH", set("PATH")).env("HOME", home).env("PYTHONPATH", path);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("HF_HUB_OFFLINE", "1");
    command.current_dir(home);
    command
}

/// As its container is started.
fn args(job: &Job, container: &str) -> Vec<String> {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.containers.iter().find(|known| known.name == container).unwrap().args.clone().unwrap()
}

#[tokio::test]
#[ignore = "needs the packages of Dynamo: cargo xtask test --suite dynamo-real"]
async fn the_profiler_reads_every_spec_that_a_job_hands_to_it() {
    let Some(place) = Place::open("real-specs").await else { return };
    place.claim("model-cache").await;
    let mut requests = Vec::new();
    for file in examples("") {
        for object in documents(&file).into_iter().map(stored) {
            place.apply(&object).await.unwrap();
            if object["kind"] == Family::Dgdr.kind() {
                requests.push((file.display().to_string(), object["metadata"]["name"].as_str().unwrap().to_owned()));
            }
        }
    }
    let published: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../../shared/upstream/dynamo/profiler-configs"].iter().collect();
    let published = if published.is_dir() { files(&published) } else { Vec::new() };
    for (number, file) in published.iter().enumerate() {
        let name = format!("spec-{number}");
        let request = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": Family::Dgdr.kind(),
            "metadata": { "name": name }, "spec": as_request(documents(file).remove(0)) });
        place.apply(&request).await.unwrap();
        requests.push((file.display().to_string(), name));
    }
    let mut specs = serde_json::Map::new();
    for (file, name) in requests {
        place.settled(&name).await;
        // One of the published specs gets no Job.
        if let Some(job) = place.namespace.all::<Job>().get_opt(&names::profiling_job(&name)).await.unwrap() {
            specs.insert(file, serde_json::from_str(&args(&job, PROFILER)[1]).unwrap());
        }
    }
    assert!(specs.len() >= 10, "{}", specs.len());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("specs.json");
    fs::write(&file, Value::from(specs.clone()).to_string()).unwrap();
    let output = python(folder.path()).arg(scripts().join("specs.py")).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let wrong: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(wrong.as_object().unwrap().len(), specs.len());
    assert!(wrong.as_object().unwrap().values().all(|found| *found == json!([])), "{wrong:#}");
    println!("{} specs were read, field by field", specs.len());
}

/// What the request asks of the graph, which the profiler has our own program put in.
fn wanted() -> Value {
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": { "name": GRAPH },
        "spec": { "components": [{ "name": "Frontend", "podTemplate": { "spec": { "containers": [
            { "name": "main", "env": [{ "name": "DYN_LOG", "value": "debug" }] }] } } }] } })
}

/// The pod of the Job: its two programs, in folders of ours.
struct Played {
    folder: TempDir,
    data: PathBuf,
}

impl Played {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        Self { folder, data }
    }

    fn here(&self, args: Vec<String>) -> Vec<String> {
        let data = self.data.to_str().unwrap();
        args.into_iter().map(|arg| if arg == OUTPUT_PATH { data.to_owned() } else { arg }).collect()
    }

    fn log(&self, name: &str) -> fs::File {
        fs::File::create(self.folder.path().join(name)).unwrap()
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

#[tokio::test]
#[ignore = "needs the packages of Dynamo: cargo xtask test --suite dynamo-real"]
async fn what_the_profiler_estimates_comes_through_the_relay_and_becomes_a_graph() {
    let asked = json!({
        "model": "Qwen/Qwen3-32B", "backend": "trtllm", "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.5.1",
        "hardware": { "gpuSku": "h200_sxm", "vramMb": 143_771, "numGpusPerNode": 8, "totalGpus": 2,
            "interconnect": "nvlink", "rdma": false },
        "sla": { "ttft": 2000, "itl": 50 },
        "overrides": { "dgd": wanted() },
    });
    let Some(scene) = Scene::new("real", asked).await else { return };
    scene.settle().await;
    let (job, played) = (scene.job().await, Played::new());
    a_pod(&scene.namespace, "Running", json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })).await;

    let namespace = scene.namespace.name();
    let account = scene.cluster.service_account(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    wait::until_allowed(&account, "update", "", "configmaps", Some(namespace)).await.unwrap();
    let kubeconfig = scene.cluster.service_account_kubeconfig(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    let program = env!("CARGO_BIN_EXE_steersman");
    let mut relay = Command::new(program);
    relay.arg("relay").args(played.here(args(&job, COPIER))).env_clear();
    relay.env("POD_NAME", "profile-qwen-x").env("KUBECONFIG", &kubeconfig);
    relay.stdin(Stdio::null()).stdout(played.log("relay")).stderr(played.log("relay-complaint"));
    let mut relay = process::spawn_bound(relay).unwrap();

    let tool = played.folder.path().join("dgd-apply-overrides");
    let installed = Command::new(program).arg("dgd-apply-overrides").arg("--install-to").arg(&tool).status().unwrap();
    assert!(installed.success());
    let mut profiler = python(played.folder.path());
    profiler.args(["-m", "dynamo.profiler"]).args(played.here(args(&job, PROFILER)));
    profiler.env("DYNAMO_DGD_APPLY_OVERRIDES_BIN", &tool).env("DGDR_NAME", NAME).env("DGDR_NAMESPACE", namespace);
    profiler.stdin(Stdio::null()).stdout(played.log("profiler")).stderr(played.log("profiler-complaint"));
    let mut profiler = process::spawn_bound(profiler).unwrap();
    let started = wait::eventually("the first words of the profiler are relayed", async || {
        scene.settle().await;
        (condition(&scene.status().await, "Profiling").0 != "ProfilingRunning").then_some(())
    });
    started.await.unwrap_or_else(|error| panic!("{error}\n{}", played.said("relay")));
    let code = tokio::task::spawn_blocking(move || profiler.wait().unwrap().code()).await.unwrap();
    assert_eq!(code, Some(0), "{}", played.said("profiler-complaint"));
    let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z" } });
    a_pod(&scene.namespace, "Running", end).await;
    let ended = wait::eventually("the relay ends", async || relay.try_wait().unwrap());
    let ended = ended.await.unwrap_or_else(|error| panic!("{error}\n{}", played.said("relay")));
    assert_eq!(ended.code(), Some(0), "{}", played.said("relay-complaint"));

    scene.job_ends().await;
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Deploying", "{:#}", scene.status().await);
    let graph = scene.graphs().get(GRAPH).await.unwrap();
    let components = graph.data["spec"]["components"].as_array().unwrap();
    let frontend = components.iter().find(|known| known["name"] == "Frontend").unwrap();
    let main = &frontend["podTemplate"]["spec"]["containers"][0];
    assert!(main["image"].as_str().unwrap().ends_with("tensorrtllm-runtime:1.5.1"), "{main:#}");
    assert!(main["env"].as_array().unwrap().contains(&json!({ "name": "DYN_LOG", "value": "debug" })), "{main:#}");
    let workers: Vec<&Value> = components.iter().filter(|known| known["name"] != "Frontend").collect();
    assert!(!workers.is_empty());
    println!("{}", serde_json::to_string_pretty(&graph.data["spec"]).unwrap());
}
