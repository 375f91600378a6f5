//! Moves the resources of the profiling container, which v1beta1 has in the Job's list of containers.

use serde_json::{Value, json};

use crate::convert::tree::{JsonObject, JsonPath, SourceFields, ValueKind, insert_at, remove, text, value_at};

const CONTAINERS: &JsonPath = &["overrides", "profilingJob", "template", "spec", "containers"];
const PROFILER: &str = "profiler";

pub fn take_resources(spec: &mut SourceFields) -> Option<Value> {
    let mut containers = spec.take(CONTAINERS, ValueKind::NonEmptyList)?;
    let resources = containers.as_array_mut().and_then(|list| take_profiler_resources(list));
    // An entry with nothing but resources is derived from v1alpha1.
    let derived = resources.is_some() && containers == json!([{ "name": PROFILER }]);
    if !derived {
        insert_at(&mut spec.remaining, CONTAINERS, containers);
    }
    resources
}

fn take_profiler_resources(containers: &mut [Value]) -> Option<Value> {
    let container = containers.get_mut(profiler_index(containers)?)?.as_object_mut()?;
    if container.get("resources")?.as_object().is_none_or(|resources| resources.is_empty()) {
        return None;
    }
    container.insert("name".to_owned(), PROFILER.into());
    container.remove("resources")
}

pub fn put_resources(spec: &mut JsonObject, resources: Value) {
    let mut containers = match remove(spec, CONTAINERS) {
        Some(Value::Array(containers)) => containers,
        _ => Vec::new(),
    };
    let known = profiler_index(&containers).and_then(|index| containers.get_mut(index)).and_then(Value::as_object_mut);
    match known {
        Some(container) => {
            container.insert("name".to_owned(), PROFILER.into());
            container.insert("resources".to_owned(), resources);
        }
        None => containers.push(json!({ "name": PROFILER, "resources": resources })),
    }
    insert_at(spec, CONTAINERS, Value::Array(containers));
}

/// The index of the profiler's container. The first version of the conversion wrote it without a name.
fn profiler_index(containers: &[Value]) -> Option<usize> {
    let unnamed = |container: &Value| match container.get("name") {
        None => container.is_object(),
        Some(name) => name.as_str() == Some(""),
    };
    let named = |container: &Value| text(container.get("name")) == Some(PROFILER);
    containers.iter().position(named).or_else(|| containers.iter().position(unnamed))
}

/// Adds an empty list of containers, because the schema requires one in a pod with other fields.
pub fn add_container_list(spec: &mut JsonObject) {
    if !value_at(spec, CONTAINERS).is_some_and(Value::is_array) {
        insert_at(spec, CONTAINERS, json!([]));
    }
}

/// Removes a list that `add_container_list` would add again.
pub fn remove_empty_container_list(spec: &mut JsonObject) {
    if value_at(spec, CONTAINERS) == Some(&json!([])) {
        remove(spec, CONTAINERS);
    }
}
