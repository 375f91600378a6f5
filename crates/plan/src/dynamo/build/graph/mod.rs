//! The graph that profiling generates, and whether a graph in the cluster belongs to the request.

mod additional;
mod lists;
pub mod merge;
mod read;
mod translate;

pub use additional::{additional, additional_names, content, exceeded_limit as additional_limit};
pub use read::{EARLIER, FINAL, PARETO, ProfilerOutput, key, read};

use serde_json::{Map, Value, json};
use steersman_api::Family;

use crate::dynamo::names::{self, GENERATED_GRAPH, REQUEST_UID};
use crate::dynamo::request;
use crate::dynamo::snapshot::{ObservedGraph, ObservedObject, ObservedOutput};
use crate::yaml::{Limit, YamlError};

pub type JsonObject = Map<String, Value>;

/// Most bytes of the annotations with the generated graph and its ConfigMaps together. The API server allows 256 KiB
/// for all annotations of an object.
pub const ANNOTATION_LIMIT: usize = 250_000;

/// The result of profiling.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedGraph {
    pub graph: Map<String, Value>,
    /// The graph as YAML, for the request's annotation.
    pub text: String,
    /// The ConfigMaps of the graph as YAML.
    pub additional: String,
    /// Other objects of the output, as `Secret x`. They are neither created nor stored where everyone could read them.
    pub skipped: Vec<String>,
    pub pareto: Vec<Map<String, Value>>,
}

impl GeneratedGraph {
    pub fn name(&self) -> &str {
        self.graph.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default()
    }

    pub fn additional_names(&self, object: &ObservedObject) -> Vec<String> {
        additional::names_in(object, &self.additional)
    }
}

pub fn generate(object: &ObservedObject, output: &ObservedOutput) -> Result<GeneratedGraph, String> {
    let ProfilerOutput { graph, additional, pareto } = read(&output.data, request::uses_mocker(&object.spec))?;
    let name = names::graph(&object.name, request::graph_override(&object.spec));
    let graph = ready(object, graph, &name);
    let text = yaml(&Value::Object(graph.clone()))?;
    let (additional, others): (Vec<Value>, Vec<Value>) = additional.into_iter().partition(additional::is_config_map);
    let word = |of: &Value| of.as_str().unwrap_or("?").to_owned();
    let described = |other: &Value| format!("{} {}", word(&other["kind"]), word(&other["metadata"]["name"]));
    let skipped = others.iter().map(described).collect();
    let additional = additional.iter().map(yaml).collect::<Result<Vec<_>, _>>()?.join("---\n");
    let size = additional.len();
    if size > ANNOTATION_LIMIT {
        return Err(format!(
            "additional resources YAML size ({size} bytes) exceeds maximum annotation size ({ANNOTATION_LIMIT} bytes); \
             consider reducing the number of resources or storing them separately"
        ));
    }
    if size + text.len() > ANNOTATION_LIMIT {
        return Err(format!(
            "the generated DynamoGraphDeployment ({} bytes) and its additional resources ({size} bytes) exceed the \
             {ANNOTATION_LIMIT} bytes that annotations can hold; leave out spec.features.planner, or shorten \
             spec.overrides.dgd",
            text.len()
        ));
    }
    Ok(GeneratedGraph { graph, text, additional, skipped, pareto })
}

/// Gives the graph its metadata and, if the request sets one, the version.
fn ready(object: &ObservedObject, mut graph: JsonObject, name: &str) -> JsonObject {
    let found = match graph.remove("metadata") {
        Some(Value::Object(found)) => found,
        _ => JsonObject::new(),
    };
    graph.insert("metadata".to_owned(), metadata(object, found, name).into());
    graph.remove("status");
    if let Some(version) = request::non_empty(object.spec.runtime_version_override.as_deref()) {
        give_version(&mut graph, version);
    }
    graph
}

/// Metadata of a generated object, with the labels and the UID of its request. Of the metadata in the profiler's output,
/// only labels and annotations stay.
fn metadata(object: &ObservedObject, mut metadata: JsonObject, name: &str) -> JsonObject {
    metadata.retain(|key, value| ["labels", "annotations"].contains(&key.as_str()) && value.is_object());
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    for (key, value) in names::labels(&object.name, &object.namespace) {
        labels[key] = value.into();
    }
    metadata.entry("annotations").or_insert_with(|| json!({}))[REQUEST_UID] = object.uid.clone().into();
    metadata.insert("name".to_owned(), name.into());
    metadata.insert("namespace".to_owned(), object.namespace.clone().into());
    metadata
}

/// Sets the version of every component without one.
fn give_version(graph: &mut Map<String, Value>, version: &str) {
    let Some(spec) = graph.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let mut give = |component: &mut Value| {
        if let Value::Object(fields) = component {
            let own = fields.get("runtimeVersionOverride").and_then(Value::as_str);
            if own.is_none_or(str::is_empty) {
                fields.insert("runtimeVersionOverride".to_owned(), version.into());
            }
        }
    };
    match spec.get_mut("components") {
        Some(Value::Array(components)) => components.iter_mut().for_each(&mut give),
        _ => {
            if let Some(services) = spec.get_mut("services").and_then(Value::as_object_mut) {
                services.values_mut().for_each(give);
            }
        }
    }
}

/// The graph to create, with the current version: from the annotation, which the user may have edited, else from the
/// status. An invalid annotation is an error, so that edits are never ignored.
pub fn wanted(object: &ObservedObject) -> Result<Map<String, Value>, String> {
    let graph = match request::generated_graph(object) {
        Some(text) => manifest(text).map_err(|why| {
            format!(
                "annotation {GENERATED_GRAPH} is not a valid manifest: {why}. Correct the annotation, or remove it to \
                 create the graph from status.profilingResults.selectedConfig."
            )
        })?,
        None => selected(object).cloned().ok_or_else(|| {
            format!(
                "neither annotation {GENERATED_GRAPH} nor status.profilingResults.selectedConfig has the generated \
                 manifest. Put the manifest back into the annotation, or create a new DGDR."
            )
        })?,
    };
    Ok(ready(object, graph, &name(object)))
}

fn manifest(text: &str) -> Result<Map<String, Value>, String> {
    let manifest = read::manifest(text);
    let graph = match &*manifest {
        Ok(graph) => graph,
        Err(YamlError::Limit(limit)) => return Err(format!("it has {limit}")),
        Err(YamlError::Invalid { cause, .. }) => return Err(cause.clone()),
    };
    if is_graph(graph) {
        return Ok(graph.clone());
    }
    let word = |name: &str| graph.get(name).cloned().unwrap_or_default();
    Err(format!("it has kind {} and apiVersion {}", word("kind"), word("apiVersion")))
}

/// The limit that the annotation with the graph exceeds, so that it is not used.
pub fn manifest_limit(object: &ObservedObject) -> Option<Limit> {
    match &*read::manifest(request::generated_graph(object)?) {
        Err(YamlError::Limit(limit)) => Some(*limit),
        Ok(_) | Err(YamlError::Invalid { .. }) => None,
    }
}

/// The graph in the request's status.
fn selected(object: &ObservedObject) -> Option<&Map<String, Value>> {
    let results = object.status.as_ref()?.profiling_results.as_ref()?;
    results.selected_config.as_ref().filter(|graph| is_graph(graph))
}

/// The graph in the request's annotation.
fn annotated(object: &ObservedObject) -> Option<Map<String, Value>> {
    request::generated_graph(object).and_then(|text| manifest(text).ok())
}

/// Whether Steersman generated the graph, and not an earlier operator.
fn is_ours(object: &ObservedObject) -> bool {
    let has_uid = |graph: &Map<String, Value>| {
        graph.get("metadata").is_some_and(|metadata| metadata["annotations"][REQUEST_UID].is_string())
    };
    selected(object).is_some_and(has_uid) || annotated(object).is_some_and(|graph| has_uid(&graph))
}

/// The name of the request's graph. Earlier operators wrote it to the status only once the graph existed; until then
/// their manifest has it.
pub fn name(object: &ObservedObject) -> String {
    let known =
        object.status.as_ref().and_then(|status| request::non_empty(status.dgd_name.as_deref()).map(str::to_owned));
    let of_manifest = || {
        let graph = annotated(object)?;
        request::non_empty(graph.get("metadata")?["name"].as_str()).map(str::to_owned)
    };
    let default = || names::graph(&object.name, request::graph_override(&object.spec));
    known.or_else(of_manifest).unwrap_or_else(default)
}

fn is_graph(graph: &Map<String, Value>) -> bool {
    let text = |name: &str| graph.get(name).and_then(Value::as_str).unwrap_or_default();
    text("kind") == Family::Dgd.kind() && is_served(text("apiVersion"))
}

fn is_served(api_version: &str) -> bool {
    let group = Family::Dgd.group();
    Family::Dgd.served_versions().iter().any(|version| api_version == format!("{group}/{version}"))
}

/// Origin of an existing graph that has the name of the generated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Created for this request.
    Ours,
    /// Created for an earlier request of the same name, which it outlived.
    Earlier,
    /// Not created for a request of this name.
    Foreign,
}

impl Claim {
    /// Why a graph of this name is not used.
    pub fn refusal(self, name: &str) -> String {
        let whose = match self {
            Self::Ours => "was created for this request before",
            Self::Earlier => "was created for an earlier request of the same name",
            Self::Foreign => "was not created for this request",
        };
        format!("DGD {name} exists and {whose}. Steersman does not change it.")
    }
}

/// Whether the labels of a graph name the request.
pub fn is_labelled(object: &ObservedObject, graph: &ObservedGraph) -> bool {
    names::labels(&object.name, &object.namespace).iter().all(|(key, value)| graph.labels.get(key) == Some(value))
}

/// The annotation has the UID of the request, and counts even if the labels were removed. Labels have the request's name,
/// and names are reused: a graph without our annotation must be younger than the request.
pub fn claim(object: &ObservedObject, graph: &ObservedGraph) -> Claim {
    let relabelled = names::labels(&object.name, &object.namespace)
        .iter()
        .any(|(key, value)| graph.labels.get(key).is_some_and(|other| other != value));
    match graph.annotations.get(REQUEST_UID) {
        _ if relabelled => Claim::Foreign,
        Some(uid) if *uid == object.uid => Claim::Ours,
        _ if !is_labelled(object, graph) => Claim::Foreign,
        Some(_) => Claim::Earlier,
        None => match (object.created, graph.created) {
            (Some(request), Some(graph)) if graph < request => Claim::Earlier,
            _ => Claim::Ours,
        },
    }
}

fn yaml(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, yaml_12: false };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| format!("the generated manifest cannot be written as YAML: {error}"))
}
