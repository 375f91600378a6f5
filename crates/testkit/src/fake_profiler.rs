//! Simulates the profiler of one Job, next to a real relay process with the arguments of the Job. A test decides what the
//! profiler writes and how it ends.

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
use crate::{PodBehaviour, client, process, wait};

/// A result of the profiler: the graph is the last document, after the objects that it needs.
pub const SAMPLE_RESULT: &str = "apiVersion: v1
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

/// A simulated profiler. Dropping it ends the relay and does not change the pod.
pub struct FakeProfiler {
    pods: Api<Pod>,
    pod: String,
    /// Name of the profiler's container.
    profiler_container: String,
    /// Name of the relay's container.
    relay_container: String,
    folder: PathBuf,
    relay: Child,
}

impl FakeProfiler {
    /// Starts the relay of `pod`, which must be running. `program` is the operator's binary. `folder` must not be shared
    /// with another profiler.
    pub async fn start(cluster: &Cluster, program: &Path, folder: &Path, pod: &Pod) -> Result<Self> {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let spec = pod.spec.as_ref().with_context(|| format!("pod {name} has no spec"))?;
        let is_relay = |container: &&Container| container.command.iter().flatten().eq(["steersman", "relay"]);
        let relay_container =
            spec.containers.iter().find(is_relay).with_context(|| format!("pod {name} has no relay container"))?;
        let other = spec.containers.iter().find(|container| container.name != relay_container.name);
        let profiler_container =
            other.with_context(|| format!("pod {name} has no container except the relay"))?.name.clone();
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        let local_path = data.display().to_string();
        let is_mount_path =
            |arg: &str| relay_container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == arg);
        let args = relay_container.args.iter().flatten().map(|arg| if is_mount_path(arg) { &local_path } else { arg });
        // The relay runs as the service account of the Job, with the permissions that the operator has granted.
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        let kubeconfig = folder.join("kubeconfig");
        client::write(&kubeconfig, &cluster.service_account_config(&namespace, account).await?)?;
        let mut command = Command::new(program);
        command.arg("relay").args(args).env_clear().env("POD_NAME", &name).env("KUBECONFIG", &kubeconfig);
        let open = |name: &str| File::create(folder.join(name));
        command.stdin(Stdio::null()).stdout(open("log")?).stderr(open("stderr")?);
        let relay = process::spawn_child_bound_to_parent(command).context("cannot start the relay")?;
        let pods = Api::namespaced(cluster.admin().await?, &namespace);
        Ok(Self {
            pods,
            pod: name,
            profiler_container,
            relay_container: relay_container.name.clone(),
            folder: folder.to_owned(),
            relay,
        })
    }

    /// Replaces a file atomically, as the real profiler does.
    fn write_file(&self, name: &str, text: &str) -> Result<()> {
        let data = self.folder.join("data");
        fs::write(data.join("new"), text)?;
        Ok(fs::rename(data.join("new"), data.join(name))?)
    }

    fn write_status(&self, mut status: Value) -> Result<()> {
        status["timestamp"] = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        self.write_file("profiler_status.yaml", &status.to_string())
    }

    /// Reports progress in `phase`.
    pub fn report_progress(&self, phase: &str, message: &str) -> Result<()> {
        self.write_status(json!({ "status": "running", "phase": phase, "message": message }))
    }

    /// Ends the profiler with these manifests as its result.
    pub async fn succeed(&mut self, result: &str) -> Result<()> {
        self.write_file("final_config.yaml", result)?;
        self.write_status(json!({ "status": "success", "phase": "Done", "message": "Profiler completed successfully",
            "outputs": { "final_config": "final_config.yaml" } }))?;
        self.terminate(0).await
    }

    /// Ends the profiler with an error in `phase`.
    pub async fn fail(&mut self, phase: &str, error: &str) -> Result<()> {
        self.write_status(json!({ "status": "failed", "phase": phase, "error": error,
            "message": "Profiler failed with exception: RuntimeError" }))?;
        self.terminate(1).await
    }

    /// Kills all containers, so that neither the profiler nor the relay reports anything.
    pub async fn kill(&mut self) -> Result<()> {
        self.relay.kill()?;
        self.terminate(137).await
    }

    /// Ends the profiler, waits for the relay to end by itself, and ends the pod.
    async fn terminate(&mut self, code: i32) -> Result<()> {
        // Stops kwok from changing the pod: from here on, this module acts as the kubelet.
        let stop_kwok = Patch::Merge(PodBehaviour::Pending.merge_patch());
        let pod = self.pods.patch(&self.pod, &PatchParams::default(), &stop_kwok).await?;
        let container_status = |name: &str| -> Result<Value> {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            let found = containers.into_iter().find(|container_status| container_status.name == name);
            Ok(json!(found.with_context(|| format!("container {name} of pod {} has no status", self.pod))?))
        };
        let (running, profiler_container) = (
            container_status(&self.relay_container)?,
            with_terminated_state(container_status(&self.profiler_container)?, code),
        );
        self.write_pod_status("Running", json!([profiler_container, running])).await?;
        let relay = &mut self.relay;
        let relay_exit = wait::eventually("the relay ends", async || relay.try_wait().transpose()).await;
        let relay_exit = relay_exit.with_context(|| self.log())??.code().unwrap_or(137);
        let phase = if code == 0 && relay_exit == 0 { "Succeeded" } else { "Failed" };
        self.write_pod_status(phase, json!([profiler_container, with_terminated_state(running, relay_exit)])).await
    }

    async fn write_pod_status(&self, phase: &str, containers: Value) -> Result<()> {
        let patch = json!({ "status": { "phase": phase, "containerStatuses": containers } });
        self.pods.patch_status(&self.pod, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Standard output and standard error of the relay.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        read("log") + &read("stderr")
    }

    /// The kubeconfig of the relay.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

fn with_terminated_state(mut container: Value, code: i32) -> Value {
    let reason = match code {
        0 => "Completed",
        137 => "OOMKilled",
        _ => "Error",
    };
    let started_at = container["state"]["running"]["startedAt"].clone();
    let termination =
        json!({ "exitCode": code, "reason": reason, "startedAt": started_at, "finishedAt": Timestamp::now() });
    container["state"] = json!({ "terminated": termination });
    (container["ready"], container["started"]) = (false.into(), false.into());
    container
}

impl Drop for FakeProfiler {
    fn drop(&mut self) {
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}
