//! Checks the structure of an object: its fields and their types.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use steersman_reconcile::{FieldPath, path};

use super::{SchemaError, value};

/// Fields that every embedded object may have.
const OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

const NOT_STRING: &str = "Invalid value: must be a string; put it in quotes";

pub(super) fn check(schema: &Value, object: &Value) -> Vec<SchemaError> {
    let mut faults = Vec::new();
    let (Some(fields), Some(known)) = (object.as_object(), schema["properties"].as_object()) else {
        return vec![SchemaError::new(&FieldPath::default(), "not a Kubernetes object")];
    };
    unknown(schema, fields, &FieldPath::default(), &OBJECT, &mut faults);
    metadata(&object["metadata"], &path!(metadata), &mut faults);
    required(schema, fields, &FieldPath::default(), &mut faults);
    if let (Some(spec), Some(schema)) = (fields.get("spec"), known.get("spec")) {
        node(schema, spec, &path!(spec), &mut faults);
    }
    faults
}

fn node(schema: &Value, given: &Value, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    if given.is_null() && schema["nullable"] == true {
        return;
    }
    let before = faults.len();
    value::check(schema, given, path, faults);
    // Inside a value of a wrong type, every field would be an error.
    if faults.len() > before {
        return;
    }
    match given {
        Value::Object(fields) => self::fields(schema, fields, path, faults),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                node(&schema["items"], item, &path.index(place), faults);
            }
            repeated(schema, items, path, faults);
        }
        _ => {}
    }
    forms(schema, given, path, faults);
}

fn fields(schema: &Value, fields: &Map<String, Value>, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    required(schema, fields, path, faults);
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    if embedded {
        for name in ["apiVersion", "kind"].iter().filter(|name| fields.get(**name).is_none_or(Value::is_null)) {
            faults.push(SchemaError::new(&path.field(*name), "Required value: an embedded object needs it"));
        }
        if let Some(given) = fields.get("metadata") {
            metadata(given, &path.field("metadata"), faults);
        }
    }
    unknown(schema, fields, path, if embedded { &OBJECT } else { &[] }, faults);
    for (name, given) in fields {
        let inner = [&schema["properties"][name], &schema["additionalProperties"]].into_iter().find(|s| s.is_object());
        if let Some(inner) = inner {
            node(inner, given, &path.field(name.clone()), faults);
        }
    }
}

fn required(schema: &Value, fields: &Map<String, Value>, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let absent = names.filter(|name| !fields.contains_key(*name));
    faults.extend(absent.map(|name| SchemaError::new(&path.field(name.to_owned()), "Required value: add it")));
}

fn metadata(given: &Value, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    let Some(fields) = given.as_object() else {
        if !given.is_null() {
            faults.push(SchemaError::new(path, "Invalid value: must be an object with a name"));
        }
        return;
    };
    for name in ["name", "generateName", "namespace"] {
        if fields.get(name).is_some_and(|value| !value.is_string()) {
            faults.push(SchemaError::new(&path.field(name), NOT_STRING));
        }
    }
    for part in ["labels", "annotations"] {
        let path = path.field(part);
        match fields.get(part) {
            None | Some(Value::Null) => {}
            Some(Value::Object(pairs)) => {
                let wrong = pairs.iter().filter(|(_, value)| !value.is_string());
                faults.extend(wrong.map(|(key, _)| SchemaError::new(&path.key(key.clone()), NOT_STRING)));
            }
            Some(_) => faults.push(SchemaError::new(&path, "Invalid value: must be a map of strings")),
        }
    }
}

/// Reports unknown fields, which the API server drops and `kubectl apply` refuses.
fn unknown(
    schema: &Value,
    fields: &Map<String, Value>,
    path: &FieldPath,
    also: &[&str],
    faults: &mut Vec<SchemaError>,
) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["additionalProperties"].is_object()
        || schema["additionalProperties"] == true;
    let Some(known) = schema["properties"].as_object().filter(|_| !open) else { return };
    for name in fields.keys().filter(|name| !known.contains_key(*name) && !also.contains(&name.as_str())) {
        let near = known.keys().map(|known| (distance(name, known), known)).min();
        let advice = match near {
            Some((steps, near)) if steps <= 2 => format!("did you mean {near}?"),
            _ => "remove it; the API server drops it".to_owned(),
        };
        faults.push(SchemaError::new(&path.field(name.clone()), format!("unknown field: {advice}")));
    }
}

/// Edit distance, ignoring case.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

fn repeated(schema: &Value, items: &[Value], path: &FieldPath, faults: &mut Vec<SchemaError>) {
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        }
        Some("set") => Vec::new(),
        _ => return,
    };
    let mut known = BTreeSet::new();
    for (place, item) in items.iter().enumerate() {
        let key = if keys.is_empty() {
            item.to_string()
        } else {
            // The API server compares keys after defaulting.
            let of = |key: &&str| match &item[*key] {
                Value::Null => &schema["items"]["properties"][*key]["default"],
                given => given,
            };
            Value::from_iter(keys.iter().map(of).cloned()).to_string()
        };
        if !known.insert(key) {
            let same =
                if keys.is_empty() { "the same value".to_owned() } else { format!("the same {}", keys.join(" and ")) };
            let what = format!("Duplicate value: an earlier entry has {same}; remove one of them");
            faults.push(SchemaError::new(&path.index(place), what));
        }
    }
}

/// Checks `oneOf`, `anyOf`, `allOf` and `not`, which in a CRD add conditions to fields that are declared elsewhere.
fn forms(schema: &Value, given: &Value, path: &FieldPath, faults: &mut Vec<SchemaError>) {
    let fits = |form: &Value| {
        let mut wrong = Vec::new();
        value::check(form, given, path, &mut wrong);
        if let Some(fields) = given.as_object() {
            required(form, fields, path, &mut wrong);
            for (name, inner) in form["properties"].as_object().into_iter().flatten() {
                if let Some(given) = fields.get(name) {
                    node(inner, given, &path.field(name.clone()), &mut wrong);
                }
            }
        }
        forms(form, given, path, &mut wrong);
        wrong.is_empty()
    };
    let list = |name: &str| schema[name].as_array().filter(|forms| !forms.is_empty());
    let wrong = list("oneOf").is_some_and(|forms| forms.iter().filter(|form| fits(form)).count() != 1)
        || list("anyOf").is_some_and(|forms| !forms.iter().any(fits))
        || list("allOf").is_some_and(|forms| !forms.iter().all(fits))
        || schema.get("not").is_some_and(fits);
    if wrong {
        faults.push(SchemaError::new(path, format!("Invalid value: {}", advice(schema))));
    }
}

fn advice(schema: &Value) -> String {
    let needs = |form: &Value| {
        let names: Vec<&str> = form["required"].as_array()?.iter().filter_map(Value::as_str).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let forms: Option<Vec<String>> = schema["oneOf"]
        .as_array()
        .and_then(|forms| forms.iter().map(needs).collect())
        .filter(|forms: &Vec<_>| forms.len() > 1);
    match forms {
        Some(forms) => format!("set either {}", forms.join(", or ")),
        None => "see `kubectl explain` for the accepted forms".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn misspelt_name_has_small_distance() {
        assert_eq!(distance("provders", "providers"), 1);
        assert_eq!(distance("vectorIO", "vectorIo"), 0);
        assert_eq!(distance("kv", "sql"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
