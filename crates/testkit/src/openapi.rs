//! Kubernetes' own types as its API server describes them.
//! Comes in: a cluster and the names of definitions; goes out: these and all that they refer to, reduced to what the Go
//! tools put into a CRD for the same types.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use kube::Client;
use serde_json::{Map, Value, json};

/// The documents that are read; a definition of another API group needs its document here.
const DOCUMENTS: [&str; 6] =
    ["api/v1", "apis/apps/v1", "apis/autoscaling/v2", "apis/batch/v1", "apis/networking.k8s.io/v1", "apis/policy/v1"];

/// Said for kubectl and for clients, or not by the Go tools: of built-in types they emit no enum.
const LEFT_OUT: [&str; 6] = [
    "description",
    "enum",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
];

/// Defaults that the OpenAPI shows and the Go tools do not: the first two are references to constants, which they cannot
/// follow, the last is the zero value of a field that is optional all the same.
const DEFAULTS_LEFT_OUT: [(&str, &str); 3] = [
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", "status"),
];

/// These embed a LocalObjectReference in Go, and the Go tools take its marker over to the whole.
const ATOMIC: [&str; 5] = [
    "io.k8s.api.core.v1.ConfigMapEnvSource",
    "io.k8s.api.core.v1.ConfigMapProjection",
    "io.k8s.api.core.v1.ConfigMapVolumeSource",
    "io.k8s.api.core.v1.SecretEnvSource",
    "io.k8s.api.core.v1.SecretProjection",
];

/// `roots` and what they refer to, by name; references stay, as `$ref` with the bare name. What is in `known` is referred to
/// and not given: the caller has its own schema for it.
pub async fn definitions(client: &Client, roots: &BTreeSet<String>, known: &[&str]) -> Result<BTreeMap<String, Value>> {
    let mut described = Map::new();
    for document in DOCUMENTS {
        let path = format!("/openapi/v3/{document}");
        let request = http::Request::get(&path).body(Vec::new()).context("cannot build a request")?;
        let mut answer: Value = client.request(request).await.with_context(|| format!("cannot read {path}"))?;
        match answer.pointer_mut("/components/schemas").map(Value::take) {
            Some(Value::Object(schemas)) => described.extend(schemas),
            _ => return Err(anyhow!("{path} describes no types")),
        }
    }
    select(&described, roots, known)
}

fn select(described: &Map<String, Value>, roots: &BTreeSet<String>, known: &[&str]) -> Result<BTreeMap<String, Value>> {
    let mut selected = BTreeMap::new();
    let mut wanted: Vec<String> = roots.iter().cloned().collect();
    while let Some(name) = wanted.pop() {
        if selected.contains_key(&name) || known.contains(&name.as_str()) {
            continue;
        }
        let definition = described.get(&name).ok_or_else(|| {
            anyhow!("the API server describes no type {name}; is its document missing in testkit's openapi.rs?")
        })?;
        let mut reduced = reduced(definition, Place::Alone, &mut wanted);
        as_the_go_tools_see_it(&name, &mut reduced);
        selected.insert(name, reduced);
    }
    Ok(selected)
}

fn as_the_go_tools_see_it(name: &str, definition: &mut Value) {
    let Some(definition) = definition.as_object_mut() else { return };
    if let Some(Value::Object(fields)) = definition.get_mut("properties") {
        for (_, field) in DEFAULTS_LEFT_OUT.iter().filter(|(owner, _)| *owner == name) {
            if let Some(Value::Object(field)) = fields.get_mut(*field) {
                field.remove("default");
            }
        }
    }
    if ATOMIC.contains(&name) {
        definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
}

/// Where a schema stands decides what its default means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Alone,
    /// A field that may be left out. Its default was asked for by a marker, and the Go tools emit it.
    Optional,
}

fn reduced(schema: &Value, place: Place, refers_to: &mut Vec<String>) -> Value {
    let Some(given) = schema.as_object() else { return schema.clone() };
    let mut fields = Map::new();
    let required = given.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    for (key, value) in given {
        match key.as_str() {
            left_out if LEFT_OUT.contains(&left_out) => {}
            // Go's zero value of a mandatory field, or an empty struct, is no default of the API.
            "default" if place == Place::Alone || *value == json!({}) => {}
            "required" => {
                fields.insert(key.clone(), json!(required));
            }
            "$ref" => refer(value, &mut fields, refers_to),
            // The only use that the API server makes of it: a reference with something beside it.
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    if let Value::Object(part) = reduced(part, Place::Alone, refers_to) {
                        fields.extend(part);
                    }
                }
            }
            "properties" => {
                let properties = value.as_object().into_iter().flatten().map(|(name, schema)| {
                    let place = if required.contains(name.as_str()) { Place::Alone } else { Place::Optional };
                    (name.clone(), reduced(schema, place, refers_to))
                });
                let properties: Map<String, Value> = properties.collect();
                fields.insert(key.clone(), Value::Object(properties));
            }
            "items" | "additionalProperties" => {
                fields.insert(key.clone(), reduced(value, Place::Alone, refers_to));
            }
            _ => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(fields)
}

fn refer(reference: &Value, fields: &mut Map<String, Value>, refers_to: &mut Vec<String>) {
    let name = reference.as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default();
    fields.insert("$ref".to_owned(), name.into());
    refers_to.push(name.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_referred_to_is_given_and_only_markers_defaults_stay() {
        let described = json!({
            "a.Port": {
                "description": "said for people",
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
        let selected = select(described.as_object().unwrap(), &roots, &["a.Size"]).unwrap();
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
    fn quirks_of_the_go_tools_are_followed() {
        let described = json!({
            ATOMIC[0]: { "type": "object" },
            DEFAULTS_LEFT_OUT[0].0: {
                "type": "object",
                "properties": {
                    DEFAULTS_LEFT_OUT[0].1: { "type": "string", "default": "ReadWrite" },
                    "fsType": { "type": "string", "default": "ext4" },
                },
            },
        });
        let roots = described.as_object().unwrap().keys().cloned().collect();
        let selected = select(described.as_object().unwrap(), &roots, &[]).unwrap();
        assert_eq!(selected[ATOMIC[0]], json!({ "type": "object", "x-kubernetes-map-type": "atomic" }));
        let fields = &selected[DEFAULTS_LEFT_OUT[0].0]["properties"];
        assert_eq!(fields[DEFAULTS_LEFT_OUT[0].1], json!({ "type": "string" }));
        assert_eq!(fields["fsType"]["default"], "ext4");
    }

    #[test]
    fn a_type_that_nobody_describes_is_named() {
        let error = select(&Map::new(), &BTreeSet::from(["a.Missing".to_owned()]), &[]).unwrap_err();
        assert!(error.to_string().contains("no type a.Missing"), "{error}");
    }
}
