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

/// The most that etcd takes in one transaction.
const AT_ONCE: usize = 128;

/// Transactions under way.
const UNDER_WAY: usize = 4;

impl Cluster {
    /// `plural`: as in the paths of the API, such as `pods`. Only for kinds of Kubernetes itself: it converts and checks
    /// nothing. Watches see the objects as new.
    pub async fn store(&self, plural: &str, objects: impl IntoIterator<Item = Value>) -> Result<()> {
        let name = |object: &Value, field: &str| object["metadata"][field].as_str().map(ToOwned::to_owned);
        let put = |object: Value| -> Result<Value> {
            let place = name(&object, "namespace").zip(name(&object, "name")).context("an object has a place")?;
            let key = format!("/registry/{plural}/{}/{}", place.0, place.1);
            let value = STANDARD.encode(serde_json::to_vec(&object)?);
            Ok(json!({ "requestPut": { "key": STANDARD.encode(key), "value": value } }))
        };
        let etcd = self.etcd().await?;
        let puts: Vec<Value> = objects.into_iter().map(put).collect::<Result<_>>()?;
        let transactions = puts.chunks(AT_ONCE).map(|puts| transact(&etcd, puts));
        stream::iter(transactions).buffer_unordered(UNDER_WAY).try_for_each(|()| std::future::ready(Ok(()))).await
    }

    async fn etcd(&self) -> Result<Client> {
        let url = &self.description.etcd_url;
        let identity = self.authority.client("a-benchmark", None)?;
        let credentials = client::Credentials::Certificate(&identity);
        let config = client::kubeconfig(url, self.authority.certificate(), "a-benchmark", &credentials)?;
        client::client(config).await
    }
}

async fn transact(etcd: &Client, puts: &[Value]) -> Result<()> {
    let body = serde_json::to_vec(&json!({ "success": puts }))?;
    let request = http::Request::post("/v3/kv/txn").header("content-type", "application/json").body(body)?;
    let answer = etcd.request::<Value>(request).await.context("etcd does not take objects")?;
    anyhow::ensure!(answer["succeeded"] == true, "etcd does not take objects: {answer}");
    Ok(())
}
