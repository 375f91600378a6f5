//! Checks whether an override fits the schema of graphs.

use serde_json::Value;
use steersman_api::Family;

use super::{JsonObject, api_version, components, is_alpha, types};
use crate::dynamo::build::graph::translate::COMMON_FIELDS;
use crate::dynamo::build::graph::{is_served, lists};

/// Fields of a graph's spec in both versions.
const SPEC: [&str; 8] = [
    "annotations",
    "backendFramework",
    "experimental",
    "labels",
    "priorityClassName",
    "providerOverride",
    "restart",
    "topologyConstraint",
];
const SPEC_BETA: [&str; 2] = ["components", "env"];
const SPEC_ALPHA: [&str; 3] = ["envs", "pvcs", "services"];
/// Fields of a v1beta1 component besides [`COMMON_FIELDS`].
const COMPONENT: [&str; 8] = [
    "name",
    "type",
    "podTemplate",
    "sharedMemorySize",
    "scalingAdapter",
    "frontendSidecar",
    "compilationCache",
    "experimental",
];
/// Fields of a v1alpha1 service besides [`COMMON_FIELDS`].
const SERVICE: [&str; 22] = [
    "annotations",
    "labels",
    "serviceName",
    "componentType",
    "subComponentType",
    "dynamoNamespace",
    "resources",
    "autoscaling",
    "envs",
    "envFromSecret",
    "volumeMounts",
    "ingress",
    "sharedMemory",
    "extraPodMetadata",
    "extraPodSpec",
    "livenessProbe",
    "readinessProbe",
    "scalingAdapter",
    "frontendSidecar",
    "checkpoint",
    "gpuMemoryService",
    "failover",
];

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
    let Some(Value::Object(_)) = wanted.get("spec") else {
        return wanted.contains_key("spec").then(|| "override spec must be an object".to_owned());
    };
    null(&wanted["spec"], &mut vec!["spec".to_owned()])
        .map(|path| format!("override {path} must not be null; field deletion is not supported"))
        .or_else(|| types::mismatch(wanted))
}

/// The first field that graphs do not have, in the spec, in components and in their pods. Earlier profilers merge by
/// themselves and pass such fields on to the API server, which drops them.
pub fn unknown(wanted: &JsonObject) -> Option<String> {
    let spec = wanted.get("spec")?.as_object()?;
    let api_version = api_version(wanted);
    let (alpha, list) = lists_of(wanted);
    let (of_spec, of_component) =
        if alpha { (&SPEC_ALPHA[..], &SERVICE[..]) } else { (&SPEC_BETA[..], &COMPONENT[..]) };
    let first_unknown = |fields: &JsonObject, common: &[&str], known: &[&str]| {
        fields.keys().find(|name| !common.contains(&name.as_str()) && !known.contains(&name.as_str())).cloned()
    };
    let below = |(name, component): (String, &Value)| {
        let field = first_unknown(component.as_object()?, &COMMON_FIELDS, of_component)?;
        Some(format!("override spec.{list}[{name}].{field} is not a field of {api_version}"))
    };
    let above =
        first_unknown(spec, &SPEC, of_spec).map(|name| format!("override spec.{name} is not a field of {api_version}"));
    let in_pod = |(name, component): (String, &Value)| {
        let path = types::unknown_in_pod(component, alpha, &mut vec![format!("spec.{list}[{name}]")])?;
        Some(format!("override {path} is not a field of {api_version}"))
    };
    above
        .or_else(|| components(spec, alpha).into_iter().find_map(below))
        .or_else(|| components(spec, alpha).into_iter().find_map(in_pod))
}

/// Whether the override is of v1alpha1, and the name of its list of components.
fn lists_of(wanted: &JsonObject) -> (bool, &'static str) {
    let alpha = is_alpha(wanted);
    (alpha, if alpha { "services" } else { "components" })
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
