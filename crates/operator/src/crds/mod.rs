//! The CRDs: printed, applied, detached, and their objects migrated to the storage version.

pub mod apply;
pub mod detach;
pub(crate) mod error;
pub(crate) mod live;
pub mod migrate;
mod objects;
pub(crate) mod target;

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, CrdError, Options};

pub use apply::apply;
pub use detach::detach;
pub use error::CrdsError;
pub use target::{TargetError, TargetFlags};

pub const MANAGER: &str = "steersman/crds";

/// Service in front of the operator's webhooks.
pub const WEBHOOK_SERVICE: &str = "steersman-webhook";

const HEADER: &str = "\
# Generated from the types in crates/api by `steersman crds`; do not edit. `cargo xtask check` fails if this file differs.
";

#[derive(Debug, thiserror::Error)]
pub enum CrdRenderError {
    #[error(transparent)]
    Crd(#[from] CrdError),
    #[error("cannot serialize a CRD as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser_error::Error),
    #[error("cannot serialize the CRDs as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The CRDs of `families` as YAML documents; an empty list means every family with a CRD.
pub fn yaml(families: &[Family], options: &Options) -> Result<String, CrdRenderError> {
    let documents = manifests(families, options)?.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

pub fn json(families: &[Family], options: &Options) -> Result<String, CrdRenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families, options)? });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/crds/<name of the CRD>.yaml`.
pub fn file(family: Family) -> Result<String, CrdRenderError> {
    Ok(format!("{HEADER}{}", yaml(&[family], &options())?))
}

fn manifests(families: &[Family], options: &Options) -> Result<Vec<Value>, CrdError> {
    wanted(families).iter().map(|family| crds::manifest(&crds::crd(*family, options)?)).collect()
}

fn wanted(families: &[Family]) -> &[Family] {
    if families.is_empty() { &crds::FAMILIES } else { families }
}

/// The shipped CRDs name the operator's conversion webhook. Without one the API server would not fail: it would silently drop
/// the fields that the storage version does not have.
pub fn options() -> Options {
    Options { conversion: Some(target::default()) }
}
