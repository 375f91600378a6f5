//! Merges `overrides.dgd` over a generated graph. The profiler calls it through a program of ours, once for each graph
//! that it writes.

mod fields;
mod kubernetes;
mod schema;
mod types;

use serde_json::{Value, json};

pub use super::translate::field_missing_in_alpha;
pub use schema::{problem, unknown};

use super::translate::{self, TranslatedOverride};
use super::{JsonObject, lists};

/// Prefix of annotations that the conversion of graphs uses.
const RESERVED: &str = "nvidia.com/dgd-";
pub(super) const APPEND: &str = "$patch";
/// Components whose arguments the profiler writes as a whole: an override replaces them.
pub(super) const ARGUMENTS_REPLACED: [&str; 2] = ["Frontend", "Planner"];

#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    pub graph: JsonObject,
    /// Each as `path: text`.
    pub warnings: Vec<String>,
}

fn components(spec: &JsonObject, alpha: bool) -> Vec<(String, &Value)> {
    if alpha {
        let services = spec.get("services").and_then(Value::as_object);
        return services.into_iter().flatten().map(|(name, service)| (name.clone(), service)).collect();
    }
    let components = spec.get("components").and_then(Value::as_array);
    let name = |component: &Value| component["name"].as_str().unwrap_or_default().to_owned();
    components.into_iter().flatten().map(|component| (name(component), component)).collect()
}

fn api_version(of: &JsonObject) -> &str {
    of.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

fn is_alpha(of: &JsonObject) -> bool {
    api_version(of).ends_with("/v1alpha1")
}

/// Fields in the metadata of an override that have no effect.
pub fn ignored_metadata(wanted: &JsonObject) -> Vec<String> {
    let Some(Value::Object(metadata)) = wanted.get("metadata") else { return Vec::new() };
    let fields = metadata
        .iter()
        .filter(|(name, value)| !["name", "labels", "annotations"].contains(&name.as_str()) && !value.is_null());
    let annotations = metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let reserved = annotations.filter(|(key, _)| key.starts_with(RESERVED));
    fields.map(|(name, _)| name.clone()).chain(reserved.map(|(key, _)| format!("annotations[{key}]"))).collect()
}

/// Names of components, those of an override that a graph does not have, and those of the graph.
pub struct ComponentNames {
    pub unknown: Vec<String>,
    pub existing: Vec<String>,
}

/// Compares an override with the graph that it was merged into: unknown components of the override had no effect.
pub fn component_names(wanted: &JsonObject, graph: &JsonObject) -> ComponentNames {
    let names = |of: &JsonObject| -> Vec<String> {
        let spec = of.get("spec").and_then(Value::as_object);
        spec.into_iter().flat_map(|spec| components(spec, is_alpha(of))).map(|(name, _)| name).collect()
    };
    let existing = names(graph);
    let unknown = names(wanted).into_iter().filter(|name| !existing.contains(name)).collect();
    ComponentNames { unknown, existing }
}

pub fn merge(graph: &JsonObject, wanted: &JsonObject) -> Result<Merged, String> {
    if let Some(problem) = problem(wanted).or_else(|| unknown(wanted)) {
        return Err(problem);
    }
    let is_beta = |of: &JsonObject| api_version(of).ends_with("/v1beta1");
    let from_beta = is_beta(wanted);
    let before = graph;
    let result = if is_alpha(wanted) && is_beta(graph) {
        translate::to_beta(wanted, graph)
    } else if !is_alpha(wanted) && is_alpha(graph) {
        translate::to_alpha(wanted, graph)?
    } else {
        TranslatedOverride { wanted: wanted.clone(), graph: graph.clone(), warnings: Vec::new() }
    };
    let TranslatedOverride { wanted, mut graph, warnings } = result;
    if api_version(&graph) != api_version(&wanted) {
        return Err(format!(
            "override of {} cannot be merged into a graph of {}: write it in the version that the profiler generates",
            api_version(&wanted),
            api_version(&graph)
        ));
    }
    let mut merging = Merging { alpha: is_alpha(&wanted), from_beta, warnings };
    merging.metadata(&mut graph, wanted.get("metadata"));
    if let Some(Value::Object(spec)) = wanted.get("spec") {
        let spec = merging.known(spec, &graph);
        let mut own = graph.remove("spec").unwrap_or_else(|| JsonObject::new().into());
        merging.value(&mut own, &Value::Object(spec), &mut vec!["spec".to_owned()])?;
        graph.insert("spec".to_owned(), own);
    }
    if merging.alpha && from_beta {
        translate::restore_service_resources(&mut graph, before);
    }
    Ok(Merged { graph, warnings: merging.warnings })
}

struct Merging {
    alpha: bool,
    /// The override was written in v1beta1, whose rules apply in both versions.
    from_beta: bool,
    warnings: Vec<String>,
}

impl Merging {
    /// Merges labels and annotations only: the other fields identify an object or are the server's.
    fn metadata(&mut self, graph: &mut JsonObject, wanted: Option<&Value>) {
        let Some(Value::Object(wanted)) = wanted else { return };
        let beyond: Vec<&str> =
            wanted.keys().map(String::as_str).filter(|name| !["labels", "annotations"].contains(name)).collect();
        if !beyond.is_empty() {
            self.warnings.push(format!("metadata: ignored identity/runtime fields: {}", beyond.join(", ")));
        }
        let mut reserved = Vec::new();
        for part in ["labels", "annotations"] {
            for (key, value) in wanted.get(part).and_then(Value::as_object).into_iter().flatten() {
                if part == "annotations" && key.starts_with(RESERVED) {
                    reserved.push(key.as_str());
                    continue;
                }
                if let Value::Object(metadata) = graph.entry("metadata").or_insert_with(|| json!({}))
                    && let Value::Object(fields) = metadata.entry(part).or_insert_with(|| json!({}))
                {
                    fields.insert(key.clone(), value.clone());
                }
            }
        }
        if !reserved.is_empty() {
            self.warnings
                .push(format!("metadata.annotations: ignored reserved operator keys: {}", reserved.join(", ")));
        }
    }

    /// Removes components that the graph does not have: profiling decides which exist.
    fn known(&mut self, spec: &JsonObject, graph: &JsonObject) -> JsonObject {
        let empty = JsonObject::new();
        let own = graph.get("spec").and_then(Value::as_object).unwrap_or(&empty);
        let there: Vec<String> = components(own, self.alpha).into_iter().map(|(name, _)| name).collect();
        let (list, word) = if self.alpha { ("services", "service") } else { ("components", "component") };
        for (name, _) in components(spec, self.alpha).into_iter().filter(|(name, _)| !there.contains(name)) {
            let text = format!("spec.{list}[{name}]: ignored because the generated blueprint has no such {word}");
            self.warnings.push(text);
        }
        let mut spec = spec.clone();
        match spec.get_mut(list) {
            Some(Value::Object(services)) => services.retain(|name, _| there.contains(name)),
            Some(Value::Array(components)) => {
                components.retain(|component| there.iter().any(|name| component["name"] == name.as_str()));
            }
            _ => {}
        }
        spec
    }

    fn value(&self, own: &mut Value, wanted: &Value, path: &mut Vec<String>) -> Result<(), String> {
        let name = path.last().map(String::as_str).unwrap_or_default();
        match (own, wanted) {
            (Value::Object(own), Value::Object(wanted)) if !lists::is_whole(name) => self.object(own, wanted, path),
            (Value::Array(own), Value::Array(wanted)) => {
                if let Some(keys) = lists::keys(path) {
                    return self.list(own, wanted, keys, path);
                }
                if lists::is_set(name) {
                    let new: Vec<Value> = wanted.iter().filter(|item| !own.contains(item)).cloned().collect();
                    own.extend(new);
                } else if self.appends(path) {
                    own.extend(wanted.iter().cloned());
                } else {
                    own.clone_from(wanted);
                }
                Ok(())
            }
            (own, wanted) => {
                self.refuse_patch(wanted, path)?;
                own.clone_from(wanted);
                Ok(())
            }
        }
    }

    fn object(&self, own: &mut JsonObject, wanted: &JsonObject, path: &mut Vec<String>) -> Result<(), String> {
        let listed = path.len() >= 2 && path[path.len() - 2] == "containers";
        let container = listed || (self.alpha && path.last().is_some_and(|name| name == "mainContainer"));
        let permitted = container && (self.from_beta || !self.alpha);
        let append = wanted
            .get(APPEND)
            .map(|modifier| appended(own, wanted, modifier, permitted, &self.place(path)))
            .transpose()?;
        for (name, value) in wanted.iter().filter(|(name, _)| *name != APPEND) {
            if let Some(arguments) = append.as_ref().filter(|_| name == "args") {
                own.insert(name.clone(), Value::Array(arguments.clone()));
                continue;
            }
            path.push(name.clone());
            match own.get_mut(name) {
                Some(there) => self.value(there, value, path)?,
                None => {
                    self.refuse_patch(value, path)?;
                    own.insert(name.clone(), value.clone());
                }
            }
            path.pop();
        }
        Ok(())
    }

    fn list(
        &self,
        own: &mut Vec<Value>,
        wanted: &[Value],
        keys: &[&str],
        path: &mut Vec<String>,
    ) -> Result<(), String> {
        let key = |item: &Value| -> Vec<Value> { keys.iter().map(|key| lists::key(item, key)).collect() };
        for item in wanted {
            path.push(item[keys[0]].as_str().map_or_else(|| item[keys[0]].to_string(), str::to_owned));
            match own.iter_mut().find(|there| key(there) == key(item)) {
                Some(there) => self.value(there, item, path)?,
                None => {
                    self.refuse_patch(item, path)?;
                    own.push(item.clone());
                }
            }
            path.pop();
        }
        Ok(())
    }

    /// In v1alpha1 the arguments of workers are appended.
    fn appends(&self, path: &[String]) -> bool {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["spec", "services", service, "extraPodSpec", "mainContainer", "args"] => {
                self.alpha && !self.from_beta && !ARGUMENTS_REPLACED.contains(service)
            }
            _ => false,
        }
    }

    /// A field that the graph does not have has nothing to append to.
    fn refuse_patch(&self, value: &Value, path: &[String]) -> Result<(), String> {
        if has_patch(value) { Err(format!("override {}", misplaced_patch(&self.place(path)))) } else { Ok(()) }
    }

    /// The path in the override as its author wrote it.
    fn place(&self, path: &[String]) -> String {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["spec", "services", name, rest @ ..] if self.from_beta => {
                let rest = match rest {
                    ["extraPodSpec", "mainContainer", rest @ ..] => {
                        [&["podTemplate", "spec", "containers", "main"], rest].concat()
                    }
                    ["extraPodSpec", rest @ ..] => [&["podTemplate", "spec"], rest].concat(),
                    rest => rest.to_vec(),
                };
                [&["spec", "components", name], rest.as_slice()].concat().join(".")
            }
            path => path.join("."),
        }
    }
}

fn has_patch(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(APPEND) || fields.values().any(has_patch),
        Value::Array(items) => items.iter().any(has_patch),
        _ => false,
    }
}

fn misplaced_patch(place: &str) -> String {
    format!("{place}.{APPEND}: only {{args: append}} on an existing container is supported")
}

/// The arguments of a container, followed by those of the override.
fn appended(
    own: &JsonObject,
    wanted: &JsonObject,
    modifier: &Value,
    permitted: bool,
    place: &str,
) -> Result<Vec<Value>, String> {
    if !permitted || *modifier != json!({ "args": "append" }) {
        return Err(format!("override {}", misplaced_patch(place)));
    }
    let more = wanted.get("args").and_then(Value::as_array);
    let more = more.filter(|items| !items.is_empty() && items.iter().all(Value::is_string));
    let Some(more) = more else {
        return Err(format!("override {place}.args must be a non-empty list of strings to append"));
    };
    let there = own
        .get("args")
        .and_then(Value::as_array)
        .ok_or_else(|| format!("override {place}.args cannot be appended: the generated container has no args"))?;
    Ok(there.iter().chain(more).cloned().collect())
}
