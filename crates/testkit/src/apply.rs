//! Applies manifests like `kubectl apply`: several YAML documents of any kind that the cluster serves.

use anyhow::{Context, Result, bail};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

const FIELD_MANAGER: &str = "steersman-testkit";

/// Deserializes a typed object from a JSON manifest.
///
/// # Panics
/// If the manifest does not match its type, which is a mistake in the test.
#[track_caller]
#[allow(clippy::panic, reason = "only tests call this, and a wrong manifest is a wrong test")]
pub fn object<K: DeserializeOwned>(manifest: Value) -> K {
    serde_json::from_value(manifest).unwrap_or_else(|error| panic!("the manifest does not match its type: {error}"))
}

/// Applies every document of `manifests`. Objects without a namespace go to `namespace`, or to `default` if that is `None`.
pub async fn apply_manifests(client: &Client, namespace: Option<&str>, manifests: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(manifests).context("the manifests are not YAML documents of Kubernetes objects")?;
    let mut applied = Vec::new();
    for object in documents.into_iter().flatten() {
        applied.push(apply(client, namespace, &object).await?);
    }
    if applied.is_empty() {
        bail!("the manifests contain no object");
    }
    Ok(applied)
}

async fn apply(client: &Client, namespace: Option<&str>, object: &DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("a document has no apiVersion and kind")?;
    let name = object.name_any();
    let subject = || format!("{} {name}", types.kind);
    let kind = kube::core::GroupVersionKind::try_from(types).with_context(subject)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind)
        .await
        .with_context(|| format!("{}: the cluster does not serve {}", subject(), types.api_version))?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let own_namespace = object.namespace();
            Api::namespaced_with(client.clone(), own_namespace.as_deref().or(namespace).unwrap_or("default"), &resource)
        }
    };
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await.with_context(subject)
}
