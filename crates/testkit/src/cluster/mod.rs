//! A local cluster, started from the built programs in a folder and stopped when dropped. Other processes of the same run
//! open it by its folder and get clients for any user.

mod admission;
mod parts;
mod prometheus;
mod setup;
mod start;
mod store;

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
}

impl Flavour {
    /// The name of the cluster's folder in the folder of the run.
    pub fn folder_name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bare => "bare",
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
}

impl Options {
    /// Free ports, and nodes without GPUs. A test that needs GPUs adds nodes.
    pub fn new(flavour: Flavour) -> Self {
        Self { flavour, api_port: None, prometheus_port: None, node_pools: vec![NodePool::without_gpus("plain", 2)] }
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

    /// Fails if one of the cluster's programs has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::ensure_running)
    }
}

const DESCRIPTION_FILE: &str = "cluster.json";
const PKI_FOLDER: &str = "pki";
