//! The base configuration of a distribution, over which the user's configuration is laid.

mod labels;
mod needs;
mod registry;
mod resolve;

pub use labels::{
    LABEL_BASE64, LABEL_LAYER, LABEL_PATH, LABEL_TEXT_LIMIT, LAYER_FILE_LIMIT, LabelError, LayerFile, from_labels,
    layer_file,
};
pub(super) use needs::{AGENTS, RESPONSES, missing};
pub use needs::{NEEDS, Need, Unmet, unmet};
pub use registry::{DISTRIBUTIONS, ShippedDistribution, distribution, images, names};
pub use resolve::{BaseSource, NoBase, Resolved, resolve};

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::yaml::{Budget, YamlError};

#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// Name of the distribution, or the image that the base was found on.
    pub name: String,
    /// Version of llama-stack that reads the file, such as `0.7.1`. Empty: unknown.
    pub server_version: String,
    /// The content of `config.yaml`.
    pub config: Value,
}

/// The embedded base of a distribution.
pub fn base(name: &str) -> Option<&'static Base> {
    static BASES: LazyLock<BTreeMap<&'static str, Base>> = LazyLock::new(|| {
        // A test proves that each embedded text parses.
        let embedded = |known: &'static ShippedDistribution| {
            let config = parse(known.text).ok()?;
            let (name, server_version) = (known.name.to_owned(), known.server_version.to_owned());
            Some((known.name, Base { name, server_version, config }))
        };
        DISTRIBUTIONS.iter().filter_map(embedded).collect()
    });
    BASES.get(name)
}

/// Parses a `config.yaml` that can serve as a base. The error quotes nothing of the text, which may hold secrets.
fn parse(text: &str) -> Result<Value, String> {
    let config: Value = Budget::default().parse(text).map_err(|error| match error {
        YamlError::Limit(limit) => format!("it has {limit}"),
        YamlError::Invalid { location: Some((line, column)), .. } => {
            format!("it is not valid YAML (line {line}, column {column})")
        }
        YamlError::Invalid { location: None, .. } => "it is not valid YAML".to_owned(),
    })?;
    if !config.is_object() {
        return Err("it is not a mapping of keys to values".to_owned());
    }
    if !config["providers"].is_object() {
        return Err("it has no mapping `providers`".to_owned());
    }
    Ok(config)
}
