//! Objects past the API server, straight into its store: it takes a few hundred writes a second, and a benchmark wants a
//! hundred thousand pods. Comes in: objects with all that the API server would have given them; goes out: the same, as if
//! they had always been there.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use super::Cluster;
use crate::client;

/// Writes under way.
const UNDER_WAY: usize = 32;

impl Cluster {
    /// `plural`: as in the paths of the API, such as `pods`. Only for kinds of Kubernetes itself: it converts and checks
    /// nothing. Watches see the objects as new.
    ///
    /// One by one, though etcd would take many in one transaction: those would share a version, and the API server, for which
    /// a version is one change, would answer a list from the middle of it and never tell the rest to whoever watches from there.
    pub async fn store(&self, plural: &str, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        let name = |object: &Value, field: &str| object["metadata"][field].as_str().map(ToOwned::to_owned);
        let put = |object: Value| -> Result<Value> {
            let place = name(&object, "namespace").zip(name(&object, "name")).context("an object has a place")?;
            let key = format!("/registry/{plural}/{}/{}", place.0, place.1);
            let value = STANDARD.encode(serde_json::to_vec(&object)?);
            Ok(json!({ "key": STANDARD.encode(key), "value": value }))
        };
        let etcd = self.etcd().await?;
        let puts: Vec<Value> = objects.into_iter().map(put).collect::<Result<_>>()?;
        let writes = puts.iter().map(|each| write(&etcd, each));
        stream::iter(writes).buffer_unordered(UNDER_WAY).try_for_each(|()| std::future::ready(Ok(()))).await
    }

    async fn etcd(&self) -> Result<Client> {
        let url = &self.description.etcd_url;
        let identity = self.authority.client("a-benchmark", None)?;
        let credentials = client::Credentials::Certificate(&identity);
        let config = client::kubeconfig(url, self.authority.certificate(), "a-benchmark", &credentials)?;
        client::client(config).await
    }
}

async fn write(etcd: &Client, put: &Value) -> Result<()> {
    let body = serde_json::to_vec(put)?;
    let request = http::Request::post("/v3/kv/put").header("content-type", "application/json").body(body)?;
    etcd.request::<Value>(request).await.context("etcd does not take objects")?;
    Ok(())
}
