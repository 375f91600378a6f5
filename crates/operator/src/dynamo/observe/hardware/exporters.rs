//! Reads the GPUs of each node from its DCGM exporter.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Uri;
use k8s_openapi::api::core::v1::Pod;
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

/// The results of all exporters. Unknown: they could not be listed.
pub async fn poll(
    server: &Server,
    http: &Http,
    endpoint: &Endpoint,
) -> Result<Lookup<Vec<ObservedExporter>>, CallError> {
    let api: Api<Pod> = Api::all(server.client.clone());
    let mut pods = BTreeMap::new();
    for selector in SELECTORS {
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
            let gpus = scrape(http, endpoint, &pod, until).await;
            ObservedExporter { gpus: gpus.map_or_else(Lookup::Unknown, Lookup::Known) }
        })
        // The order of the pods makes equal results compare as equal.
        .buffered(CONCURRENT_POLLS);
    Ok(Lookup::Known(polled.collect().await))
}

async fn scrape(http: &Http, endpoint: &Endpoint, pod: &Pod, until: Instant) -> Result<Option<NodeGpus>, String> {
    let described = format!("pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
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
    Ok(dcgm::read(node, text))
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
