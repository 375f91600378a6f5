//! Reads the graph and the other objects from the profiler's output.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use steersman_api::Family;

use super::is_served;

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
    let mut graph = None;
    let mut additional = Vec::new();
    for document in documents(text) {
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
    let pareto = data.get(PARETO).and_then(|text| parse(text).ok()).unwrap_or_default();
    Ok(ProfilerOutput { graph, additional, pareto })
}

/// Parses each document separately, so that an invalid one does not discard the others. Documents without a kind are
/// skipped.
pub fn documents(text: &str) -> Vec<Value> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("---") {
            Some(rest) if rest.is_empty() || rest.starts_with([' ', '\t']) => {
                documents.push(format!("{}\n", rest.trim()))
            }
            _ => {
                if let Some(last) = documents.last_mut() {
                    last.push_str(line);
                    last.push('\n');
                }
            }
        }
    }
    let read = documents.iter().filter_map(|text| parse::<Value>(text).ok());
    read.filter(|document| document["kind"].as_str().is_some_and(|kind| !kind.is_empty())).collect()
}

/// Parses YAML as the profiler's library does: only `true` and `false` are booleans, while `y` and `on` are strings.
/// The error names the position.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true });
    // The lines after the first quote the text.
    read.map_err(|error| error.to_string().lines().next().unwrap_or_default().trim_end_matches(':').to_owned())
}
