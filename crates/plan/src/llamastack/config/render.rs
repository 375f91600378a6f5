//! The configuration as text.
//! Comes in: the configuration, or a file that holds one; goes out: the same bytes for the same content, and their hash.

use serde_json::Value;
use sha2::{Digest, Sha256};
use steersman_reconcile::path;

use super::FieldError;
use super::problem::reason;

/// Keys sorted at every level, lists in their order. Texts that an older YAML would read as something else are quoted,
/// because the server's reader is one of YAML 1.1.
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

/// A file that somebody else wrote. The message names the place in it, never what is there.
pub fn read(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| match error.location() {
        Some(at) => format!("not valid YAML at line {}, column {}", at.line(), at.column()),
        None => "not valid YAML".to_owned(),
    })
}

/// In lower-case hexadecimal digits.
pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As `status.resolvedDistribution.configHash` has it: the same for the same content, however it is laid out.
pub fn hash_of_base(config: &Value) -> String {
    format!("sha256:{}", hash(&sorted(config).to_string()))
}

/// Whether maps keep the order of insertion depends on who else uses the JSON library.
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
