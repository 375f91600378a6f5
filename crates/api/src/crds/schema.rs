//! Converts the schema that schemars derives into the structural schema of a CRD, in the form that controller-gen emits.

use kube_core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde_json::{Map, Value, json};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The derived schema with its placeholders, which the CRD that kube derives does not have.
pub fn generate<K: JsonSchema>() -> Value {
    SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator()
        .into_root_schema_for::<K>()
        .to_value()
}

/// The schemas directly below `schema`. Names of properties are not keywords: a property may be called `default`.
pub fn subschemas(schema: &mut Value) -> Vec<&mut Value> {
    let mut below = Vec::new();
    for (key, value) in schema.as_object_mut().into_iter().flatten() {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => below.extend(properties.values_mut()),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => below.extend(schemas),
            ("items" | "additionalProperties" | "not", value) => below.push(value),
            _ => {}
        }
    }
    below
}

/// Removes keywords that are not allowed in a structural schema or that controller-gen does not emit.
pub fn tidy(schema: &mut Value) {
    // schemars writes `true` for a schema without restrictions.
    if *schema == Value::Bool(true) {
        *schema = json!({ PRESERVE: true });
    }
    if let Some(fields) = schema.as_object_mut() {
        tidy_fields(fields);
    }
    subschemas(schema).into_iter().for_each(tidy);
}

fn tidy_fields(fields: &mut Map<String, Value>) {
    // With `nullable` an explicit null would be stored instead of the default; Go's CRDs do not have it either.
    for key in ["$schema", "title", "nullable"] {
        fields.remove(key);
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = unwrapped(text);
    }
    // Null is the derived default of an `Option`.
    if fields.get("default") == Some(&Value::Null) {
        fields.remove("default");
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if fields.get("format").and_then(Value::as_str).is_some_and(is_foreign_format) {
        fields.remove("format");
    }
    // The API server prunes unknown fields instead of rejecting the object.
    if let Some(preserve) = fields.get("additionalProperties").and_then(Value::as_bool) {
        fields.remove("additionalProperties");
        if preserve {
            fields.insert(PRESERVE.to_owned(), true.into());
        }
    }
}

/// Joins the lines of a paragraph, which `kubectl explain` wraps itself. Items of a list stay on their lines.
fn unwrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        match lines.peek() {
            None => {}
            Some(next) if line.is_empty() || next.is_empty() || next.starts_with("- ") => out.push('\n'),
            Some(_) => out.push(' '),
        }
    }
    out
}

/// Whether the format is one of Rust's number types: Kubernetes has `int32` and `int64` only.
fn is_foreign_format(format: &str) -> bool {
    matches!(format, "int" | "int8" | "int16" | "double" | "float") || format.starts_with("uint")
}

/// Adds the fields of every object, which kube leaves to the API server.
pub fn complete_root(schema: &mut Value, spec_is_required: bool) {
    let Some(fields) = schema.as_object_mut() else { return };
    if !spec_is_required {
        fields.remove("required");
    }
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for name in ["apiVersion", "kind"] {
            properties.insert(name.to_owned(), json!({ "type": "string" }));
        }
        properties.insert("metadata".to_owned(), json!({ "type": "object" }));
    }
}

/// Writes whole floating point numbers as integers: other tools write the bounds of a CRD as `1`, not `1.0`.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // A float is exact up to 2^53, far above our bounds.
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() < 9e15);
            if let Some(whole) = whole {
                *value = json!(whole as i64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy_removes_schemars_keywords() {
        let cases = [
            (json!({ "title": "T", "$schema": "s", "type": "object" }), json!({ "type": "object" })),
            (json!({ "type": "string", "nullable": true, "default": null }), json!({ "type": "string" })),
            (json!({ "type": "string", "enum": ["a", null] }), json!({ "type": "string", "enum": ["a"] })),
            (json!({ "type": "integer", "format": "uint32" }), json!({ "type": "integer" })),
            (json!({ "type": "number", "format": "double" }), json!({ "type": "number" })),
            (json!({ "type": "integer", "format": "int64" }), json!({ "type": "integer", "format": "int64" })),
            (json!({ "type": "object", "additionalProperties": false }), json!({ "type": "object" })),
            (json!({ "type": "object", "additionalProperties": true }), json!({ "type": "object", PRESERVE: true })),
            (json!({ "type": "array", "items": true }), json!({ "type": "array", "items": { PRESERVE: true } })),
        ];
        for (derived, expected) in cases {
            let mut tidied = derived.clone();
            tidy(&mut tidied);
            assert_eq!(tidied, expected, "{derived}");
        }
    }

    #[test]
    fn properties_named_like_keywords_stay() {
        let field = json!({ "type": "string" });
        let schema = json!({ "type": "object", "properties": { "title": field, "nullable": field, "format": field } });
        let mut tidied = schema.clone();
        tidy(&mut tidied);
        assert_eq!(tidied, schema);
    }

    #[test]
    fn lines_are_joined_but_lists_stay() {
        let text = "One sentence\nover two lines.\n\nA list:\n- first\n- second";
        assert_eq!(unwrapped(text), "One sentence over two lines.\n\nA list:\n- first\n- second");
    }

    #[test]
    fn only_whole_numbers_become_integers() {
        let mut value = json!({ "a": 1.0, "b": [-10000.0, 0.5], "c": "1.0", "d": 3, "e": 1e300 });
        whole_numbers(&mut value);
        assert_eq!(
            value.to_string(),
            json!({ "a": 1, "b": [-10000, 0.5], "c": "1.0", "d": 3, "e": 1e300 }).to_string()
        );
    }
}
