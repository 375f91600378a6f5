//! Conversion of LlamaStackDistributions: tables for single fields, the annotations for fields that the other version
//! lacks, and laws for every object.

mod annotations;
mod fields;
mod generate;
mod laws;
mod manifests;

use serde_json::{Value, json};
use steersman_api::convert::{Converted, convert};

pub const V1ALPHA1: &str = "llamastack.io/v1alpha1";
pub const V1ALPHA2: &str = "llamastack.io/v1alpha2";

/// Annotation of v1alpha2 objects with the fields that only v1alpha1 has.
pub const V1ALPHA1_FIELDS: &str = "llamastack.io/v1alpha1-fields";
/// Annotation of v1alpha1 objects with the fields that only v1alpha2 has.
pub const V1ALPHA2_FIELDS: &str = "llamastack.io/v1alpha2-fields";

pub fn other_version(version: &str) -> &'static str {
    if version == V1ALPHA1 { V1ALPHA2 } else { V1ALPHA1 }
}

pub fn object(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": version, "kind": "LlamaStackDistribution", "metadata": { "name": "stack" }, "spec": spec })
}

/// A part of an object without metadata, as sent by server-side apply.
pub fn without_metadata(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": version, "kind": "LlamaStackDistribution", "spec": spec })
}

pub fn convert_to_other(object: &Value) -> Converted {
    let to = other_version(object["apiVersion"].as_str().unwrap());
    convert(object.clone(), to).unwrap_or_else(|error| panic!("{object}: {error}"))
}

/// Converts an object to the other version, and fails if anything is lost.
pub fn convert_losslessly(object: &Value) -> Value {
    let Converted { object: out, lost } = convert_to_other(object);
    assert_eq!(lost, [] as [&str; 0], "{object}");
    out
}

/// The fields in all annotations of the conversion with this name, which may be followed by the path of a field.
pub fn annotated_fields(object: &Value, annotation: &str) -> Value {
    fn join(whole: &mut Value, piece: Value) {
        match (whole, piece) {
            (Value::Object(whole), Value::Object(piece)) => {
                piece.into_iter().for_each(|(name, value)| join(whole.entry(name).or_insert(json!({})), value));
            }
            (whole, piece) => *whole = piece,
        }
    }
    let mut whole = json!({});
    for (name, text) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        if is_conversion_annotation(name, annotation) {
            join(&mut whole, serde_json::from_str(text.as_str().unwrap()).unwrap());
        }
    }
    whole
}

pub fn is_conversion_annotation(name: &str, annotation: &str) -> bool {
    name.strip_prefix(annotation).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
