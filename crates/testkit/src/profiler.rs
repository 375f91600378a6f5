//! The profiler of one Job, played, and the relay beside it, which is the real program as the Job starts it.
//! Comes in: what the profiler writes to its folder and how it ends; goes out: the pod's end, and with it the Job's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{Play, client, process, wait};

/// What a profiler comes to: the graph last, and before it what the graph needs.
pub const RESULT: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: planner-config-1a2b}
data: {planner_config.json: '{}'}
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: vllm-agg, labels: {team: a}}
spec:
  components:
  - {name: Frontend, type: frontend, replicas: 1}
  - {name: VllmDecodeWorker, type: worker, replicas: 2, runtimeVersionOverride: 1.3.0}
";

/// Dropping it ends the relay, and leaves the pod as it is.
pub struct Profiler {
    pods: Api<Pod>,
    pod: String,
    /// Names of the two containers.
    profiler: String,
    relayer: String,
    folder: PathBuf,
    relay: Child,
}

impl Profiler {
    /// `pod` has to run. `program` is the operator's, and `folder` is the profiler's alone.
    pub async fn start(cluster: &Cluster, program: &Path, folder: &Path, pod: &Pod) -> Result<Self> {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let spec = pod.spec.as_ref().with_context(|| format!("pod {name} has no spec"))?;
        let relays = |container: &&Container| container.command.iter().flatten().eq(["steersman", "relay"]);
        let relayer = spec.containers.iter().find(relays).with_context(|| format!("pod {name} has no relay"))?;
        let other = spec.containers.iter().find(|container| container.name != relayer.name);
        let profiler = other.with_context(|| format!("pod {name} has nothing but a relay"))?.name.clone();
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        let here = data.display().to_string();
        let mounted = |arg: &str| relayer.volume_mounts.iter().flatten().any(|mount| mount.mount_path == arg);
        let args = relayer.args.iter().flatten().map(|arg| if mounted(arg) { &here } else { arg });
        // As the account of the Job, with the rights that the operator has given it.
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        let kubeconfig = folder.join("kubeconfig");
        client::write(&kubeconfig, &cluster.service_account_config(&namespace, account).await?)?;
        let mut command = Command::new(program);
        command.arg("relay").args(args).env_clear().env("POD_NAME", &name).env("KUBECONFIG", &kubeconfig);
        let open = |name: &str| File::create(folder.join(name));
        command.stdin(Stdio::null()).stdout(open("log")?).stderr(open("complaint")?);
        let relay = process::spawn_bound(command).context("cannot start the relay")?;
        let pods = Api::namespaced(cluster.admin().await?, &namespace);
        Ok(Self { pods, pod: name, profiler, relayer: relayer.name.clone(), folder: folder.to_owned(), relay })
    }

    /// As the profiler writes: whole files, by renaming.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let data = self.folder.join("data");
        fs::write(data.join("new"), text)?;
        Ok(fs::rename(data.join("new"), data.join(name))?)
    }

    fn status(&self, mut status: Value) -> Result<()> {
        status["timestamp"] = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        self.write("profiler_status.yaml", &status.to_string())
    }

    pub fn says(&self, phase: &str, message: &str) -> Result<()> {
        self.status(json!({ "status": "running", "phase": phase, "message": message }))
    }

    /// With these manifests as its result.
    pub async fn succeeds(&mut self, result: &str) -> Result<()> {
        self.write("final_config.yaml", result)?;
        self.status(json!({ "status": "success", "phase": "Done", "message": "Profiler completed successfully",
            "outputs": { "final_config": "final_config.yaml" } }))?;
        self.end(0).await
    }

    /// In the phase that it was in.
    pub async fn fails(&mut self, phase: &str, error: &str) -> Result<()> {
        self.status(json!({ "status": "failed", "phase": phase, "error": error,
            "message": "Profiler failed with exception: RuntimeError" }))?;
        self.end(1).await
    }

    /// The whole pod, without a word of anybody.
    pub async fn dies(&mut self) -> Result<()> {
        self.relay.kill()?;
        self.end(137).await
    }

    /// First the profiler, then the relay by itself, then the pod.
    async fn end(&mut self, code: i32) -> Result<()> {
        // From here on the kubelet is played here: nothing is started again.
        let still = Patch::Merge(Play::Pending.patch());
        let pod = self.pods.patch(&self.pod, &PatchParams::default(), &still).await?;
        let known = |name: &str| -> Result<Value> {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            let found = containers.into_iter().find(|known| known.name == name);
            Ok(json!(found.with_context(|| format!("container {name} of pod {} has no status", self.pod))?))
        };
        let (running, profiler) = (known(&self.relayer)?, ended(known(&self.profiler)?, code));
        self.show("Running", json!([profiler, running])).await?;
        let relay = &mut self.relay;
        let left = wait::eventually("the relay ends", async || relay.try_wait().transpose()).await;
        let left = left.with_context(|| self.log())??.code().unwrap_or(137);
        let phase = if code == 0 && left == 0 { "Succeeded" } else { "Failed" };
        self.show(phase, json!([profiler, ended(running, left)])).await
    }

    async fn show(&self, phase: &str, containers: Value) -> Result<()> {
        let patch = json!({ "status": { "phase": phase, "containerStatuses": containers } });
        self.pods.patch_status(&self.pod, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// All that the relay has said.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("log") + &read("complaint")
    }

    /// With the token that the relay works with.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

fn ended(mut container: Value, code: i32) -> Value {
    let reason = match code {
        0 => "Completed",
        137 => "OOMKilled",
        _ => "Error",
    };
    let began = container["state"]["running"]["startedAt"].clone();
    let end = json!({ "exitCode": code, "reason": reason, "startedAt": began, "finishedAt": Timestamp::now() });
    container["state"] = json!({ "terminated": end });
    (container["ready"], container["started"]) = (false.into(), false.into());
    container
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}
