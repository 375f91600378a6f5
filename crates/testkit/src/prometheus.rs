//! A real Prometheus, by https. Comes in: whom it lets in and what it shall scrape; goes out: a server that a test can stop
//! and start again. The one beside a cluster is started with the same words.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::cache::{self, RunFolder};
use crate::metrics;
use crate::pki::{self, Authority};
use crate::ports::HeldPort;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(120);

/// How often it scrapes, unless told otherwise.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Whom it lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Open,
    /// Only users with [`USER`] and [`PASSWORD`].
    Login,
    /// Only clients with a certificate of its authority.
    Certificate,
}

pub const USER: &str = "steersman";
pub const PASSWORD: &str = "U*U";
/// Of the password, by bcrypt: from the test vectors of the algorithm.
const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

/// A Prometheus of one test alone. Dropping it ends it.
pub struct Prometheus {
    // In this order: the folder goes last.
    process: Option<Process>,
    authority: Authority,
    binaries: Binaries,
    port: u16,
    folder: PathBuf,
    _run: RunFolder,
}

impl Prometheus {
    /// None: the cluster's programs are not built.
    pub async fn start(door: Door) -> Result<Option<Self>> {
        Self::start_scraping(door, EVERY).await
    }

    /// The same where a second is too short for all that there is to scrape.
    pub async fn start_scraping(door: Door, every: Duration) -> Result<Option<Self>> {
        let Some(binaries) = Binaries::find()? else { return Ok(None) };
        let run = RunFolder::create(&cache::runs()?)?;
        let folder = run.path().to_owned();
        let authority = Authority::create(&folder.join("pki"))?;
        authority.store("client", &authority.client("a-test", None)?)?;
        write_configuration(&folder, &authority, door, every, vec![])?;
        // Prometheus shares no ports, so that it is let go of here.
        let port = HeldPort::any()?.number();
        let mut started = Self { process: None, authority, binaries, port, folder, _run: run };
        started.start_again().await?;
        Ok(Some(started))
    }

    /// At the same address, with what it knew before.
    pub async fn start_again(&mut self) -> Result<()> {
        let program = self.binaries.path("prometheus");
        let (arguments, log) = (arguments(&self.folder, self.port), self.folder.join("prometheus.log"));
        let mut process = Process::start("prometheus", &program, &arguments, &self.folder, log)?;
        ready(&mut process).await?;
        self.process = Some(process);
        Ok(())
    }

    /// From now on nobody answers at its address.
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

    /// Scrapes `http://<address>/metrics` again and again, with these labels. The same name again replaces the target.
    pub fn scrape(&self, name: &str, address: &str, labels: &Value) -> Result<()> {
        scrape(&self.folder, name, address, labels)
    }

    /// Forgets a target: its series end.
    pub fn forget(&self, name: &str) -> Result<()> {
        forget(&self.folder, name)
    }

    /// The current value of `query`, where everybody may ask.
    pub async fn query(&self, query: &str) -> Result<Value> {
        self::query(&self.url(), &self.authority, query).await
    }

    /// How many queries it has answered, by its own count.
    pub async fn queries(&self) -> Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client(&self.url(), &self.authority)?.request_text(request).await?;
        let counts = metrics::find(&text, "prometheus_http_requests_total", &[("handler", "/api/v1/query")]);
        Ok(counts.iter().map(|(_, count)| count).sum::<f64>() as u64)
    }
}

/// Writes what it reads at its start, into `folder`.
pub(crate) fn write_configuration(
    folder: &Path,
    authority: &Authority,
    door: Door,
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
    match door {
        Door::Open => {}
        Door::Login => web["basic_auth_users"] = json!({ USER: HASH }),
        Door::Certificate => {
            web["tls_server_config"]["client_ca_file"] = json!(authority.file("ca.pem"));
            web["tls_server_config"]["client_auth_type"] = json!("RequireAndVerifyClientCert");
        }
    }
    std::fs::write(folder.join("prometheus.yml"), serde_saphyr::to_string(&configuration)?)?;
    std::fs::write(folder.join("web.yml"), serde_saphyr::to_string(&web)?)?;
    Ok(())
}

/// Port 0: it cannot share a port that we hold, so it chooses one itself and says which in its log.
pub(crate) fn arguments(folder: &Path, port: u16) -> [String; 4] {
    [
        format!("--config.file={}", folder.join("prometheus.yml").display()),
        format!("--web.config.file={}", folder.join("web.yml").display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ]
}

/// Waits until it answers, and returns its port.
pub(crate) async fn ready(process: &mut Process) -> Result<u16> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        process.ensure_running()?;
        let log = std::fs::read_to_string(process.log())?;
        if let (Some(port), true) = (listening_port(&log), log.contains("Server is ready to receive web requests")) {
            return Ok(port);
        }
        if Instant::now() > deadline {
            bail!("Prometheus is not ready after {START_LIMIT:?}; its log ends with:\n{}", process.log_end());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The port in the last log line that names an address; the first such line still says port 0.
fn listening_port(log: &str) -> Option<u16> {
    log.lines().rev().find_map(|line| {
        let (_, address) = line.split_once("address=127.0.0.1:")?;
        let digits = address.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|port| *port != 0)
    })
}

pub(crate) fn scrape(folder: &Path, name: &str, address: &str, labels: &Value) -> Result<()> {
    let target = json!([{ "targets": [address], "labels": labels }]);
    let folder = folder.join("targets");
    // Prometheus reads the folder at any moment: only a rename shows it a whole file.
    let part = folder.join(format!("{name}.part"));
    std::fs::write(&part, serde_json::to_vec(&target)?)?;
    std::fs::rename(part, folder.join(format!("{name}.json")))?;
    Ok(())
}

pub(crate) fn forget(folder: &Path, name: &str) -> Result<()> {
    Ok(std::fs::remove_file(folder.join("targets").join(format!("{name}.json")))?)
}

pub(crate) async fn query(url: &str, authority: &Authority, query: &str) -> Result<Value> {
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
    let request = http::Request::get(format!("/api/v1/query?{form}")).body(Vec::new())?;
    let answer = client(url, authority)?.request::<Value>(request).await.context("Prometheus does not answer")?;
    Ok(answer["data"]["result"].clone())
}

/// Kubernetes' client is an HTTPS client that trusts the authority: one more is not needed.
fn client(url: &str, authority: &Authority) -> Result<kube::Client> {
    let mut config = kube::Config::new(url.parse()?);
    config.proxy_url = None;
    config.root_cert = Some(vec![pki::certificate_der(authority.certificate())?]);
    Ok(kube::Client::try_from(config)?)
}
