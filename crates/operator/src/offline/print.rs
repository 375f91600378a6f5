//! Renders objects as YAML or JSON for `kubectl`.

use serde_json::{Value, json};

/// Texts that YAML 1.1 would read as another type are quoted, because kubectl reads YAML 1.1.
pub fn yaml(object: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string_with_options(object, serde_saphyr::ser_options! { yaml_12: false })?)
}

pub fn documents<'a>(objects: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<String> {
    Ok(objects.into_iter().map(yaml).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

pub fn json(object: &Value) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(object)?))
}

pub fn list(objects: &[Value]) -> anyhow::Result<String> {
    json(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }))
}
