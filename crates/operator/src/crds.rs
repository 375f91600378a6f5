//! The CRDs as texts.
//! Comes in: the families wanted; goes out: manifests for `kubectl apply --server-side`, as YAML documents or one JSON list.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{ServiceReference, WebhookClientConfig};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, CrdError, Options};

use crate::rbac;

/// The Service in front of the operator's webhooks.
pub const WEBHOOK_SERVICE: &str = "steersman-webhook";

const HEADER: &str = "\
# Generated from the types in crates/api by `steersman crds`; do not edit. `cargo xtask check` fails where this file differs.
";

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error(transparent)]
    Crd(#[from] CrdError),
    #[error("cannot write a CRD as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser_error::Error),
    #[error("cannot write the CRDs as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// One YAML document for each of `families`, or for every family that has a CRD if there is none.
pub fn yaml(families: &[Family]) -> Result<String, RenderError> {
    let documents = manifests(families)?.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// The same as one `List`.
pub fn json(families: &[Family]) -> Result<String, RenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families)? });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/crds/<name of the CRD>.yaml`.
pub fn file(family: Family) -> Result<String, RenderError> {
    Ok(format!("{HEADER}{}", yaml(&[family])?))
}

fn manifests(families: &[Family]) -> Result<Vec<Value>, CrdError> {
    let families = if families.is_empty() { &crds::FAMILIES } else { families };
    families.iter().map(|family| crds::manifest(&crds::crd(*family, &options())?)).collect()
}

/// Objects of two versions are converted by us. Without a converter the API server would not fail: it would drop, in
/// silence, what the stored version does not know.
pub fn options() -> Options {
    let service = ServiceReference {
        namespace: rbac::NAMESPACE.to_owned(),
        name: WEBHOOK_SERVICE.to_owned(),
        path: Some("/convert".to_owned()),
        port: Some(443),
    };
    Options { conversion: Some(WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }) }
}
