//! Replaces the placeholders of `meta::schema` by the API server's definitions of Kubernetes' own types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::CrdError;
use super::schema::subschemas;
use crate::meta::conditions::{MESSAGE_LIMIT, REASON_LIMIT};
use crate::meta::schema::CORE;

/// Definitions that a test of the operator's suite writes from the API server's OpenAPI, without descriptions.
const STORED: &str = include_str!("../../schemas/core.json");

pub const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
pub const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const CONDITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";

/// Types whose OpenAPI lacks keys that a CRD needs, or has fields that it must not have. They are not in the stored
/// file.
pub const WRITTEN_BY_HAND: [&str; 4] = [QUANTITY, INT_OR_STRING, OBJECT_META, CONDITION];

/// Limit of nested definitions. Kubernetes' types have about twenty levels.
const MAX_DEPTH: usize = 64;

pub struct Definitions(BTreeMap<String, Value>);

impl Definitions {
    pub fn read() -> Result<Self, CrdError> {
        serde_json::from_str(STORED).map(Self).map_err(CrdError::Definitions)
    }

    pub fn resolve(&self, schema: Value) -> Result<Value, CrdError> {
        self.resolve_below(schema, 0)
    }

    fn resolve_below(&self, mut schema: Value, mut depth: usize) -> Result<Value, CrdError> {
        // The node is resolved before its subschemas: a definition may contain references.
        while let Some(name) = take_reference(&mut schema) {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(CrdError::Recursive(name));
            }
            schema = merged(self.definition(&name)?, schema);
        }
        for below in subschemas(&mut schema) {
            *below = self.resolve_below(below.take(), depth + 1)?;
        }
        Ok(schema)
    }

    fn definition(&self, name: &str) -> Result<Value, CrdError> {
        match name {
            QUANTITY => Ok(quantity()),
            INT_OR_STRING => Ok(int_or_string()),
            OBJECT_META => Ok(object_meta()),
            CONDITION => Ok(condition()),
            _ => self.0.get(name).cloned().ok_or_else(|| CrdError::UnknownDefinition(name.to_owned())),
        }
    }
}

/// The definition of one of Kubernetes' own types, with references by `$ref`. None: it is not stored.
pub fn stored_definition(name: &str) -> Option<&'static Value> {
    static DEFINITIONS: LazyLock<BTreeMap<String, Value>> =
        LazyLock::new(|| serde_json::from_str(STORED).unwrap_or_default());
    DEFINITIONS.get(name)
}

/// Collects the names of the definitions that `schema` refers to.
pub fn names(schema: &Value, found: &mut BTreeSet<String>) {
    let mut schema = schema.clone();
    if let Some(name) = take_reference(&mut schema) {
        found.insert(name);
    }
    for below in subschemas(&mut schema) {
        names(below, found);
    }
}

/// The stored definitions refer to each other by `$ref`, our types by the placeholder.
fn take_reference(schema: &mut Value) -> Option<String> {
    let fields = schema.as_object_mut()?;
    let name = fields.remove(CORE).or_else(|| fields.remove("$ref"))?;
    name.as_str().map(str::to_owned)
}

/// Siblings of a reference, such as a description or a default, belong to the field and win.
fn merged(definition: Value, siblings: Value) -> Value {
    match (definition, siblings) {
        (Value::Object(mut definition), Value::Object(siblings)) => {
            definition.extend(siblings);
            Value::Object(definition)
        }
        (definition, _) => definition,
    }
}

fn int_or_string() -> Value {
    json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
}

fn quantity() -> Value {
    let number = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))";
    let pattern = format!(r"^(\+|-)?{number}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{number}))?$");
    merged(int_or_string(), json!({ "pattern": pattern }))
}

/// The metadata of a template. A schema with all fields would let users set those of the API server; one without
/// fields, as in some Go CRDs, would silently drop the user's labels.
fn object_meta() -> Value {
    let text = || json!({ "type": "string" });
    let map = || json!({ "type": "object", "additionalProperties": text() });
    json!({
        "type": "object",
        "properties": {
            "annotations": map(),
            "finalizers": { "type": "array", "items": text() },
            "labels": map(),
            "name": text(),
            "namespace": text(),
        },
    })
}

/// The limits are markers in the Go source, which the OpenAPI of built-in types does not show.
fn condition() -> Value {
    let label = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let domain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let reason = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
    json!({
        "type": "object",
        "properties": {
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "message": { "type": "string", "maxLength": MESSAGE_LIMIT },
            "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
            "reason": { "type": "string", "minLength": 1, "maxLength": REASON_LIMIT, "pattern": reason },
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "type": { "type": "string", "maxLength": 316, "pattern": format!("^({domain}/)?({label})$") },
        },
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions(stored: Value) -> Definitions {
        Definitions(serde_json::from_value(stored).unwrap())
    }

    #[test]
    fn reference_siblings_win() {
        let definitions = definitions(json!({
            "a.Outer": { "type": "object", "properties": { "inner": { "$ref": "a.Inner", "default": {} } } },
            "a.Inner": { "type": "object", "properties": { "size": { "$ref": QUANTITY } } },
        }));
        let ours = json!({ "type": "array", "items": { CORE: "a.Outer", "description": "ours" } });
        let resolved = definitions.resolve(ours).unwrap();
        let outer = &resolved["items"];
        assert_eq!(outer["description"], "ours");
        assert_eq!(outer["properties"]["inner"]["default"], json!({}));
        assert_eq!(outer["properties"]["inner"]["properties"]["size"], quantity());
    }

    #[test]
    fn property_may_be_named_like_keyword() {
        let schema = json!({ "properties": { "$ref": { "type": "string" }, "items": { "type": "string" } } });
        assert_eq!(definitions(json!({})).resolve(schema.clone()).unwrap(), schema);
    }

    #[test]
    fn unresolvable_reference_error_names_definition() {
        let definitions = definitions(json!({
            "a.Loop": { "$ref": "a.Loop" },
            "a.Tree": { "properties": { "child": { "$ref": "a.Tree" } } },
        }));
        let error = |name: &str| definitions.resolve(json!({ CORE: name })).unwrap_err().to_string();
        assert!(error("a.Missing").contains("has no definition a.Missing; generate the file with STEERSMAN_WRITE=1"));
        for name in ["a.Loop", "a.Tree"] {
            assert!(error(name).starts_with(&format!("the definition {name} contains itself")), "{}", error(name));
        }
    }

    #[test]
    fn definition_names_are_found_at_any_depth() {
        let mut found = BTreeSet::new();
        let list = json!({ "items": { CORE: "a.Listed" } });
        names(&json!({ "properties": { "one": { CORE: "a.One" }, "many": list } }), &mut found);
        assert_eq!(found, ["a.Listed".to_owned(), "a.One".to_owned()].into());
    }
}
