//! The ConfigMaps that a generated graph needs. Their content is written once, so that users can change it.

use serde_json::{Map, Value, json};
use steersman_api::Family;

use super::{is_ours, metadata, read};
use crate::dynamo::names::{self, ADDITIONAL};
use crate::dynamo::request;
use crate::dynamo::snapshot::{ObservedConfigMap, ObservedGraph, ObservedObject};
use crate::yaml::Limit;

const CONTENT: [&str; 3] = ["data", "binaryData", "immutable"];

/// Names of the ConfigMaps, in their order.
pub fn additional_names(object: &ObservedObject) -> Vec<String> {
    names_in(object, annotation(object))
}

/// Names of the ConfigMaps in a text of YAML documents.
pub(super) fn names_in(object: &ObservedObject, text: &str) -> Vec<String> {
    let names = config_maps(text).into_iter().filter_map(|document| name_of(object, &document).map(str::to_owned));
    names.collect()
}

/// None of the ConfigMaps of a text that exceeds a limit.
fn config_maps(text: &str) -> Vec<Value> {
    match &*read::documents(text) {
        Ok(documents) => documents.iter().filter(|document| is_config_map(document)).cloned().collect(),
        Err(_) => Vec::new(),
    }
}

/// The limit that the annotation with the ConfigMaps exceeds, so that none of them is written.
pub fn exceeded_limit(object: &ObservedObject) -> Option<Limit> {
    read::documents(annotation(object)).as_ref().as_ref().err().copied()
}

fn annotation(object: &ObservedObject) -> &str {
    object.annotations.get(ADDITIONAL).map(String::as_str).unwrap_or_default()
}

/// The ConfigMaps have no owner until the graph exists, then the graph owns them: like the graph, they must outlive the
/// request. Other kinds are skipped.
pub fn additional(object: &ObservedObject, graph: Option<&ObservedGraph>, there: &[ObservedConfigMap]) -> Vec<Value> {
    let documents = config_maps(annotation(object)).into_iter();
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

/// A generated ConfigMap must not overwrite the profiler's output.
fn name_of<'a>(object: &ObservedObject, document: &'a Value) -> Option<&'a str> {
    let name = request::non_empty(document["metadata"]["name"].as_str())?;
    (name != names::output(&object.name)).then_some(name)
}

fn config_map(
    object: &ObservedObject,
    graph: Option<&ObservedGraph>,
    there: &[ObservedConfigMap],
    document: Value,
) -> Option<Value> {
    let name = name_of(object, &document)?.to_owned();
    let Value::Object(mut document) = document else { return None };
    let Some(Value::Object(found)) = document.remove("metadata") else { return None };
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
