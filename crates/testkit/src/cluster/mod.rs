//! A local cluster, started from the built programs in a folder and stopped when dropped. Other processes of the same run
//! open it by its folder and get clients for any user.

mod admission;
mod parts;
mod prometheus;
mod setup;
mod start;
mod store;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Client;
use kube::config::Kubeconfig;
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::client::{self, Credentials};
use crate::nodes::NodePool;
use crate::pki::Authority;
use crate::process::Process;

/// The set of programs that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// All programs: controllers, scheduler, simulated nodes, Prometheus. Deployments get running pods.
    Full,
    /// Only etcd and the API server: no controller changes an object.
    Bare,
    /// The control plane of a [real node](crate::real_node): controllers and scheduler, without simulated nodes. It has no
    /// Prometheus, which can run in a pod.
    Real,
}

impl Flavour {
    /// The name of the cluster's folder in the folder of the run.
    pub fn folder_name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bare => "bare",
            Self::Real => "real",
        }
    }
}

/// Options of a new cluster.
#[derive(Clone, Debug)]
pub struct Options {
    pub flavour: Flavour,
    /// Port of the API server. A free one if `None`.
    pub api_port: Option<u16>,
    /// Port of Prometheus. A free one if `None`.
    pub prometheus_port: Option<u16>,
    /// The initial nodes of a full cluster.
    pub node_pools: Vec<NodePool>,
    /// The network in which the control plane runs. `None` for that of this machine, with loopback addresses.
    pub network: Option<NodeNetwork>,
}

impl Options {
    /// Free ports, and nodes without GPUs. A test that needs GPUs adds nodes.
    pub fn new(flavour: Flavour) -> Self {
        let node_pools = vec![NodePool::without_gpus("plain", 2)];
        Self { flavour, api_port: None, prometheus_port: None, node_pools, network: None }
    }

    /// The control plane of a real node, in the network of the node.
    pub(crate) fn real(network: NodeNetwork) -> Self {
        Self { node_pools: Vec::new(), network: Some(network), ..Self::new(Flavour::Real) }
    }
}

/// The network namespace of a real node. Its ports and its routes are separate from those of this machine.
#[derive(Clone, Debug)]
pub struct NodeNetwork {
    /// The file that stands for the namespace, in `/proc`.
    pub namespace: PathBuf,
    /// Address of the node, which this machine and the pods can reach.
    pub address: Ipv4Addr,
}

impl NodeNetwork {
    /// The program and the arguments that run `program` in this network.
    fn enter(&self, program: &Path, arguments: &[String]) -> (PathBuf, Vec<String>) {
        let enter = [format!("--net={}", self.namespace.display()), "--".to_owned(), program.display().to_string()];
        ("nsenter".into(), enter.into_iter().chain(arguments.iter().cloned()).collect())
    }
}

/// Data that another process needs to use a running cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    pub flavour: Flavour,
    pub api_url: String,
    pub etcd_url: String,
    /// Absent in the bare flavour.
    pub prometheus_url: Option<String>,
    pub processes: Vec<ProcessDescription>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessDescription {
    pub name: String,
    pub id: u32,
    pub log: PathBuf,
}

/// A running cluster.
pub struct Cluster {
    pub(crate) folder: PathBuf,
    pub(crate) authority: Authority,
    description: Description,
    /// See [`Options::network`].
    network: Option<NodeNetwork>,
    /// Empty if another process started the cluster.
    processes: Vec<Process>,
}

impl Cluster {
    /// Starts a cluster in `folder` and waits until it is ready.
    pub async fn start(binaries: &Binaries, folder: &Path, options: &Options) -> Result<Self> {
        start::start(binaries, folder, options).await
    }

    /// Opens a cluster that another process of this run has started in `folder`.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(DESCRIPTION_FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no running cluster in {}: cannot read {}", folder.display(), path.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            authority: Authority::open(&folder.join(PKI_FOLDER))?,
            description: serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?,
            network: None,
            processes: Vec::new(),
        })
    }

    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The path of the CA certificate of all clients of the cluster, the API server's own included.
    pub fn client_ca(&self) -> PathBuf {
        self.authority.file("ca.pem")
    }

    /// The path of the administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// A client with all permissions, to prepare a test. The code under test must act as another user.
    pub async fn admin(&self) -> Result<Client> {
        client::client(client::read(&self.admin_kubeconfig())?).await
    }

    pub(crate) fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<Kubeconfig> {
        let identity = self.authority.client(user, group)?;
        self.kubeconfig_with(user, &Credentials::Certificate(&identity))
    }

    pub(crate) fn kubeconfig_with(&self, user: &str, credentials: &Credentials<'_>) -> Result<Kubeconfig> {
        client::kubeconfig(&self.description.api_url, self.authority.certificate(), user, credentials)
    }

    /// Ids of the programs that this process has started.
    pub(crate) fn process_ids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(Process::id)
    }

    /// Fails if one of the cluster's programs has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::ensure_running)
    }
}

const DESCRIPTION_FILE: &str = "cluster.json";
const PKI_FOLDER: &str = "pki";
