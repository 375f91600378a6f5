//! Checks fields with more than one form, whose kind of value the schema cannot check.

use serde_json::Value;
use steersman_reconcile::{FieldPath, path};

use crate::llamastack::config::problem::reason;
use crate::llamastack::config::{FieldError, kind_of};

const APIS: [&str; 5] = ["inference", "safety", "vectorIo", "toolRuntime", "telemetry"];

pub(super) fn check(spec: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for api in APIS {
        providers(&mut problems, &spec["providers"][api], &path!(spec.providers).field(api));
    }
    if let Some(models) = spec["resources"]["models"].as_array() {
        for (place, model) in models.iter().enumerate() {
            self::model(&mut problems, model, &path!(spec.resources.models).index(place));
        }
    }
    let expose = &spec["networking"]["expose"];
    if !matches!(expose, Value::Null | Value::Bool(_) | Value::Object(_)) {
        let wanted = "true, false or an object such as {hostname: llama.example.com}";
        problems.push(wrong(path!(spec.networking.expose), wanted, expose));
    }
    for (store, field) in [("kv", "password"), ("sql", "connectionString")] {
        secret(&mut problems, &spec["storage"][store][field], &path!(spec.storage).field(store).field(field));
    }
    problems
}

fn providers(problems: &mut Vec<FieldError>, value: &Value, path: &FieldPath) {
    match value {
        Value::Null => {}
        Value::Object(_) => provider(problems, value, path),
        Value::Array(list) => {
            for (place, one) in list.iter().enumerate() {
                provider(problems, one, &path.index(place));
            }
        }
        other => problems.push(wrong(
            path.clone(),
            "a provider (an object with the field provider) or a list of providers",
            other,
        )),
    }
}

fn provider(problems: &mut Vec<FieldError>, value: &Value, path: &FieldPath) {
    if !value.is_object() {
        problems.push(wrong(path.clone(), "a provider (an object with the field provider)", value));
        return;
    }
    required(problems, value, "provider", path);
    for field in ["id", "endpoint"] {
        optional_text(problems, &value[field], &path.field(field));
    }
    secret(problems, &value["apiKey"], &path.field("apiKey"));
    match &value["secretRefs"] {
        Value::Null => {}
        Value::Object(references) => {
            for (name, reference) in references {
                secret(problems, reference, &path.field("secretRefs").field(name.clone()));
            }
        }
        other => {
            problems.push(wrong(path.field("secretRefs"), "an object whose values are references to Secrets", other))
        }
    }
}

fn model(problems: &mut Vec<FieldError>, value: &Value, path: &FieldPath) {
    match value {
        Value::String(_) => {}
        Value::Object(_) => {
            required(problems, value, "name", path);
            for field in ["provider", "modelType", "quantization"] {
                optional_text(problems, &value[field], &path.field(field));
            }
            let length = &value["contextLength"];
            if !length.is_null() && length.as_i64().is_none() {
                problems.push(wrong(path.field("contextLength"), "a whole number", length));
            }
        }
        other => problems.push(wrong(path.clone(), "the name of a model or an object with the field name", other)),
    }
}

/// A reference is nested or flat, and complete.
fn secret(problems: &mut Vec<FieldError>, value: &Value, path: &FieldPath) {
    let complete =
        |of: &Value| ["name", "key"].iter().all(|key| of[*key].as_str().is_some_and(|text| !text.is_empty()));
    let (nested, flat) = (!value["secretKeyRef"].is_null(), !value["name"].is_null() || !value["key"].is_null());
    let right = match value {
        Value::Null => true,
        Value::Object(_) => nested != flat && complete(if nested { &value["secretKeyRef"] } else { value }),
        _ => false,
    };
    if !right {
        problems.push(FieldError::new(
            path.clone(),
            reason::INVALID,
            "not a reference to one key of a Secret",
            "Write {name: SECRET, key: KEY} or {secretKeyRef: {name: SECRET, key: KEY}}, never the value itself.",
        ));
    }
}

fn required(problems: &mut Vec<FieldError>, value: &Value, field: &'static str, path: &FieldPath) {
    let path = path.field(field);
    match &value[field] {
        Value::Null => {
            problems.push(FieldError::new(
                path,
                reason::INVALID,
                format!("{field} is required"),
                format!("Add {field}."),
            ));
        }
        other => optional_text(problems, other, &path),
    }
}

fn optional_text(problems: &mut Vec<FieldError>, value: &Value, path: &FieldPath) {
    if !matches!(value, Value::Null | Value::String(_)) {
        problems.push(wrong(path.clone(), "a string", value));
    }
}

fn wrong(path: FieldPath, wanted: &str, found: &Value) -> FieldError {
    let message = format!("expected {wanted}, found {}", kind_of(found));
    FieldError::new(path, reason::INVALID, message, "Change it to the expected form.")
}
