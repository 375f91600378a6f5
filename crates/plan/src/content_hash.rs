//! Hashes that depend on the content alone.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 in lower-case hexadecimal digits.
pub fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sorts the keys of all maps. Another crate of the build can switch serde_json to insertion order, which is no content.
pub fn sorted(value: &Value) -> Value {
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
