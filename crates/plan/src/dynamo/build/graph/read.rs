//! Reads the graph and the other objects from the profiler's output.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use steersman_api::Family;

use super::is_served;
use crate::yaml::{Booleans, Budget, Limit, Memo, YamlError, split_documents};

pub const FINAL: &str = "final_config.yaml";
/// Keys of profilers with an earlier protocol, simulated and real.
pub const EARLIER: [&str; 2] = ["mocker_config_with_planner.yaml", "config_with_planner.yaml"];
/// A list of alternative configurations, if the profiler delivers one.
pub const PARETO: &str = "pareto.yaml";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfilerOutput {
    pub graph: Map<String, Value>,
    /// All other objects, in their order.
    pub additional: Vec<Value>,
    pub pareto: Vec<Map<String, Value>>,
}

/// The key of the manifests in this output. None: there are none yet.
pub fn key(data: &BTreeMap<String, String>, simulated: bool) -> Option<&'static str> {
    let earlier = if simulated { EARLIER[0] } else { EARLIER[1] };
    [FINAL, earlier].into_iter().find(|key| data.contains_key(*key))
}

pub fn read(data: &BTreeMap<String, String>, simulated: bool) -> Result<ProfilerOutput, String> {
    let key = key(data, simulated).unwrap_or(FINAL);
    let text = data.get(key).map(String::as_str).unwrap_or_default();
    // One budget for all keys of the output.
    let mut budget = Budget::new(Booleans::TrueAndFalse);
    let mut graph = None;
    let mut additional = Vec::new();
    let documents = parse_documents(text, &mut budget)
        .map_err(|limit| format!("failed to extract DGD from {key}: it has {limit}. Shorten the profiler's output"))?;
    for document in documents {
        match document {
            // The last graph counts, and earlier ones do not belong to it.
            Value::Object(found) if found.get("kind").and_then(Value::as_str) == Some(Family::Dgd.kind()) => {
                graph = Some(found);
            }
            other => additional.push(other),
        }
    }
    let Some(graph) = graph else {
        return Err(format!("failed to extract DGD from {key}: no DynamoGraphDeployment found in YAML content"));
    };
    let version = graph.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !is_served(version) {
        return Err(format!("unsupported DynamoGraphDeployment apiVersion {version:?}"));
    }
    if !graph.get("spec").is_some_and(Value::is_object) {
        return Err(format!("failed to extract DGD from {key}: the DynamoGraphDeployment has no spec"));
    }
    let pareto = match data.get(PARETO).map(|text| budget.parse(text)) {
        Some(Ok(pareto)) => pareto,
        Some(Err(YamlError::Limit(limit))) => {
            return Err(format!("the profiler's output with {PARETO} has {limit}. Shorten the profiler's output"));
        }
        Some(Err(YamlError::Invalid { .. })) | None => Vec::new(),
    };
    Ok(ProfilerOutput { graph, additional, pareto })
}

/// The documents of an annotation that have a kind. An invalid document does not discard the others.
pub fn documents(text: &str) -> Arc<Result<Vec<Value>, Limit>> {
    static DOCUMENTS: Memo<Arc<Result<Vec<Value>, Limit>>> = Memo::new();
    DOCUMENTS.get(text, || {
        let mut budget = Budget::new(Booleans::TrueAndFalse);
        let documents = parse_documents(text, &mut budget);
        let nodes = if documents.is_ok() { budget.used_nodes() } else { 0 };
        (Arc::new(documents), nodes)
    })
}

fn parse_documents(text: &str, budget: &mut Budget) -> Result<Vec<Value>, Limit> {
    let mut documents = Vec::new();
    for text in split_documents(text)? {
        match budget.parse::<Value>(&text) {
            Ok(document) if document["kind"].as_str().is_some_and(|kind| !kind.is_empty()) => documents.push(document),
            Ok(_) | Err(YamlError::Invalid { .. }) => {}
            Err(YamlError::Limit(limit)) => return Err(limit),
        }
    }
    Ok(documents)
}

/// A manifest in an annotation. It is parsed as the profiler's library does: only `true` and `false` are booleans, while
/// `y` and `on` are strings.
pub fn manifest(text: &str) -> Arc<Result<Map<String, Value>, YamlError>> {
    static MANIFESTS: Memo<Arc<Result<Map<String, Value>, YamlError>>> = Memo::new();
    MANIFESTS.get(text, || {
        let mut budget = Budget::new(Booleans::TrueAndFalse);
        let manifest = budget.parse(text);
        let nodes = if manifest.is_ok() { budget.used_nodes() } else { 0 };
        (Arc::new(manifest), nodes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_annotation_is_parsed_once() {
        let text = |kind: &str| format!("kind: {kind}\nmetadata: {{name: parsed-once}}\n");
        assert!(Arc::ptr_eq(&documents(&text("ConfigMap")), &documents(&text("ConfigMap"))));
        assert!(Arc::ptr_eq(&manifest(&text("ConfigMap")), &manifest(&text("ConfigMap"))));
        assert!(!Arc::ptr_eq(&documents(&text("ConfigMap")), &documents(&text("Secret"))));
    }
}
