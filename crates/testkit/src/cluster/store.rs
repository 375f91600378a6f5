//! Writes objects directly to etcd, for benchmarks with a hundred thousand pods: the API server only handles a few hundred
//! writes per second.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use super::Cluster;
use crate::client;

/// Most concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 32;

impl Cluster {
    /// Writes objects of a built-in kind, which must have all fields that the API server would set. `plural` is the plural
    /// of the kind in API paths, such as `pods`. Watches report the objects as added.
    ///
    /// Each object is written by itself. Objects of one etcd transaction would share a resource version, which the API
    /// server takes for a single change: a list could return a part of them, and a watch that starts at the version of
    /// this list would never report the rest.
    pub async fn write_to_etcd(&self, plural: &str, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        let name = |object: &Value, field: &str| object["metadata"][field].as_str().map(ToOwned::to_owned);
        let put_request = |object: Value| -> Result<Value> {
            let path =
                name(&object, "namespace").zip(name(&object, "name")).context("an object has no namespace or name")?;
            let key = format!("/registry/{plural}/{}/{}", path.0, path.1);
            let value = STANDARD.encode(serde_json::to_vec(&object)?);
            Ok(json!({ "key": STANDARD.encode(key), "value": value }))
        };
        let etcd = self.etcd().await?;
        let put_requests: Vec<Value> = objects.into_iter().map(put_request).collect::<Result<_>>()?;
        let writes = put_requests.iter().map(|request| send_put(&etcd, request));
        stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES).try_for_each(|()| std::future::ready(Ok(()))).await
    }

    async fn etcd(&self) -> Result<Client> {
        let url = &self.description.etcd_url;
        let identity = self.authority.client("a-benchmark", None)?;
        let credentials = client::Credentials::Certificate(&identity);
        let config = client::kubeconfig(url, self.authority.certificate(), "a-benchmark", &credentials)?;
        client::client(config).await
    }
}

async fn send_put(etcd: &Client, put_request: &Value) -> Result<()> {
    let body = serde_json::to_vec(put_request)?;
    let request = http::Request::post("/v3/kv/put").header("content-type", "application/json").body(body)?;
    etcd.request::<Value>(request).await.context("etcd does not accept an object")?;
    Ok(())
}
