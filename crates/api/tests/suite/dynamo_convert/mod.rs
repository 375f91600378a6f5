//! DynamoGraphDeploymentRequest between its versions: a table for each field, the files in `fixtures/dynamo/convert`,
//! and laws for every object.

use serde_json::{Map, Value, json};
use steersman_api::convert::{ConvertError, convert};

mod annotations;
mod files;
mod job;
mod laws;
mod made;
mod partial;
mod spec;
mod stale;
mod status;

const ALPHA: &str = "nvidia.com/v1alpha1";
const BETA: &str = "nvidia.com/v1beta1";
const KIND: &str = "DynamoGraphDeploymentRequest";

fn other(version: &str) -> &'static str {
    if version == ALPHA { BETA } else { ALPHA }
}

fn try_converted(object: &Value) -> Result<(Value, Vec<String>), ConvertError> {
    let to = other(object["apiVersion"].as_str().unwrap());
    convert(object.clone(), to).map(|converted| (converted.object, converted.lost))
}

/// In the other version, with nothing lost.
#[track_caller]
fn converted(object: &Value) -> Value {
    let (result, lost) = try_converted(object).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    assert_eq!(lost, [""; 0], "{object:#}");
    result
}

#[track_caller]
fn there_and_back(object: &Value) -> Value {
    converted(&converted(object))
}

/// An object with a name and these sections; null leaves a section out.
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

/// A part of an object. It has labels, so it can have annotations; it has no name, so it is not whole.
fn part(version: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": KIND, "metadata": { "labels": { "a": "b" } }, "spec": spec })
}

/// The annotations, or an empty object.
fn annotations(object: &Value) -> Value {
    object["metadata"].get("annotations").cloned().unwrap_or(json!({}))
}

/// `object` with an annotation.
fn annotated(mut object: Value, key: &str, value: impl Into<Value>) -> Value {
    object["metadata"]["annotations"][key] = value.into();
    object
}

/// What the annotation for all the rest of a spec holds.
fn envelope(object: &Value) -> Value {
    let text = object["metadata"]["annotations"]["nvidia.com/dgdr-spec"].as_str().unwrap_or("{}");
    let envelope: Value = serde_json::from_str(text).unwrap();
    envelope.get("spec").cloned().unwrap_or(Value::Null)
}

/// What the annotation for all the rest of a status holds.
fn kept_status(object: &Value) -> Value {
    let text = object["metadata"]["annotations"]["nvidia.com/dgdr-status"].as_str().unwrap_or("null");
    serde_json::from_str(text).unwrap()
}

fn fields(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}
