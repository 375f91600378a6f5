//! The real profiler of Dynamo: it parses the arguments of our Jobs, and the relay turns its result into a graph.
//!
//! Run by `cargo xtask test --suite dynamo-real`, which installs the Python packages.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steersman_plan::dynamo::profile_job::{COPIER, OUTPUT_PATH, PROFILER};
use steersman_testkit::{process, wait};
use tempfile::TempDir;

use super::examples::{ExampleNamespace, documents, examples, files, to_request_spec, to_storage_version};
use super::*;

/// Environment variables with the Python interpreter and the folder of packages, set by the suite.
const PYTHON_VAR: &str = "STEERSMAN_DYNAMO_PYTHON";
const PACKAGES_VAR: &str = "STEERSMAN_DYNAMO_PACKAGES";

fn scripts() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/dynamo-real"].iter().collect()
}

/// Python with Dynamo's packages, without the user's environment and without model downloads.
fn python(home: &Path) -> Command {
    let var = |name| {
        std::env::var_os(name)
            .unwrap_or_else(|| panic!("{name} is not set; run `cargo xtask test --suite dynamo-real`"))
    };
    let mut path = OsString::from(scripts().join("stand-ins"));
    path.push(":");
    path.push(var(PACKAGES_VAR));
    let mut command = Command::new(var(PYTHON_VAR));
    command.env_clear().env("PATH", var("PATH")).env("HOME", home).env("PYTHONPATH", path);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("HF_HUB_OFFLINE", "1");
    command.current_dir(home);
    command
}

/// Arguments of a container of the Job.
fn args(job: &Job, container: &str) -> Vec<String> {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    pod.containers.iter().find(|known| known.name == container).unwrap().args.clone().unwrap()
}

#[tokio::test]
#[ignore = "needs the packages of Dynamo: cargo xtask test --suite dynamo-real"]
async fn real_profiler_parses_every_job_spec() {
    let Some(ns) = ExampleNamespace::create("real-specs").await else { return };
    ns.create_pvc("model-cache").await;
    let mut requests = Vec::new();
    for file in examples("") {
        for object in documents(&file).into_iter().map(to_storage_version) {
            ns.apply(&object).await.unwrap();
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
            "metadata": { "name": name }, "spec": to_request_spec(documents(file).remove(0)) });
        ns.apply(&request).await.unwrap();
        requests.push((file.display().to_string(), name));
    }
    let mut specs = serde_json::Map::new();
    for (file, name) in requests {
        ns.settle(&name).await;
        // A published spec without a Job has no arguments to parse.
        if let Some(job) = ns.namespace.api::<Job>().get_opt(&names::profiling_job(&name)).await.unwrap() {
            specs.insert(file, serde_json::from_str(&args(&job, PROFILER)[1]).unwrap());
        }
    }
    assert!(specs.len() >= 10, "{}", specs.len());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("specs.json");
    fs::write(&file, Value::from(specs.clone()).to_string()).unwrap();
    let output = python(folder.path()).arg(scripts().join("specs.py")).arg(&file).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let mismatches: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(mismatches.as_object().unwrap().len(), specs.len());
    assert!(mismatches.as_object().unwrap().values().all(|found| *found == json!([])), "{mismatches:#}");
    println!("{} specs were read, field by field", specs.len());
}

/// Overrides of the graph; the profiler runs our `dgd-apply-overrides` to apply them.
fn graph_overrides() -> Value {
    json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": { "name": GRAPH },
        "spec": { "components": [{ "name": "Frontend", "podTemplate": { "spec": { "containers": [
            { "name": "main", "env": [{ "name": "DYN_LOG", "value": "debug" }] }] } } }] } })
}

/// Runs the two containers of the Job's pod as local processes in a temporary folder.
struct LocalPod {
    folder: TempDir,
    data: PathBuf,
}

impl LocalPod {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        Self { folder, data }
    }

    fn local_args(&self, args: Vec<String>) -> Vec<String> {
        let data = self.data.to_str().unwrap();
        args.into_iter().map(|arg| if arg == OUTPUT_PATH { data.to_owned() } else { arg }).collect()
    }

    fn create_log(&self, name: &str) -> fs::File {
        fs::File::create(self.folder.path().join(name)).unwrap()
    }

    fn read_log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

#[tokio::test]
#[ignore = "needs the packages of Dynamo: cargo xtask test --suite dynamo-real"]
async fn real_profiler_result_is_relayed_and_deployed() {
    let request_spec = json!({
        "model": "Qwen/Qwen3-32B", "backend": "trtllm", "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.5.1",
        "hardware": { "gpuSku": "h200_sxm", "vramMb": 143_771, "numGpusPerNode": 8, "totalGpus": 2,
            "interconnect": "nvlink", "rdma": false },
        "sla": { "ttft": 2000, "itl": 50 },
        "overrides": { "dgd": graph_overrides() },
    });
    let Some(test) = TestNamespace::new("real", request_spec).await else { return };
    test.settle().await;
    let (job, pod) = (test.job().await, LocalPod::new());
    set_profiler_pod(&test.namespace, "Running", json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })).await;

    let namespace = test.namespace.name();
    let account = test.cluster.service_account(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    wait::until_allowed(&account, "update", "", "configmaps", Some(namespace)).await.unwrap();
    let kubeconfig = test.cluster.service_account_kubeconfig(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    let program = env!("CARGO_BIN_EXE_steersman");
    let mut relay = Command::new(program);
    relay.arg("relay").args(pod.local_args(args(&job, COPIER))).env_clear();
    relay.env("POD_NAME", "profile-qwen-x").env("KUBECONFIG", &kubeconfig);
    relay.stdin(Stdio::null()).stdout(pod.create_log("relay")).stderr(pod.create_log("relay-stderr"));
    let mut relay = process::spawn_child_bound_to_parent(relay).unwrap();

    let tool = pod.folder.path().join("dgd-apply-overrides");
    let installed = Command::new(program).arg("dgd-apply-overrides").arg("--install-to").arg(&tool).status().unwrap();
    assert!(installed.success());
    let mut profiler = python(pod.folder.path());
    profiler.args(["-m", "dynamo.profiler"]).args(pod.local_args(args(&job, PROFILER)));
    profiler.env("DYNAMO_DGD_APPLY_OVERRIDES_BIN", &tool).env("DGDR_NAME", NAME).env("DGDR_NAMESPACE", namespace);
    profiler.stdin(Stdio::null()).stdout(pod.create_log("profiler")).stderr(pod.create_log("profiler-stderr"));
    let mut profiler = process::spawn_child_bound_to_parent(profiler).unwrap();
    let started = wait::eventually("the first output of the profiler is relayed", async || {
        test.settle().await;
        (condition(&test.status().await, "Profiling").0 != "ProfilingRunning").then_some(())
    });
    started.await.unwrap_or_else(|error| panic!("{error}\n{}", pod.read_log("relay")));
    let code = tokio::task::spawn_blocking(move || profiler.wait().unwrap().code()).await.unwrap();
    assert_eq!(code, Some(0), "{}", pod.read_log("profiler-stderr"));
    let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z" } });
    set_profiler_pod(&test.namespace, "Running", end).await;
    let ended = wait::eventually("the relay ends", async || relay.try_wait().unwrap());
    let ended = ended.await.unwrap_or_else(|error| panic!("{error}\n{}", pod.read_log("relay")));
    assert_eq!(ended.code(), Some(0), "{}", pod.read_log("relay-stderr"));

    test.complete_job().await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying", "{:#}", test.status().await);
    let graph = test.graphs().get(GRAPH).await.unwrap();
    let components = graph.data["spec"]["components"].as_array().unwrap();
    let frontend = components.iter().find(|known| known["name"] == "Frontend").unwrap();
    let main = &frontend["podTemplate"]["spec"]["containers"][0];
    assert!(main["image"].as_str().unwrap().ends_with("tensorrtllm-runtime:1.5.1"), "{main:#}");
    assert!(main["env"].as_array().unwrap().contains(&json!({ "name": "DYN_LOG", "value": "debug" })), "{main:#}");
    let workers: Vec<&Value> = components.iter().filter(|known| known["name"] != "Frontend").collect();
    assert!(!workers.is_empty());
    println!("{}", serde_json::to_string_pretty(&graph.data["spec"]).unwrap());
}
