//! Applying manifests as a person with kubectl would: several YAML documents, any kind that the cluster serves.

use anyhow::{Context, Result, bail};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

const MANAGER: &str = "steersman-testkit";

/// A typed object from its JSON form, for manifests that read better so.
///
/// # Panics
/// If the manifest has not the shape of its kind: then the test is wrong.
#[track_caller]
#[allow(clippy::panic, reason = "only tests call this, and a wrong manifest is a wrong test")]
pub fn object<K: DeserializeOwned>(manifest: Value) -> K {
    serde_json::from_value(manifest)
        .unwrap_or_else(|error| panic!("the manifest has not the shape of its kind: {error}"))
}

/// Applies every document of `manifests`; objects without a namespace go to `namespace` or, without that, to `default`.
pub async fn manifests(client: &Client, namespace: Option<&str>, manifests: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(manifests).context("the manifests are not YAML documents of Kubernetes objects")?;
    let mut applied = Vec::new();
    for object in documents.into_iter().flatten() {
        applied.push(apply(client, namespace, &object).await?);
    }
    if applied.is_empty() {
        bail!("the manifests hold no object");
    }
    Ok(applied)
}

async fn apply(client: &Client, namespace: Option<&str>, object: &DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("a document has no apiVersion and kind")?;
    let name = object.name_any();
    let described = || format!("{} {name}", types.kind);
    let kind = kube::core::GroupVersionKind::try_from(types).with_context(described)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind)
        .await
        .with_context(|| format!("{}: the cluster does not serve {}", described(), types.api_version))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let own = object.namespace();
            Api::namespaced_with(client.clone(), own.as_deref().or(namespace).unwrap_or("default"), &resource)
        }
    };
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.with_context(described)
}
