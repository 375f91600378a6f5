//! Checks whether an override fits the schema of graphs.

use serde_json::Value;
use steersman_api::Family;

use super::{JsonObject, api_version, types};
use crate::dynamo::build::graph::{is_served, lists};

/// Why an override cannot be merged into any graph.
pub fn problem(wanted: &JsonObject) -> Option<String> {
    let text = |name: &str| wanted.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != Family::Dgd.kind() || !is_served(text("apiVersion")) {
        return Some(format!(
            "override must be a {} of nvidia.com/v1alpha1 or nvidia.com/v1beta1, not {:?} of {:?}",
            Family::Dgd.kind(),
            text("kind"),
            text("apiVersion")
        ));
    }
    if wanted.contains_key("status") {
        return Some("override status is not supported".to_owned());
    }
    let metadata = wanted.get("metadata").unwrap_or(&Value::Null);
    if let Some(problem) = metadata_problem(metadata) {
        return Some(format!("override {problem}"));
    }
    let Some(Value::Object(_)) = wanted.get("spec") else {
        return wanted.contains_key("spec").then(|| "override spec must be an object".to_owned());
    };
    null(&wanted["spec"], &mut vec!["spec".to_owned()])
        .map(|path| format!("override {}", must_not_be_null(&path)))
        .or_else(|| types::mismatch(wanted))
}

/// Labels and annotations are merged. The other metadata of an override have no effect.
fn metadata_problem(metadata: &Value) -> Option<String> {
    if metadata.is_null() {
        return None;
    }
    let merged = ["labels", "annotations"].into_iter().filter_map(|name| Some((name, metadata.get(name)?)));
    merged
        .into_iter()
        .find_map(|(name, value)| null(value, &mut vec!["metadata".to_owned(), name.to_owned()]))
        .map(|path| must_not_be_null(&path))
        .or_else(|| types::metadata_mismatch(metadata))
}

fn must_not_be_null(path: &str) -> String {
    format!("{path} must not be null; field deletion is not supported")
}

/// The first field that graphs do not have, at any depth. Earlier profilers merge by themselves and pass such fields on to
/// the API server, which drops them.
pub fn unknown(wanted: &JsonObject) -> Option<String> {
    wanted.get("spec")?.as_object()?;
    let path = types::unknown_field(wanted)?;
    Some(format!("override {path} is not a field of {}", api_version(wanted)))
}

/// The path of the first null, which would delete a field.
fn null(value: &Value, path: &mut Vec<String>) -> Option<String> {
    let mut below = |step: String, value: &Value| {
        path.push(step);
        let found = null(value, path);
        path.pop();
        found
    };
    match value {
        Value::Null => Some(path.join(".")),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !lists::is_opaque(name))
            .find_map(|(name, value)| below(name.clone(), value)),
        Value::Array(items) => items.iter().enumerate().find_map(|(place, value)| below(place.to_string(), value)),
        _ => None,
    }
}
