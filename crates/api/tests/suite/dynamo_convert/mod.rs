//! Conversion of DynamoGraphDeploymentRequests: tables for single fields, the files in `fixtures/dynamo/convert`, and laws
//! for every object.

use serde_json::{Map, Value, json};
use steersman_api::convert::{ConvertError, convert};

mod annotations;
mod files;
mod generate;
mod job;
mod laws;
mod partial;
mod spec;
mod stale;
mod status;

const ALPHA: &str = "nvidia.com/v1alpha1";
const BETA: &str = "nvidia.com/v1beta1";
const KIND: &str = "DynamoGraphDeploymentRequest";

fn other_version(version: &str) -> &'static str {
    if version == ALPHA { BETA } else { ALPHA }
}

fn try_convert(object: &Value) -> Result<(Value, Vec<String>), ConvertError> {
    let to = other_version(object["apiVersion"].as_str().unwrap());
    convert(object.clone(), to).map(|converted| (converted.object, converted.lost))
}

/// Converts an object to the other version, and fails if anything is lost.
#[track_caller]
fn convert_losslessly(object: &Value) -> Value {
    let (result, lost) = try_convert(object).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    assert_eq!(lost, [""; 0], "{object:#}");
    result
}

#[track_caller]
fn round_trip(object: &Value) -> Value {
    convert_losslessly(&convert_losslessly(object))
}

/// An object with a name and these sections. A section is omitted if it is null.
fn object(version: &str, spec: Value, status: Value) -> Value {
    let mut object =
        json!({ "apiVersion": version, "kind": KIND, "metadata": { "name": "qwen", "namespace": "default" } });
    for (name, section) in [("spec", spec), ("status", status)] {
        if !section.is_null() {
            object[name] = section;
        }
    }
    object
}

/// A part of an object, as sent by server-side apply. It has metadata, so it can have annotations; it has no name, so it is
/// incomplete.
fn partial_object(version: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": KIND, "metadata": { "labels": { "a": "b" } }, "spec": spec })
}

fn annotations(object: &Value) -> Value {
    object["metadata"].get("annotations").cloned().unwrap_or(json!({}))
}

fn with_annotation(mut object: Value, key: &str, value: impl Into<Value>) -> Value {
    object["metadata"]["annotations"][key] = value.into();
    object
}

/// The spec in the envelope: the annotation for fields without a place of their own in the other version.
fn spec_envelope(object: &Value) -> Value {
    let text = object["metadata"]["annotations"]["nvidia.com/dgdr-spec"].as_str().unwrap_or("{}");
    let envelope: Value = serde_json::from_str(text).unwrap();
    envelope.get("spec").cloned().unwrap_or(Value::Null)
}

/// The status fields in the annotation for fields without a place of their own in the other version.
fn status_annotation(object: &Value) -> Value {
    let text = object["metadata"]["annotations"]["nvidia.com/dgdr-status"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

fn fields(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
