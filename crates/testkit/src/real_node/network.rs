//! Clients in the network of a real node. They reach pods and Services as a pod does, through kube-proxy.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use http::StatusCode;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, Config};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::RealCluster;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

impl RealCluster {
    /// Runs `work` on a thread of its own, whose connections are made in the network of the node.
    pub async fn in_network<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let path = self.namespaces.network_file();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let run = || -> Result<T> {
                let namespace = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
                // This changes the network of this thread only, and the runtime uses no other.
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("cannot enter the network of the node")?;
                Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work()))
            };
            // The receiver is gone if the caller has stopped waiting.
            let _ = sender.send(run());
        });
        receiver.await.context("the thread in the network of the node has ended")?
    }

    /// Address and port of a Service, as `http://ADDRESS:PORT`. The address is that of the Service, not of a pod.
    pub async fn service_url(&self, namespace: &str, name: &str) -> Result<String> {
        let services: Api<Service> = Api::namespaced(self.cluster.admin().await?, namespace);
        let spec = services.get(name).await?.spec.unwrap_or_default();
        let address = spec.cluster_ip.with_context(|| format!("the Service {name} has no address"))?;
        let port = spec.ports.iter().flatten().next().with_context(|| format!("the Service {name} has no port"))?.port;
        Ok(format!("http://{address}:{port}"))
    }

    /// Sends one request in the network of the node; see [`send`].
    pub async fn request(
        &self,
        url: &str,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Result<(StatusCode, String)> {
        let (url, path) = (url.to_owned(), path.to_owned());
        self.in_network(async move || send(&url, &path, body).await).await?
    }
}

/// Sends one request on a new connection: GET, or POST with a JSON body. Returns the status and the body of the response.
pub async fn send(url: &str, path: &str, body: Option<serde_json::Value>) -> Result<(StatusCode, String)> {
    let mut config = Config::new(url.parse().with_context(|| format!("{url} is not a URL"))?);
    config.connect_timeout = Some(REQUEST_TIMEOUT);
    config.read_timeout = Some(REQUEST_TIMEOUT);
    config.proxy_url = None;
    let client = Client::try_from(config)?;
    let request = match body {
        Some(body) => {
            http::Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(&body)?)
        }
        None => http::Request::get(path).body(Vec::new()),
    };
    let response =
        client.send(request?.map(Into::into)).await.with_context(|| format!("no response from {url}{path}"))?;
    let status = response.status();
    let body = kube::client::Body::collect_bytes(response.into_body()).await?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
