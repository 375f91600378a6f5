//! Reads the GPUs of each node from its DCGM exporter.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Uri;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use steersman_plan::dynamo::hardware::{NodeGpus, ObservedExporter, dcgm};
use steersman_reconcile::Lookup;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::http::{Http, HttpRequest};
use tokio::time::{self, Instant};

use super::known_unless_forbidden;

/// Default URL of an exporter.
pub const ENDPOINT: &str = "http://{POD_IP}:9400/metrics";
const ADDRESS: &str = "{POD_IP}";

/// Default namespaces of exporters: those of NVIDIA's GPU operator, and of the cluster itself.
pub const NAMESPACES: [&str; 3] = ["gpu-operator", "nvidia-gpu-operator", "kube-system"];

/// Labels that NVIDIA's GPU operator and the exporter's own chart set.
const SELECTORS: [&str; 2] = ["app in (nvidia-dcgm-exporter, dcgm-exporter)", "app.kubernetes.io/name=dcgm-exporter"];

/// Most bytes of an answer, four times that of sixteen GPUs with all their counters and pods.
const MAX_RESPONSE_BYTES: usize = 2 * 1024 * 1024;

/// Exporters polled at a time, and time for all of them together.
const CONCURRENT_POLLS: usize = 32;
const POLL_TIMEOUT: Duration = Duration::from_secs(30);

/// URL of an exporter with a placeholder for the address of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl Default for Endpoint {
    fn default() -> Self {
        Self(ENDPOINT.to_owned())
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(template: &str) -> Result<Self, String> {
        let wrong = || format!("it must be an http or https URL with {ADDRESS} as its host, such as {ENDPOINT}");
        let after = template.strip_prefix("http://").or_else(|| template.strip_prefix("https://")).ok_or_else(wrong)?;
        // Requests go to the pod alone: its address must be the whole host, followed by a port or a path.
        let rest = after.strip_prefix(ADDRESS).filter(|rest| !rest.contains(ADDRESS)).ok_or_else(wrong)?;
        let port = rest.split(['/', '?']).next().unwrap_or_default();
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        let endpoint = Self(template.to_owned());
        let reads = endpoint.of(IpAddr::from([10, 0, 0, 1])).is_some();
        if is_port && reads { Ok(endpoint) } else { Err(wrong()) }
    }
}

impl Endpoint {
    fn of(&self, pod: IpAddr) -> Option<Uri> {
        let host = match pod {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        self.0.replace(ADDRESS, &host).parse().ok()
    }
}

/// How exporters are found and reached.
#[derive(Clone)]
pub struct ExporterSource {
    pub http: Http,
    pub endpoint: Endpoint,
    /// Namespaces whose pods are believed. Anyone may set an exporter's labels in a namespace of their own.
    pub namespaces: Vec<String>,
}

/// The results of all exporters. Unknown: they could not be listed.
pub async fn poll(server: &Server, source: &ExporterSource) -> Result<Lookup<Vec<ObservedExporter>>, CallError> {
    let mut pods = BTreeMap::new();
    for (namespace, selector) in source.namespaces.iter().flat_map(|name| SELECTORS.map(|selector| (name, selector))) {
        let api: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
        let listed = server.call(api.list(&ListParams::default().labels(selector))).await;
        match known_unless_forbidden(listed)? {
            Lookup::Known(listed) => {
                pods.extend(listed.items.into_iter().map(|pod| ((pod.namespace(), pod.name_any()), pod)))
            }
            Lookup::Unknown(why) => return Ok(Lookup::Unknown(why)),
        }
    }
    let until = Instant::now() + POLL_TIMEOUT;
    let polled = stream::iter(pods.into_values())
        .map(|pod| async move {
            let gpus = scrape(source, &pod, until).await;
            ObservedExporter { gpus: gpus.map_or_else(Lookup::Unknown, Lookup::Known) }
        })
        // The order of the pods makes equal results compare as equal.
        .buffered(CONCURRENT_POLLS);
    Ok(Lookup::Known(polled.collect().await))
}

async fn scrape(source: &ExporterSource, pod: &Pod, until: Instant) -> Result<Option<NodeGpus>, String> {
    let ExporterSource { http, endpoint, .. } = source;
    let described = format!("pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    if !is_of_daemon_set(pod) {
        return Err(format!("{described} is ignored: no DaemonSet controls it"));
    }
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if phase != "Running" || pod.metadata.deletion_timestamp.is_some() {
        return Err(format!("{described} is not running ({phase})"));
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let address = status.and_then(|status| status.pod_ip.as_deref()?.parse().ok());
    let url = address.and_then(|address| endpoint.of(address)).ok_or_else(|| format!("{described} has no address"))?;
    let late =
        || format!("HTTP GET {url} failed: no response within the {} s for all exporters", POLL_TIMEOUT.as_secs());
    let answer = time::timeout_at(until, http.send(HttpRequest::get(url.clone(), MAX_RESPONSE_BYTES)))
        .await
        .map_err(|_| late())?;
    let answer = answer.map_err(|error| format!("HTTP GET {url} failed: {error}"))?;
    if !answer.status.is_success() {
        return Err(format!("metrics endpoint {url} returned status {}", answer.status.as_u16()));
    }
    let text = std::str::from_utf8(&answer.body)
        .map_err(|_| format!("parse prometheus metrics: the response of {url} is not UTF-8 text"))?;
    dcgm::read(node, text).map_err(|error| format!("metrics endpoint {url}: {error}"))
}

/// Exporters run on every node. A pod that a user created for another purpose, or to report false GPUs, has another owner.
fn is_of_daemon_set(pod: &Pod) -> bool {
    let controls = |owner: &OwnerReference| {
        owner.controller == Some(true) && owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
    };
    pod.owner_references().iter().any(controls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_accepts_pod_address_only() {
        let v4 = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(Endpoint::default().of(v4).unwrap(), "http://10.0.0.7:9400/metrics");
        assert_eq!(Endpoint::default().of("fd00::7".parse().unwrap()).unwrap(), "http://[fd00::7]:9400/metrics");
        let other: Endpoint = "https://{POD_IP}:9443/m?x=1".parse().unwrap();
        assert_eq!(other.of(v4).unwrap(), "https://10.0.0.7:9443/m?x=1");
        for wrong in [
            "",
            "http://10.0.0.1:9400/metrics",
            "http://exporter/{POD_IP}",
            "http://{POD_IP}.example/metrics",
            "http://{POD_IP}@example/metrics",
            "http://{POD_IP}:9400/{POD_IP}",
            "ftp://{POD_IP}/metrics",
            "{POD_IP}:9400",
            "http://{POD_IP}:port/metrics",
            "http://{POD_IP}:@example/metrics",
            "http://{POD_IP}:1@example/metrics",
        ] {
            let said = wrong.parse::<Endpoint>().unwrap_err();
            assert!(said.ends_with("such as http://{POD_IP}:9400/metrics"), "{wrong}: {said}");
        }
    }
}
