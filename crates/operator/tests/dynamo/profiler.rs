//! The profiler of one Job, played by the test, and the relay beside it, which is the real program as the Job starts it.
//! Comes in: what the profiler writes to its folder and how it ends; goes out: the pod's end, and with it the Job's.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use steersman_plan::dynamo::{names, profile_job};
use steersman_testkit::{Play, process, wait};
use tempfile::TempDir;

use crate::scene::{PLANNER, Scene};

/// What a profiler comes to: the graph last, and before it what the graph needs.
fn result() -> String {
    let planner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": PLANNER },
        "data": { "planner_config.json": "{}" } });
    let components =
        json!([{ "name": "Frontend", "type": "frontend" }, { "name": "VllmDecodeWorker", "type": "worker" }]);
    let graph = json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": { "name": "vllm-agg" }, "spec": { "components": components } });
    format!("{planner}\n---\n{graph}\n")
}

pub struct Profiler<'a> {
    scene: &'a Scene,
    pod: String,
    folder: TempDir,
    relay: Child,
    kubeconfig: PathBuf,
}

impl<'a> Profiler<'a> {
    /// Once the pod runs.
    pub async fn start(scene: &'a Scene) -> Self {
        let pod = scene.pod().await;
        let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let pod = wait::until(scene.all(), &pod.name_any(), "runs", wait::LIMIT, runs).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let containers = pod.spec.as_ref().unwrap().containers.iter();
        let copier = containers.into_iter().find(|known| known.name == profile_job::COPIER).unwrap();
        assert_eq!(copier.command.as_deref(), Some(&["steersman".to_owned(), "relay".to_owned()][..]));
        let here = data.display().to_string();
        let args = copier.args.iter().flatten().map(|arg| if arg == profile_job::OUTPUT_PATH { &here } else { arg });
        // As the account of the Job, with the rights that the operator has given it.
        let cluster = &scene.world.cluster;
        let kubeconfig = cluster.service_account_kubeconfig(scene.name(), names::SERVICE_ACCOUNT).await.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steersman"));
        command.arg("relay").args(args).env_clear().env("POD_NAME", pod.name_any()).env("KUBECONFIG", &kubeconfig);
        let open = |name: &str| fs::File::create(folder.path().join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(open("log")).stderr(open("complaint"));
        let relay = process::spawn_bound(command).unwrap();
        Self { scene, pod: pod.name_any(), folder, relay, kubeconfig }
    }

    /// As the profiler writes: whole files, by renaming.
    fn write(&self, name: &str, text: &str) {
        let data = self.folder.path().join("data");
        fs::write(data.join("new"), text).unwrap();
        fs::rename(data.join("new"), data.join(name)).unwrap();
    }

    fn status(&self, status: Value) {
        let mut status = status;
        status["timestamp"] = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        self.write("profiler_status.yaml", &status.to_string());
    }

    pub fn says(&self, phase: &str, message: &str) {
        self.status(json!({ "status": "running", "phase": phase, "message": message }));
    }

    /// The same, until the request says it.
    pub async fn is_heard(&self, phase: &str, message: &str) -> Value {
        self.says(phase, message);
        let heard = |request: &Value| {
            let said = crate::scene::condition(request, "Profiling");
            request["status"]["profilingPhase"] == phase && said["message"] == message
        };
        self.scene.until(&format!("{phase} is relayed\n{}", self.log()), heard).await
    }

    pub async fn succeeds(self) {
        self.write("final_config.yaml", &result());
        self.status(json!({ "status": "success", "phase": "Done", "message": "Profiler completed successfully",
            "outputs": { "final_config": "final_config.yaml" } }));
        self.ends(0).await;
    }

    /// In the phase that it was in.
    pub async fn fails(self, phase: &str, error: &str) {
        self.status(json!({ "status": "failed", "phase": phase, "error": error,
            "message": "Profiler failed with exception: RuntimeError" }));
        self.ends(1).await;
    }

    /// The whole pod, without a word of anybody.
    pub async fn dies(self) {
        kill_process(Pid::from_child(&self.relay), Signal::KILL).unwrap();
        self.ends(137).await;
    }

    /// First the profiler, then the relay by itself, then the pod.
    async fn ends(mut self, code: i32) {
        let pods: Api<Pod> = self.scene.all();
        // From here on the test plays the kubelet: nothing is started again.
        let still = Patch::Merge(Play::Pending.patch());
        let pod = pods.patch(&self.pod, &PatchParams::default(), &still).await.unwrap();
        let status = json!(pod.status.unwrap());
        let ended = |name: &str, code: i32| {
            let list = status["containerStatuses"].as_array().unwrap();
            let mut found = list.iter().find(|known| known["name"] == name).unwrap().clone();
            let began = found["state"]["running"]["startedAt"].clone();
            let reason = match code {
                0 => "Completed",
                137 => "OOMKilled",
                _ => "Error",
            };
            found["state"] = json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": began,
                "finishedAt": Timestamp::now() } });
            (found["ready"], found["started"]) = (false.into(), false.into());
            found
        };
        let running = |name: &str| {
            let list = status["containerStatuses"].as_array().unwrap();
            list.iter().find(|known| known["name"] == name).unwrap().clone()
        };
        let set = async |phase: &str, containers: Value| {
            let patch = json!({ "status": { "phase": phase, "containerStatuses": containers } });
            pods.patch_status(&self.pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        };
        let profiler = ended(profile_job::PROFILER, code);
        set("Running", json!([profiler, running(profile_job::COPIER)])).await;
        let left = wait::eventually("the relay ends", async || self.relay.try_wait().unwrap()).await;
        let left = left.unwrap_or_else(|error| panic!("{error}\n{}", self.log())).code().unwrap_or(137);
        let phase = if code == 0 && left == 0 { "Succeeded" } else { "Failed" };
        set(phase, json!([profiler, ended(profile_job::COPIER, left)])).await;
        self.assert_mute();
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap();
        read("log") + &read("complaint")
    }

    /// No line has the token in it.
    fn assert_mute(&self) {
        let kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        assert!(!self.log().contains(kubeconfig["users"][0]["user"]["token"].as_str().unwrap()));
    }
}

impl Drop for Profiler<'_> {
    fn drop(&mut self) {
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}
