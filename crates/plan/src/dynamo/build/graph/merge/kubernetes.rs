//! Checks values against the API server's definitions of Kubernetes' own types, which the CRD of graphs contains.

use serde_json::Value;
use steersman_api::crds::{INT_OR_STRING, QUANTITY, stored_definition};

use super::types::{Checker, FieldType, below, is_quantity, unknown_place};
use super::{APPEND, fields};
use crate::dynamo::build::graph::lists;

pub const CONTAINER: &str = "io.k8s.api.core.v1.Container";
pub const POD: &str = "io.k8s.api.core.v1.PodSpec";
pub const PROBE: &str = "io.k8s.api.core.v1.Probe";
pub const VARIABLE: &str = "io.k8s.api.core.v1.EnvVar";
pub const CONFIG_MAP_KEY: &str = "io.k8s.api.core.v1.ConfigMapKeySelector";
pub const SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

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
pub fn problem(value: &Value, name: &str, checker: Checker, path: &mut Vec<String>) -> Option<String> {
    match name {
        QUANTITY => checker.must_be(is_quantity(value), "a quantity, such as 8Gi", path),
        INT_OR_STRING => checker.must_be(value.is_i64() || value.is_string(), "an integer or a string", path),
        METADATA => checker.fields(value, &fields::INNER_METADATA, path),
        CONTAINER => {
            of_schema(value, stored_definition(name)?, checker, path).or_else(|| no_image(value, checker, path))
        }
        _ => of_schema(value, stored_definition(name)?, checker, path),
    }
}

/// Each container needs an image, except the main one, which gets that of the component.
fn no_image(container: &Value, checker: Checker, path: &[String]) -> Option<String> {
    let main = path.last().is_some_and(|name| name == "main" || name == "mainContainer");
    checker.must_be(main || container["image"] != "", "non-empty", &[path, &["image".to_owned()]].concat())
}

fn of_schema(value: &Value, schema: &Value, checker: Checker, path: &mut Vec<String>) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return problem(value, name, checker, path);
    }
    match schema["type"].as_str()? {
        "string" => {
            let policy = path.last().is_some_and(|field| field == "imagePullPolicy");
            match value.as_str() {
                Some(word) if policy => checker.must_be(
                    IMAGE_PULL_POLICIES.contains(&word),
                    &format!("one of {}", IMAGE_PULL_POLICIES.join(", ")),
                    path,
                ),
                text => checker.must_be(text.is_some(), "a string", path),
            }
        }
        "boolean" => checker.must_be(value.is_boolean(), "true or false", path),
        "integer" => {
            let field = path.last().map(String::as_str).unwrap_or_default();
            let minimum = MINIMUMS.iter().find(|(known, _)| *known == field).map(|(_, minimum)| *minimum);
            let (least, most) = if schema["format"] == "int32" {
                (i64::from(i32::MIN), i64::from(i32::MAX))
            } else {
                (i64::MIN, i64::MAX)
            };
            checker.value(value, &FieldType::Integer(minimum.unwrap_or(least), most), path)
        }
        "array" => match value.as_array() {
            Some(items) => checker
                .of_list(path)
                .items(items, path, |checker, item, path| of_schema(item, &schema["items"], checker, path)),
            None => checker.must_be(false, "a list", path),
        },
        _ => of_object(value, schema, checker, path),
    }
}

fn of_object(value: &Value, schema: &Value, checker: Checker, path: &mut Vec<String>) -> Option<String> {
    let Some(object) = value.as_object() else { return checker.must_be(false, "an object", path) };
    let whole = checker.whole || path.last().is_some_and(|name| lists::is_whole(name));
    let checker = Checker { whole, ..checker };
    let required = schema["required"].as_array().filter(|_| whole).into_iter().flatten().filter_map(Value::as_str);
    object
        .iter()
        .filter(|(field, _)| *field != APPEND)
        .find_map(|(field, value)| below(path, field, |path| of_field(value, field, schema, checker, path)))
        .or_else(|| checker.missing(object, required, path))
}

fn of_field(value: &Value, field: &str, schema: &Value, checker: Checker, path: &mut Vec<String>) -> Option<String> {
    match (schema["properties"].get(field), schema.get("additionalProperties")) {
        (Some(known), _) => of_schema(value, known, checker, path),
        (None, Some(any)) => of_schema(value, any, checker, path),
        // A type without properties accepts any.
        (None, None) if schema["properties"].is_null() => None,
        (None, None) => (checker.search == Search::UnknownFields).then(|| unknown_place(path)),
    }
}
