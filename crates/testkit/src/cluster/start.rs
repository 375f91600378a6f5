//! Starts a cluster: creates certificates, starts the programs, and waits until they are ready. If a step fails, the
//! programs that are already running stop.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::Client;

use super::{
    Cluster, DESCRIPTION_FILE, Description, Flavour, Options, PKI_FOLDER, ProcessDescription, admission, parts,
    prometheus, setup,
};
use crate::binaries::Binaries;
use crate::pki::Authority;
use crate::ports::ReservedPort;
use crate::process::Process;
use crate::{audit, client};

/// Timeout for the start of the API server on a loaded machine. It takes a few seconds on an idle one.
const START_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn start(binaries: &Binaries, folder: &Path, options: &Options) -> Result<Cluster> {
    std::fs::create_dir_all(folder.join("log")).with_context(|| format!("cannot create {}", folder.display()))?;
    let listen = Listen::choose(options)?;
    if let Some(port) = options.prometheus_port {
        // Prometheus cannot share a held port, but a port that is taken is reported before anything starts.
        ReservedPort::with_number(port)?;
    }
    let mut cluster = Cluster {
        folder: folder.to_owned(),
        authority: Authority::create(&folder.join(PKI_FOLDER))?,
        description: Description {
            flavour: options.flavour,
            api_url: format!("https://{}:{}", listen.address, listen.api_port),
            etcd_url: format!("https://127.0.0.1:{}", listen.etcd_port),
            prometheus_url: None,
            processes: Vec::new(),
        },
        network: options.network.clone(),
        processes: Vec::new(),
    };
    if listen.real_node {
        let addresses = [parts::API_SERVICE_ADDRESS, &listen.address.to_string()];
        cluster.authority.store_api_server(&addresses)?;
    }
    let admin = cluster.kubeconfig_for("admin", Some("system:masters"))?;
    client::write(&cluster.admin_kubeconfig(), &admin)?;

    cluster.run(binaries, "etcd", &parts::etcd(&cluster.authority, &folder.join("etcd"), listen.etcd_port))?;
    audit::prepare(folder)?;
    admission::prepare(&cluster.authority, folder)?;
    let arguments = parts::api_server(&cluster.authority, folder, &listen);
    cluster.run(binaries, "kube-apiserver", &arguments)?;
    let client = cluster.admin().await?;
    cluster.wait_until_ready(&client).await?;

    match options.flavour {
        Flavour::Full => {
            cluster.simulate_nodes(binaries, &client).await?;
            for pool in &options.node_pools {
                cluster.add_nodes(pool).await?;
            }
            cluster.description.prometheus_url =
                Some(prometheus::start(&mut cluster, binaries, options.prometheus_port).await?);
        }
        Flavour::Real => {
            cluster.start_controllers(binaries)?;
            setup::wait_for_controllers(&mut cluster).await?;
        }
        Flavour::Bare => {}
    }
    cluster.describe()?;
    Ok(cluster)
}

/// Where the API server and etcd listen.
pub(super) struct Listen {
    /// Address of the API server. etcd always listens on the loopback address of its network.
    pub address: Ipv4Addr,
    pub api_port: u16,
    pub etcd_port: u16,
    /// Whether a real node joins the cluster.
    pub real_node: bool,
    /// Ports of this machine that nobody else may take.
    _held: Option<[ReservedPort; 2]>,
}

impl Listen {
    fn choose(options: &Options) -> Result<Self> {
        if let Some(network) = &options.network {
            // Every port of a new network is free.
            let (api_port, etcd_port) = (API_PORT, ETCD_PORT);
            return Ok(Self { address: network.address, api_port, etcd_port, real_node: true, _held: None });
        }
        let api = options.api_port.map_or_else(ReservedPort::any_free, ReservedPort::with_number)?;
        let etcd = ReservedPort::any_free()?;
        let (api_port, etcd_port) = (api.number(), etcd.number());
        Ok(Self { address: Ipv4Addr::LOCALHOST, api_port, etcd_port, real_node: false, _held: Some([api, etcd]) })
    }
}

/// The usual ports, for a control plane in a network of its own.
const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;

impl Cluster {
    pub(super) fn run(&mut self, binaries: &Binaries, program: &str, arguments: &[String]) -> Result<&mut Process> {
        let log = self.folder.join("log").join(format!("{program}.log"));
        let path = binaries.path(program);
        let process = match &self.network {
            None => Process::start(program, &path, arguments, &self.folder, log)?,
            Some(network) => {
                let (enter, arguments) = network.enter(&path, arguments);
                Process::start(program, &enter, &arguments, &self.folder, log)?
            }
        };
        self.processes.push(process);
        self.processes.last_mut().context("a process was just started")
    }

    fn start_controllers(&mut self, binaries: &Binaries) -> Result<()> {
        let kubeconfig = self.component_kubeconfig("kube-controller-manager", "system:kube-controller-manager")?;
        let arguments = parts::controller_manager(&self.authority, &kubeconfig);
        self.run(binaries, "kube-controller-manager", &arguments)?;
        let kubeconfig = self.component_kubeconfig("kube-scheduler", "system:kube-scheduler")?;
        self.run(binaries, "kube-scheduler", &parts::scheduler(&kubeconfig))?;
        Ok(())
    }

    /// Starts the controllers and kwok.
    async fn simulate_nodes(&mut self, binaries: &Binaries, client: &Client) -> Result<()> {
        setup::apply_rules(client).await?;
        self.start_controllers(binaries)?;
        let stages = self.folder.join("stages.yaml");
        std::fs::write(&stages, include_str!("stages.yaml"))?;
        let kubeconfig = self.component_kubeconfig("kwok", setup::KWOK_USER)?;
        self.run(binaries, "kwok", &parts::kwok(&kubeconfig, &stages))?;
        setup::wait_for_controllers(self).await?;
        setup::wait_for_policy(client).await
    }

    fn component_kubeconfig(&self, component: &str, user: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{component}.kubeconfig"));
        client::write(&path, &self.kubeconfig_for(user, None)?)?;
        Ok(path)
    }

    async fn wait_until_ready(&mut self, client: &Client) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            self.ensure_running()?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) | Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(Err(error)) => bail!("the API server is not ready after {START_TIMEOUT:?}: {error}"),
                Err(_) => bail!("the API server does not answer after {START_TIMEOUT:?}"),
            }
        }
    }

    /// Writes the description for other processes. This is the last step, so that a description implies a ready cluster.
    fn describe(&mut self) -> Result<()> {
        self.description.processes = self
            .processes
            .iter()
            .map(|process| ProcessDescription {
                name: process.name().to_owned(),
                id: process.id(),
                log: process.log().to_owned(),
            })
            .collect();
        std::fs::write(self.folder.join(DESCRIPTION_FILE), serde_json::to_vec_pretty(&self.description)?)?;
        Ok(())
    }
}
