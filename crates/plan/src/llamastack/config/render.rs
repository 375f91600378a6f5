//! Renders the configuration as text: the same content yields the same bytes.

use serde_json::Value;
use sha2::{Digest, Sha256};
use steersman_reconcile::path;

use super::FieldError;
use super::problem::reason;

/// Sorts keys at every level; lists keep their order. Strings that YAML 1.1 would read as another type are quoted,
/// because the server's parser is one of YAML 1.1.
pub fn yaml(config: &Value) -> Result<String, FieldError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, yaml_12: false };
    serde_saphyr::to_string_with_options(&sorted(config), options).map_err(|error| {
        FieldError::new(
            path!(spec),
            reason::FAILED,
            format!("config.yaml cannot be written: {error}"),
            "Remove what is odd from the settings of the providers.",
        )
    })
}

/// Parses YAML of the user. The error names the position and quotes nothing of the text.
pub fn read(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| match error.location() {
        Some(at) => format!("not valid YAML at line {}, column {}", at.line(), at.column()),
        None => "not valid YAML".to_owned(),
    })
}

pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Value of `status.resolvedDistribution.configHash`: independent of the layout of the file.
pub fn hash_of_base(config: &Value) -> String {
    format!("sha256:{}", hash(&sorted(config).to_string()))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
