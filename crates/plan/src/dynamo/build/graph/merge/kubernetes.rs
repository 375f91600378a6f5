//! Checks values against the API server's definitions of Kubernetes' own types, which the CRD of graphs contains.

use serde_json::Value;
use steersman_api::crds::{INT_OR_STRING, QUANTITY, stored_definition};

use super::APPEND;
use super::types::{below, is_quantity, step};

pub const CONTAINER: &str = "io.k8s.api.core.v1.Container";
pub const POD: &str = "io.k8s.api.core.v1.PodSpec";
pub const PROBE: &str = "io.k8s.api.core.v1.Probe";
pub const VARIABLE: &str = "io.k8s.api.core.v1.EnvVar";

/// Values that the definitions do not restrict, but that no pod can have.
const IMAGE_PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MINIMUMS: [(&str, i64); 2] = [("containerPort", 1), ("terminationGracePeriodSeconds", 0)];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Values of a type that the field does not have.
    WrongTypes,
    /// Fields that the type does not have.
    UnknownFields,
}

/// The first problem of a value of this type, as `path text`.
pub fn problem(value: &Value, name: &str, search: Search, path: &mut Vec<String>) -> Option<String> {
    let must_be = |fits: bool, words: &str| {
        (search == Search::WrongTypes && !fits).then(|| format!("{} must be {words}", path.join(".")))
    };
    match name {
        QUANTITY => must_be(is_quantity(value), "a quantity, such as 8Gi"),
        INT_OR_STRING => must_be(value.is_i64() || value.is_string(), "an integer or a string"),
        // Metadata written by hand: the API server checks it when the graph is created.
        _ => of_schema(value, stored_definition(name)?, search, path),
    }
}

fn of_schema(value: &Value, schema: &Value, search: Search, path: &mut Vec<String>) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return problem(value, name, search, path);
    }
    let must_be = |fits: bool, words: &str| {
        (search == Search::WrongTypes && !fits).then(|| format!("{} must be {words}", path.join(".")))
    };
    match schema["type"].as_str()? {
        "string" => {
            let policy = path.last().is_some_and(|field| field == "imagePullPolicy");
            match value.as_str() {
                Some(word) if policy => {
                    must_be(IMAGE_PULL_POLICIES.contains(&word), &format!("one of {}", IMAGE_PULL_POLICIES.join(", ")))
                }
                text => must_be(text.is_some(), "a string"),
            }
        }
        "boolean" => must_be(value.is_boolean(), "true or false"),
        "integer" => {
            let field = path.last().map(String::as_str).unwrap_or_default();
            let minimum = MINIMUMS.iter().find(|(known, _)| *known == field).map(|(_, minimum)| *minimum);
            let most = if schema["format"] == "int32" { i64::from(i32::MAX) } else { i64::MAX };
            let fits =
                value.as_i64().is_some_and(|number| minimum.is_none_or(|least| number >= least) && number <= most);
            let least = minimum.map(|minimum| format!(" of at least {minimum}")).unwrap_or_default();
            must_be(fits, &format!("an integer{least}"))
        }
        "array" => match value.as_array() {
            Some(items) => items.iter().enumerate().find_map(|(place, item)| {
                below(path, &step(item, place), |path| of_schema(item, &schema["items"], search, path))
            }),
            None => must_be(false, "a list"),
        },
        _ => match value.as_object() {
            Some(fields) => fields
                .iter()
                .filter(|(field, _)| *field != APPEND)
                .find_map(|(field, value)| below(path, field, |path| of_field(value, field, schema, search, path))),
            None => must_be(false, "an object"),
        },
    }
}

fn of_field(value: &Value, field: &str, schema: &Value, search: Search, path: &mut Vec<String>) -> Option<String> {
    match (schema["properties"].get(field), schema.get("additionalProperties")) {
        (Some(known), _) => of_schema(value, known, search, path),
        (None, Some(any)) => of_schema(value, any, search, path),
        // A type without properties accepts any.
        (None, None) if schema["properties"].is_null() => None,
        (None, None) => (search == Search::UnknownFields).then(|| path.join(".")),
    }
}
