//! The CRDs: printed, installed, kept up to date and left behind in order.
//! Comes in: the families wanted and where conversion is served; goes out: manifests for `kubectl apply --server-side`, or
//! the same CRDs on an API server, with their objects in the storage version.

mod apply;
mod detach;
mod keep;
mod live;
pub mod migrate;
mod objects;
mod say;
mod target;

use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, CrdError, Options};

pub use apply::apply;
pub use detach::detach;
pub use say::CrdsError;
pub use target::{Given, TargetError};

/// Our name as a writer of CRDs.
pub const MANAGER: &str = "steersman/crds";

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
pub fn yaml(families: &[Family], options: &Options) -> Result<String, RenderError> {
    let documents = manifests(families, options)?.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(documents.join("---\n"))
}

/// The same as one `List`.
pub fn json(families: &[Family], options: &Options) -> Result<String, RenderError> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": manifests(families, options)? });
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// The file `deploy/crds/<name of the CRD>.yaml`.
pub fn file(family: Family) -> Result<String, RenderError> {
    Ok(format!("{HEADER}{}", yaml(&[family], &options())?))
}

fn manifests(families: &[Family], options: &Options) -> Result<Vec<Value>, CrdError> {
    wanted(families).iter().map(|family| crds::manifest(&crds::crd(*family, options)?)).collect()
}

/// The families named, or all that have a CRD if there is none.
fn wanted(families: &[Family]) -> &[Family] {
    if families.is_empty() { &crds::FAMILIES } else { families }
}

/// Objects of two versions are converted by us. Without a converter the API server would not fail: it would drop, in
/// silence, what the stored version does not know.
pub fn options() -> Options {
    Options { conversion: Some(target::default()) }
}
