//! A cluster with a real node: containerd, kubelet, kube-proxy and CoreDNS run containers from imported images. All programs,
//! the control plane included, run in network, mount and process namespaces of their own, so that the network, the mounts and
//! the kernel settings of this machine stay as they are. The namespaces end with this process.
//!
//! It needs root.

mod cgroup;
mod chart;
mod images;
mod namespaces;
pub mod network;
mod programs;
pub mod scenario;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::cluster::{Cluster, NodeNetwork, Options};
use crate::process::Process;
use crate::{apply, wait};
use cgroup::Cgroup;
use namespaces::Namespaces;

pub use cgroup::{remove_abandoned, remove_own};
pub use namespaces::missing_requirement;

/// Name of the node.
pub const NODE_NAME: &str = "real";

/// The image of the process that holds the namespaces of a pod.
pub const PAUSE_IMAGE: &str = "localhost/pause:1";

/// The image of the cluster's DNS server.
pub const DNS_IMAGE: &str = "localhost/coredns:1";

/// The start of a node on a loaded machine. It takes some seconds on an idle one.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Environment variable with the path of the description of all parts, which `cargo xtask test` sets for the suite `real`.
pub const PARTS_VARIABLE: &str = "STEERSMAN_REAL";

/// Everything that a real cluster runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parts {
    pub binaries: NodeBinaries,
    /// The program of [`crate::binaries::HELM`], which installs the operator.
    pub helm: Binaries,
    /// Archives of [`PAUSE_IMAGE`] and [`DNS_IMAGE`], without which no pod can run.
    pub base_images: Vec<PathBuf>,
    /// Archives of the other images of [`scenario`].
    pub server_images: Vec<PathBuf>,
    /// The name of the operator's image, and its archive.
    pub operator: (String, PathBuf),
}

impl Parts {
    /// The parts that another process has prepared. `None` without [`PARTS_VARIABLE`].
    pub fn from_environment() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os(PARTS_VARIABLE).map(PathBuf::from) else { return Ok(None) };
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("cannot parse {}", path.display()))
    }
}

/// The programs of a real node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeBinaries {
    /// The programs of [`crate::binaries::CLUSTER`].
    pub control_plane: Binaries,
    /// The programs of [`crate::binaries::NODE`].
    pub kubernetes: Binaries,
    /// The programs of [`crate::binaries::CONTAINERS`].
    pub containers: Binaries,
    pub system: SystemTools,
}

/// Programs of the operating system that the node runs, above all `nft`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SystemTools {
    /// Folders to search before those of the system.
    pub path: Vec<PathBuf>,
    /// Folders of their libraries.
    pub libraries: Vec<PathBuf>,
}

/// A running cluster with a real node. Dropping it ends everything.
pub struct RealCluster {
    pub cluster: Cluster,
    // Dropped in this order: the end of the namespaces ends all programs of the node, and a control group can be removed when it
    // is empty.
    namespaces: Namespaces,
    programs: Vec<Process>,
    cgroup: Cgroup,
    binaries: NodeBinaries,
    helm: Binaries,
    folder: PathBuf,
}

impl RealCluster {
    /// Starts the control plane and the node in `folder`, and waits until pods can run and resolve names. The images of servers and
    /// of the operator are not imported yet.
    pub async fn start(parts: &Parts, folder: &Path) -> Result<Self> {
        let binaries = &parts.binaries;
        let node_folder = folder.join("node");
        std::fs::create_dir_all(&node_folder).with_context(|| format!("cannot create {}", node_folder.display()))?;
        let cgroup = Cgroup::create()?;
        let namespaces = Namespaces::create(&node_folder)?;
        let network = NodeNetwork { namespace: namespaces.network_file(), address: namespaces.address() };
        let cluster =
            Cluster::start(&binaries.control_plane, &folder.join("control-plane"), &Options::real(network)).await?;
        let mut real = Self {
            cluster,
            namespaces,
            programs: Vec::new(),
            cgroup,
            binaries: binaries.clone(),
            helm: parts.helm.clone(),
            folder: node_folder,
        };
        real.start_programs().await?;
        for image in &parts.base_images {
            real.import(image).await?;
        }
        real.start_dns().await?;
        Ok(real)
    }

    /// Fails if one of the programs has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.cluster.ensure_running()?;
        self.namespaces.ensure_running()?;
        self.programs.iter_mut().try_for_each(Process::ensure_running)
    }

    /// Memory in bytes that the pods use, and that the programs of the control plane and the node use.
    pub fn memory(&self) -> (u64, u64) {
        let programs = self.cluster.process_ids().chain(self.namespaces.program_ids());
        (self.cgroup.memory().unwrap_or_default(), programs.filter_map(resident_memory).sum())
    }

    async fn start_programs(&mut self) -> Result<()> {
        let config =
            programs::write_configuration(&self.cluster, &self.folder, &self.binaries, self.namespaces.address())?;
        self.run("containerd", &self.binaries.containers.path("containerd"), &config.containerd)?;
        let socket = self.namespaces.outer_path(&programs::socket());
        let listens = wait::eventually("containerd listens", async || socket.exists().then_some(())).await;
        self.ensure_running()?;
        listens?;
        self.run("kubelet", &self.binaries.kubernetes.path("kubelet"), &config.kubelet)?;
        self.run("kube-proxy", &self.binaries.kubernetes.path("kube-proxy"), &config.kube_proxy)?;
        let nodes: Api<Node> = Api::all(self.cluster.admin().await?);
        let ready = wait::until(nodes, NODE_NAME, "is Ready", START_TIMEOUT, is_ready).await;
        self.ensure_running()?;
        ready.context("the node does not become Ready; see kubelet.log and containerd.log")?;
        Ok(())
    }

    fn run(&mut self, name: &str, program: &Path, arguments: &[String]) -> Result<()> {
        let command = self.namespaces.command(&self.binaries, program, arguments);
        let log = self.folder.join(format!("{name}.log"));
        let output = std::fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = command;
        command.stdin(std::process::Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.programs.push(Process::spawn(name, command, log, None)?);
        Ok(())
    }

    async fn start_dns(&self) -> Result<()> {
        let client = self.cluster.admin().await?;
        apply::apply_manifests(&client, None, include_str!("dns.yaml")).await.context("cannot apply dns.yaml")?;
        let deployments: Api<Deployment> = Api::namespaced(client, "kube-system");
        let available = |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.available_replicas).is_some_and(|count| count > 0)
        };
        wait::until(deployments, "coredns", "is available", START_TIMEOUT, available).await?;
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Memory of a process that is not shared with files, in bytes.
fn resident_memory(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
