//! Prometheus beside the cluster, over HTTPS with the cluster's authority. It scrapes the API server, and whatever a test
//! drops into its targets folder.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::Cluster;
use crate::binaries::Binaries;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Starts Prometheus and returns its URL.
pub(super) async fn start(cluster: &mut Cluster, binaries: &Binaries, port: Option<u16>) -> Result<String> {
    let folder = cluster.folder.join("prometheus");
    std::fs::create_dir_all(folder.join("targets"))?;
    let monitor = cluster.authority.client("prometheus", Some("system:monitoring"))?;
    cluster.authority.store("prometheus", &monitor)?;
    std::fs::write(folder.join("prometheus.yml"), configuration(cluster, &folder)?)?;
    std::fs::write(folder.join("web.yml"), web_configuration(cluster)?)?;
    let arguments = [
        format!("--config.file={}", folder.join("prometheus.yml").display()),
        format!("--web.config.file={}", folder.join("web.yml").display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        // It cannot share a port that we hold, so it chooses one itself and says which in its log.
        format!("--web.listen-address=127.0.0.1:{}", port.unwrap_or(0)),
    ];
    let process = cluster.run(binaries, "prometheus", &arguments)?;
    let deadline = Instant::now() + START_LIMIT;
    loop {
        process.ensure_running()?;
        let log = std::fs::read_to_string(process.log())?;
        if let (Some(port), true) = (listening_port(&log), log.contains("Server is ready to receive web requests")) {
            return Ok(format!("https://127.0.0.1:{port}"));
        }
        if Instant::now() > deadline {
            bail!("Prometheus is not ready after {START_LIMIT:?}; its log ends with:\n{}", process.log_end());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn configuration(cluster: &Cluster, folder: &Path) -> Result<String> {
    let pki = |name: &str| cluster.authority.file(name);
    let api = cluster.description.api_url.trim_start_matches("https://");
    let configuration = json!({
        "global": { "scrape_interval": "1s", "scrape_timeout": "1s" },
        "scrape_configs": [
            {
                "job_name": "kubernetes-apiserver",
                "scheme": "https",
                "scrape_interval": "5s",
                "scrape_timeout": "5s",
                "tls_config": { "ca_file": pki("ca.pem"), "cert_file": pki("prometheus.pem"), "key_file": pki("prometheus-key.pem") },
                "static_configs": [{ "targets": [api] }],
            },
            {
                "job_name": "targets",
                "file_sd_configs": [{ "files": [folder.join("targets/*.json")], "refresh_interval": "1s" }],
            },
        ],
    });
    serde_saphyr::to_string(&configuration).context("cannot write Prometheus' configuration")
}

fn web_configuration(cluster: &Cluster) -> Result<String> {
    let pki = |name: &str| cluster.authority.file(name);
    let configuration =
        json!({ "tls_server_config": { "cert_file": pki("server.pem"), "key_file": pki("server-key.pem") } });
    serde_saphyr::to_string(&configuration).context("cannot write Prometheus' web configuration")
}

/// The port in the last log line that names an address; the first such line still says port 0.
fn listening_port(log: &str) -> Option<u16> {
    log.lines().rev().find_map(|line| {
        let (_, address) = line.split_once("address=127.0.0.1:")?;
        let digits = address.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|port| *port != 0)
    })
}

impl Cluster {
    /// Makes Prometheus scrape `http://<address>/metrics` every second, with these labels, until the cluster ends.
    pub fn scrape(&self, name: &str, address: &str, labels: &serde_json::Value) -> Result<()> {
        let target = json!([{ "targets": [address], "labels": labels }]);
        let folder = self.folder.join("prometheus/targets");
        // Prometheus reads the folder at any moment: only a rename shows it a whole file.
        let part = folder.join(format!("{name}.part"));
        std::fs::write(&part, serde_json::to_vec(&target)?)?;
        std::fs::rename(part, folder.join(format!("{name}.json")))?;
        Ok(())
    }

    /// Asks Prometheus for the current value of `query`.
    pub async fn query(&self, query: &str) -> Result<serde_json::Value> {
        let url = self.description.prometheus_url.as_ref().context("this cluster has no Prometheus")?;
        let mut config = kube::Config::new(url.parse()?);
        config.proxy_url = None;
        config.root_cert = Some(vec![crate::pki::certificate_der(self.authority.certificate())?]);
        // Kubernetes' client is an HTTPS client that trusts the cluster's authority: one more is not needed.
        let client = kube::Client::try_from(config)?;
        let path = format!(
            "/api/v1/query?{}",
            form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish()
        );
        let answer = client.request::<serde_json::Value>(http::Request::get(path).body(Vec::new())?).await?;
        Ok(answer["data"]["result"].clone())
    }
}
