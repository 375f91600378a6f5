//! Reads the schemas of Kubernetes' own types from an API server, and reduces them to the keys that controller-gen puts
//! into a CRD for the same types.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use kube::Client;
use serde_json::{Map, Value, json};

/// The OpenAPI documents that are read. A type of another API group needs its document here.
const DOCUMENTS: [&str; 6] =
    ["api/v1", "apis/apps/v1", "apis/autoscaling/v2", "apis/batch/v1", "apis/networking.k8s.io/v1", "apis/policy/v1"];

/// Keys for kubectl and clients, and enums, which controller-gen does not emit for built-in types.
const OMITTED_KEYS: [&str; 6] = [
    "description",
    "enum",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
];

/// Defaults that the API server publishes and controller-gen does not emit: the first two are references to constants,
/// which it cannot resolve, and the last is the zero value of an optional field.
const OMITTED_DEFAULTS: [(&str, &str); 3] = [
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", "status"),
];

/// Types that embed a LocalObjectReference in Go. controller-gen applies the marker of the embedded type to the whole.
const ATOMIC_TYPES: [&str; 5] = [
    "io.k8s.api.core.v1.ConfigMapEnvSource",
    "io.k8s.api.core.v1.ConfigMapProjection",
    "io.k8s.api.core.v1.ConfigMapVolumeSource",
    "io.k8s.api.core.v1.SecretEnvSource",
    "io.k8s.api.core.v1.SecretProjection",
];

/// The schemas of `roots` and of all types that they refer to, by name. References stay as `$ref` with the bare name. Types
/// in `known` are referred to but not returned: the caller has schemas for them.
pub async fn definitions(client: &Client, roots: &BTreeSet<String>, known: &[&str]) -> Result<BTreeMap<String, Value>> {
    let mut schemas_by_name = Map::new();
    for document in DOCUMENTS {
        let path = format!("/openapi/v3/{document}");
        let request = http::Request::get(&path).body(Vec::new()).context("cannot build a request")?;
        let mut answer: Value = client.request(request).await.with_context(|| format!("cannot read {path}"))?;
        match answer.pointer_mut("/components/schemas").map(Value::take) {
            Some(Value::Object(schemas)) => schemas_by_name.extend(schemas),
            _ => return Err(anyhow!("{path} contains no schemas")),
        }
    }
    select(&schemas_by_name, roots, known)
}

fn select(
    schemas_by_name: &Map<String, Value>,
    roots: &BTreeSet<String>,
    known: &[&str],
) -> Result<BTreeMap<String, Value>> {
    let mut selected = BTreeMap::new();
    let mut pending: Vec<String> = roots.iter().cloned().collect();
    while let Some(name) = pending.pop() {
        if selected.contains_key(&name) || known.contains(&name.as_str()) {
            continue;
        }
        let definition = schemas_by_name.get(&name).ok_or_else(|| {
            anyhow!("the API server describes no type {name}; is its document missing in testkit's openapi.rs?")
        })?;
        let mut reduced = reduce(definition, Position::Other, &mut pending);
        apply_controller_gen_quirks(&name, &mut reduced);
        selected.insert(name, reduced);
    }
    Ok(selected)
}

fn apply_controller_gen_quirks(name: &str, definition: &mut Value) {
    let Some(definition) = definition.as_object_mut() else { return };
    if let Some(Value::Object(fields)) = definition.get_mut("properties") {
        for (_, field) in OMITTED_DEFAULTS.iter().filter(|(owner, _)| *owner == name) {
            if let Some(Value::Object(field)) = fields.get_mut(*field) {
                field.remove("default");
            }
        }
    }
    if ATOMIC_TYPES.contains(&name) {
        definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
}

/// The position of a schema, which decides on the meaning of its default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Other,
    /// An optional field. Its default comes from a marker, and controller-gen emits it.
    Optional,
}

fn reduce(schema: &Value, position: Position, references: &mut Vec<String>) -> Value {
    let Some(original) = schema.as_object() else { return schema.clone() };
    let mut fields = Map::new();
    let required = original.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    for (key, value) in original {
        match key.as_str() {
            omitted if OMITTED_KEYS.contains(&omitted) => {}
            // The zero value of a required field and an empty struct are no defaults of the API.
            "default" if position == Position::Other || *value == json!({}) => {}
            "required" => {
                fields.insert(key.clone(), json!(required));
            }
            "$ref" => add_reference(value, &mut fields, references),
            // The API server only uses `allOf` for a reference with sibling keys.
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    if let Value::Object(part) = reduce(part, Position::Other, references) {
                        fields.extend(part);
                    }
                }
            }
            "properties" => {
                let properties = value.as_object().into_iter().flatten().map(|(name, schema)| {
                    let position = if required.contains(name.as_str()) { Position::Other } else { Position::Optional };
                    (name.clone(), reduce(schema, position, references))
                });
                let properties: Map<String, Value> = properties.collect();
                fields.insert(key.clone(), Value::Object(properties));
            }
            "items" | "additionalProperties" => {
                fields.insert(key.clone(), reduce(value, Position::Other, references));
            }
            _ => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(fields)
}

fn add_reference(reference: &Value, fields: &mut Map<String, Value>, references: &mut Vec<String>) {
    let name = reference.as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default();
    fields.insert("$ref".to_owned(), name.into());
    references.push(name.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_follows_references_and_keeps_marker_defaults() {
        let schemas_by_name = json!({
            "a.Port": {
                "description": "text for people",
                "type": "object",
                "required": ["number", "count"],
                "properties": {
                    "number": { "type": "integer", "default": 0 },
                    "count": { "type": "integer" },
                    "protocol": { "type": "string", "default": "TCP", "enum": ["TCP", "UDP"] },
                    "enum": { "default": {}, "allOf": [{ "$ref": "#/components/schemas/a.Source" }] },
                    "sizes": { "type": "object", "additionalProperties": { "$ref": "#/components/schemas/a.Size" } },
                    "names": {
                        "type": "array",
                        "items": { "type": "string", "default": "" },
                        "x-kubernetes-list-type": "set",
                        "x-kubernetes-patch-strategy": "merge",
                    },
                },
                "x-kubernetes-map-type": "atomic",
            },
            "a.Source": { "type": "object", "x-kubernetes-unions": [] },
            "a.Size": { "type": "string" },
            "a.Unused": { "type": "string" },
        });
        let roots = BTreeSet::from(["a.Port".to_owned()]);
        let selected = select(schemas_by_name.as_object().unwrap(), &roots, &["a.Size"]).unwrap();
        let expected = json!({
            "a.Port": {
                "type": "object",
                "required": ["count", "number"],
                "properties": {
                    "number": { "type": "integer" },
                    "count": { "type": "integer" },
                    "protocol": { "type": "string", "default": "TCP" },
                    "enum": { "$ref": "a.Source" },
                    "sizes": { "type": "object", "additionalProperties": { "$ref": "a.Size" } },
                    "names": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
                },
                "x-kubernetes-map-type": "atomic",
            },
            "a.Source": { "type": "object" },
        });
        assert_eq!(json!(selected), expected);
    }

    #[test]
    fn controller_gen_quirks_are_applied() {
        let schemas_by_name = json!({
            ATOMIC_TYPES[0]: { "type": "object" },
            OMITTED_DEFAULTS[0].0: {
                "type": "object",
                "properties": {
                    OMITTED_DEFAULTS[0].1: { "type": "string", "default": "ReadWrite" },
                    "fsType": { "type": "string", "default": "ext4" },
                },
            },
        });
        let roots = schemas_by_name.as_object().unwrap().keys().cloned().collect();
        let selected = select(schemas_by_name.as_object().unwrap(), &roots, &[]).unwrap();
        assert_eq!(selected[ATOMIC_TYPES[0]], json!({ "type": "object", "x-kubernetes-map-type": "atomic" }));
        let fields = &selected[OMITTED_DEFAULTS[0].0]["properties"];
        assert_eq!(fields[OMITTED_DEFAULTS[0].1], json!({ "type": "string" }));
        assert_eq!(fields["fsType"]["default"], "ext4");
    }

    #[test]
    fn missing_type_error_names_the_type() {
        let error = select(&Map::new(), &BTreeSet::from(["a.Missing".to_owned()]), &[]).unwrap_err();
        assert!(error.to_string().contains("no type a.Missing"), "{error}");
    }
}
