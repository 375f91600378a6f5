//! Runs a real Prometheus with HTTPS, which a test can stop and restart. The Prometheus of a cluster uses the same
//! configuration and arguments.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::cache::{self, RunFolder};
use crate::metrics;
use crate::pki::{self, Authority};
use crate::ports::ReservedPort;
use crate::process::Process;

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The default scrape interval.
pub(crate) const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// The clients that Prometheus accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    NotRequired,
    /// Clients with [`USER`] and [`PASSWORD`].
    Password,
    /// Clients with a certificate of its authority.
    Certificate,
}

pub const USER: &str = "steersman";
pub const PASSWORD: &str = "U*U";
/// bcrypt hash of [`PASSWORD`], from the test vectors of the algorithm.
const PASSWORD_HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

/// A Prometheus for a single test. It stops when dropped.
pub struct PrometheusServer {
    // Dropped in this order: the folder must be last.
    process: Option<Process>,
    authority: Authority,
    binaries: Binaries,
    port: u16,
    folder: PathBuf,
    _run: RunFolder,
}

impl PrometheusServer {
    /// Starts Prometheus. `None` if the cluster's programs are not built.
    pub async fn start(client_auth: ClientAuth) -> Result<Option<Self>> {
        Self::start_with_interval(client_auth, SCRAPE_INTERVAL).await
    }

    /// Starts Prometheus with a scrape interval, for more targets than it can scrape in a second.
    pub async fn start_with_interval(client_auth: ClientAuth, every: Duration) -> Result<Option<Self>> {
        let Some(binaries) = Binaries::find()? else { return Ok(None) };
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let folder = run.path().to_owned();
        let authority = Authority::create(&folder.join("pki"))?;
        authority.store("client", &authority.client("a-test", None)?)?;
        write_configuration(&folder, &authority, client_auth, every, vec![])?;
        // Prometheus cannot share a port, so the port is released here.
        let port = ReservedPort::any_free()?.number();
        let mut started = Self { process: None, authority, binaries, port, folder, _run: run };
        started.restart().await?;
        Ok(Some(started))
    }

    /// Starts Prometheus at the same address and with the same data.
    pub async fn restart(&mut self) -> Result<()> {
        let program = self.binaries.path("prometheus");
        let (arguments, log) = (arguments(&self.folder, self.port), self.folder.join("prometheus.log"));
        let mut process = Process::start("prometheus", &program, &arguments, &self.folder, log)?;
        wait_until_ready(&mut process).await?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops Prometheus: its address refuses connections.
    pub fn stop(&mut self) {
        self.process = None;
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A file of its authority: `ca.pem`, `client.pem`, `client-key.pem`.
    pub fn file(&self, name: &str) -> String {
        self.authority.file(name).display().to_string()
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Adds the target `http://<address>/metrics` with these labels. A target of the same name is replaced.
    pub fn add_target(&self, name: &str, address: &str, labels: &Value) -> Result<()> {
        add_target(&self.folder, name, address, labels)
    }

    /// Removes a target: its series end.
    pub fn remove_target(&self, name: &str) -> Result<()> {
        remove_target(&self.folder, name)
    }

    /// The current value of `query`. Prometheus must accept all clients.
    pub async fn query(&self, query: &str) -> Result<Value> {
        self::query(&self.url(), &self.authority, query).await
    }

    /// The number of queries that Prometheus has answered, from its own metrics.
    pub async fn query_count(&self) -> Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client(&self.url(), &self.authority)?.request_text(request).await?;
        let counts = metrics::find_series(&text, "prometheus_http_requests_total", &[("handler", "/api/v1/query")]);
        Ok(counts.iter().map(|(_, count)| count).sum::<f64>() as u64)
    }
}

/// Writes the configuration files into `folder`.
pub(crate) fn write_configuration(
    folder: &Path,
    authority: &Authority,
    client_auth: ClientAuth,
    every: Duration,
    jobs: Vec<Value>,
) -> Result<()> {
    let every = format!("{}s", every.as_secs().max(1));
    std::fs::create_dir_all(folder.join("targets"))?;
    let targets = json!({
        "job_name": "targets",
        "file_sd_configs": [{ "files": [folder.join("targets/*.json")], "refresh_interval": "1s" }],
    });
    let configuration = json!({
        "global": { "scrape_interval": every, "scrape_timeout": every },
        "scrape_configs": jobs.into_iter().chain([targets]).collect::<Vec<_>>(),
    });
    let mut web = json!({
        "tls_server_config": { "cert_file": authority.file("server.pem"), "key_file": authority.file("server-key.pem") }
    });
    match client_auth {
        ClientAuth::NotRequired => {}
        ClientAuth::Password => web["basic_auth_users"] = json!({ USER: PASSWORD_HASH }),
        ClientAuth::Certificate => {
            web["tls_server_config"]["client_ca_file"] = json!(authority.file("ca.pem"));
            web["tls_server_config"]["client_auth_type"] = json!("RequireAndVerifyClientCert");
        }
    }
    std::fs::write(folder.join("prometheus.yml"), serde_saphyr::to_string(&configuration)?)?;
    std::fs::write(folder.join("web.yml"), serde_saphyr::to_string(&web)?)?;
    Ok(())
}

/// The command line. With port 0, Prometheus chooses a port and logs it: it cannot share a port that we hold.
pub(crate) fn arguments(folder: &Path, port: u16) -> [String; 4] {
    [
        format!("--config.file={}", folder.join("prometheus.yml").display()),
        format!("--web.config.file={}", folder.join("web.yml").display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ]
}

/// Waits until Prometheus is ready, and returns its port.
pub(crate) async fn wait_until_ready(process: &mut Process) -> Result<u16> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        process.ensure_running()?;
        let log = std::fs::read_to_string(process.log())?;
        if let (Some(port), true) = (listening_port(&log), log.contains("Server is ready to receive web requests")) {
            return Ok(port);
        }
        if Instant::now() > deadline {
            bail!("Prometheus is not ready after {START_TIMEOUT:?}; its log ends with:\n{}", process.log_end());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The port in the last log line with an address. The first such line has port 0.
fn listening_port(log: &str) -> Option<u16> {
    log.lines().rev().find_map(|line| {
        let (_, address) = line.split_once("address=127.0.0.1:")?;
        let digits = address.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|port| *port != 0)
    })
}

pub(crate) fn add_target(folder: &Path, name: &str, address: &str, labels: &Value) -> Result<()> {
    let target = json!([{ "targets": [address], "labels": labels }]);
    let folder = folder.join("targets");
    // Prometheus may read the folder at any time, so the file is created by a rename.
    let temporary = folder.join(format!("{name}.part"));
    std::fs::write(&temporary, serde_json::to_vec(&target)?)?;
    std::fs::rename(temporary, folder.join(format!("{name}.json")))?;
    Ok(())
}

pub(crate) fn remove_target(folder: &Path, name: &str) -> Result<()> {
    Ok(std::fs::remove_file(folder.join("targets").join(format!("{name}.json")))?)
}

pub(crate) async fn query(url: &str, authority: &Authority, query: &str) -> Result<Value> {
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
    let request = http::Request::get(format!("/api/v1/query?{form}")).body(Vec::new())?;
    let answer = client(url, authority)?.request::<Value>(request).await.context("Prometheus does not answer")?;
    Ok(answer["data"]["result"].clone())
}

/// An HTTPS client that trusts the authority.
fn client(url: &str, authority: &Authority) -> Result<kube::Client> {
    let mut config = kube::Config::new(url.parse()?);
    config.proxy_url = None;
    config.root_cert = Some(vec![pki::certificate_der(authority.certificate())?]);
    Ok(kube::Client::try_from(config)?)
}
