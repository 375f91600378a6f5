//! The Prometheus of a full cluster, with HTTPS and a certificate of the cluster's authority. It scrapes the API server and
//! the targets that tests add.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Cluster;
use crate::binaries::Binaries;
use crate::prometheus::{self, ClientAuth};

/// Starts Prometheus and returns its URL.
pub(super) async fn start(cluster: &mut Cluster, binaries: &Binaries, port: Option<u16>) -> Result<String> {
    let folder = cluster.folder.join("prometheus");
    let monitor = cluster.authority.client("prometheus", Some("system:monitoring"))?;
    cluster.authority.store("prometheus", &monitor)?;
    prometheus::write_configuration(
        &folder,
        &cluster.authority,
        ClientAuth::NotRequired,
        prometheus::SCRAPE_INTERVAL,
        vec![api_server(cluster)],
    )?;
    let process = cluster.run(binaries, "prometheus", &prometheus::arguments(&folder, port.unwrap_or(0)))?;
    Ok(format!("https://127.0.0.1:{}", prometheus::wait_until_ready(process).await?))
}

fn api_server(cluster: &Cluster) -> Value {
    let pki = |name: &str| cluster.authority.file(name);
    let api = cluster.description.api_url.trim_start_matches("https://");
    json!({
        "job_name": "kubernetes-apiserver",
        "scheme": "https",
        "scrape_interval": "5s",
        "scrape_timeout": "5s",
        "tls_config": { "ca_file": pki("ca.pem"), "cert_file": pki("prometheus.pem"), "key_file": pki("prometheus-key.pem") },
        "static_configs": [{ "targets": [api] }],
    })
}

impl Cluster {
    /// Adds the target `http://<address>/metrics` with these labels. It is scraped every second.
    pub fn add_scrape_target(&self, name: &str, address: &str, labels: &Value) -> Result<()> {
        prometheus::add_target(&self.folder.join("prometheus"), name, address, labels)
    }

    /// Removes a target: its series end.
    pub fn remove_scrape_target(&self, name: &str) -> Result<()> {
        prometheus::remove_target(&self.folder.join("prometheus"), name)
    }

    /// The path of the certificate of the cluster's authority.
    pub fn certificate_authority(&self) -> PathBuf {
        self.authority.file("ca.pem")
    }

    /// Evaluates `query` now.
    pub async fn query(&self, query: &str) -> Result<Value> {
        let url = self.description.prometheus_url.as_ref().context("this cluster has no Prometheus")?;
        prometheus::query(url, &self.authority, query).await
    }
}
