//! Moves the resources of the profiling container, which v1beta1 has in the Job's list of containers.

use serde_json::{Value, json};

use crate::convert::tree::{Kind, Object, Path, Source, at, put, remove, text};

const CONTAINERS: &Path = &["overrides", "profilingJob", "template", "spec", "containers"];
const PROFILER: &str = "profiler";

pub fn take_resources(spec: &mut Source) -> Option<Value> {
    let mut taken = spec.take(CONTAINERS, Kind::List)?;
    let resources = taken.as_array_mut().and_then(|list| resources_of_profiler(list));
    // An entry with the resources alone is rebuilt from v1alpha1.
    let derived = resources.is_some() && taken == json!([{ "name": PROFILER }]);
    if !derived {
        put(&mut spec.rest, CONTAINERS, taken);
    }
    resources
}

fn resources_of_profiler(containers: &mut [Value]) -> Option<Value> {
    let container = containers.get_mut(profiler(containers)?)?.as_object_mut()?;
    let filled = container.get("resources")?.as_object().is_some_and(|resources| !resources.is_empty());
    if !filled {
        return None;
    }
    container.insert("name".to_owned(), PROFILER.into());
    container.remove("resources")
}

pub fn give_resources(spec: &mut Object, resources: Value) {
    let mut containers = match remove(spec, CONTAINERS) {
        Some(Value::Array(containers)) => containers,
        _ => Vec::new(),
    };
    let known = profiler(&containers).and_then(|index| containers.get_mut(index)).and_then(Value::as_object_mut);
    match known {
        Some(container) => {
            container.insert("name".to_owned(), PROFILER.into());
            container.insert("resources".to_owned(), resources);
        }
        None => containers.push(json!({ "name": PROFILER, "resources": resources })),
    }
    put(spec, CONTAINERS, Value::Array(containers));
}

/// The index of the profiler. The first conversion wrote it without a name.
fn profiler(containers: &[Value]) -> Option<usize> {
    let unnamed = |container: &Value| match container.get("name") {
        None => container.is_object(),
        Some(name) => name.as_str() == Some(""),
    };
    let named = |container: &Value| text(container.get("name")) == Some(PROFILER);
    containers.iter().position(named).or_else(|| containers.iter().position(unnamed))
}

/// Adds an empty list of containers, which the schema requires in a pod with other fields.
pub fn complete(spec: &mut Object) {
    if !at(spec, CONTAINERS).is_some_and(Value::is_array) {
        put(spec, CONTAINERS, json!([]));
    }
}

/// Removes a list that `complete` would add again.
pub fn forget_completion(spec: &mut Object) {
    if at(spec, CONTAINERS) == Some(&json!([])) {
        remove(spec, CONTAINERS);
    }
}
