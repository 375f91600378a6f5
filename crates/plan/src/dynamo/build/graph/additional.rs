//! The ConfigMaps that a generated graph needs. Their content is written once, so that users can change it.

use serde_json::{Map, Value, json};
use steersman_api::Family;

use super::{is_ours, metadata, read};
use crate::dynamo::names::{self, ADDITIONAL};
use crate::dynamo::request;
use crate::dynamo::snapshot::{ObservedConfigMap, ObservedGraph, ObservedObject};

const CONTENT: [&str; 3] = ["data", "binaryData", "immutable"];

/// Names of the ConfigMaps, in their order.
pub fn additional_names(object: &ObservedObject) -> Vec<String> {
    names_in(object, annotation(object))
}

/// Names of the ConfigMaps in a text of YAML documents.
pub(super) fn names_in(object: &ObservedObject, text: &str) -> Vec<String> {
    let maps = read::documents(text).into_iter().filter(is_config_map);
    let maps = maps.filter_map(|document| config_map(object, None, &[], document));
    maps.filter_map(|map| map["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn annotation(object: &ObservedObject) -> &str {
    object.annotations.get(ADDITIONAL).map(String::as_str).unwrap_or_default()
}

/// The ConfigMaps have no owner until the graph exists, then the graph owns them: like the graph, they must outlive the
/// request. Other kinds are skipped.
pub fn additional(object: &ObservedObject, graph: Option<&ObservedGraph>, there: &[ObservedConfigMap]) -> Vec<Value> {
    let documents = read::documents(annotation(object)).into_iter().filter(is_config_map);
    documents.filter_map(|document| config_map(object, graph, there, document)).collect()
}

pub(super) fn is_config_map(document: &Value) -> bool {
    document["apiVersion"] == "v1" && document["kind"] == "ConfigMap"
}

/// Whether the ConfigMap has received the content generated for this request. Without our annotation, an earlier
/// operator may have written it, if it generated the graph.
fn is_written(object: &ObservedObject, there: &ObservedConfigMap) -> bool {
    match &there.request {
        Some(uid) => *uid == object.uid,
        None => {
            !is_ours(object) && !matches!((there.created, object.created), (Some(map), Some(request)) if map < request)
        }
    }
}

fn config_map(
    object: &ObservedObject,
    graph: Option<&ObservedGraph>,
    there: &[ObservedConfigMap],
    document: Value,
) -> Option<Value> {
    let Value::Object(mut document) = document else { return None };
    let Some(Value::Object(found)) = document.remove("metadata") else { return None };
    let name = request::non_empty(found.get("name").and_then(Value::as_str))?.to_owned();
    // A generated ConfigMap must not overwrite the profiler's output.
    if name == names::output(&object.name) {
        return None;
    }
    let mut metadata = metadata(object, found, &name);
    document.retain(|key, _| ["apiVersion", "kind"].contains(&key.as_str()) || CONTENT.contains(&key.as_str()));
    if let Some(there) = there.iter().find(|there| there.name == name && is_written(object, there)) {
        // The live content is applied, because an apply without it would remove it.
        document.retain(|key, _| !CONTENT.contains(&key.as_str()));
        document.extend(there.content.clone());
        metadata.insert("resourceVersion".to_owned(), there.resource_version.clone().into());
    }
    if let Some(graph) = graph {
        let owner = json!({
            "apiVersion": graph.api_version,
            "kind": Family::Dgd.kind(),
            "name": graph.name,
            "uid": graph.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    document.insert("metadata".to_owned(), metadata.into());
    Some(Value::Object(document))
}

pub fn content(map: &Value) -> Map<String, Value> {
    let fields = CONTENT.iter().filter(|name| !map[**name].is_null());
    fields.map(|name| ((*name).to_owned(), map[*name].clone())).collect()
}
