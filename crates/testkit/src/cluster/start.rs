//! Starts a cluster: creates certificates, starts the programs, and waits until they are ready. If a step fails, the
//! programs that are already running stop.

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
    let hold = |port: Option<u16>| port.map_or_else(ReservedPort::any_free, ReservedPort::with_number);
    let api_port = hold(options.api_port)?;
    if let Some(port) = options.prometheus_port {
        // Prometheus cannot share a held port, but a port that is taken is reported before anything starts.
        ReservedPort::with_number(port)?;
    }
    let etcd_port = ReservedPort::any_free()?;
    let mut cluster = Cluster {
        folder: folder.to_owned(),
        authority: Authority::create(&folder.join(PKI_FOLDER))?,
        description: Description {
            flavour: options.flavour,
            api_url: format!("https://127.0.0.1:{}", api_port.number()),
            etcd_url: format!("https://127.0.0.1:{}", etcd_port.number()),
            prometheus_url: None,
            processes: Vec::new(),
        },
        processes: Vec::new(),
    };
    let admin = cluster.kubeconfig_for("admin", Some("system:masters"))?;
    client::write(&cluster.admin_kubeconfig(), &admin)?;

    cluster.run(binaries, "etcd", &parts::etcd(&cluster.authority, &folder.join("etcd"), etcd_port.number()))?;
    audit::prepare(folder)?;
    admission::prepare(&cluster.authority, folder)?;
    let arguments = parts::api_server(&cluster.authority, folder, api_port.number(), etcd_port.number());
    cluster.run(binaries, "kube-apiserver", &arguments)?;
    let client = cluster.admin().await?;
    cluster.wait_until_ready(&client).await?;

    if options.flavour == Flavour::Full {
        cluster.start_controllers(binaries, &client).await?;
        for pool in &options.node_pools {
            cluster.add_nodes(pool).await?;
        }
        cluster.description.prometheus_url =
            Some(prometheus::start(&mut cluster, binaries, options.prometheus_port).await?);
    }
    cluster.describe()?;
    Ok(cluster)
}

impl Cluster {
    pub(super) fn run(&mut self, binaries: &Binaries, program: &str, arguments: &[String]) -> Result<&mut Process> {
        let log = self.folder.join("log").join(format!("{program}.log"));
        let process = Process::start(program, &binaries.path(program), arguments, &self.folder, log)?;
        self.processes.push(process);
        self.processes.last_mut().context("a process was just started")
    }

    async fn start_controllers(&mut self, binaries: &Binaries, client: &Client) -> Result<()> {
        setup::apply_rules(client).await?;
        let kubeconfig = self.component_kubeconfig("kube-controller-manager", "system:kube-controller-manager")?;
        let arguments = parts::controller_manager(&self.authority, &kubeconfig);
        self.run(binaries, "kube-controller-manager", &arguments)?;
        let kubeconfig = self.component_kubeconfig("kube-scheduler", "system:kube-scheduler")?;
        self.run(binaries, "kube-scheduler", &parts::scheduler(&kubeconfig))?;
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
