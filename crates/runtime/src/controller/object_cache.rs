//! Limits the memory of the cached objects that a controller reconciles. An object beyond the limits is cached without its
//! content, which is then read from the API server for each of its reconciles.

use std::collections::{HashMap, HashSet};

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::watcher::Event;
use serde_json::Value;
use steersman_reconcile::NamespacedName;

use crate::client::{CallError, Server};
use crate::store::{MAX_BYTES, MAX_NAMESPACE_BYTES};

/// Largest object that is cached with its content.
const MAX_OBJECT_BYTES: usize = 256 << 10;

/// Memory of a JSON value besides the texts in it.
const VALUE_BYTES: usize = size_of::<Value>();
/// Memory of an entry of a map besides its key and value.
const ENTRY_BYTES: usize = size_of::<String>() + 2 * size_of::<usize>();

/// Counts the memory of the cached objects.
#[derive(Default)]
pub struct CacheBudget {
    by_object: HashMap<NamespacedName, usize>,
    by_namespace: HashMap<String, usize>,
    total: usize,
    /// The objects of a list in progress.
    listed: Option<HashSet<NamespacedName>>,
}

impl CacheBudget {
    /// Counts the object of an event, and drops its content if there is no room for it.
    pub fn receive(&mut self, mut event: Event<DynamicObject>) -> Event<DynamicObject> {
        match &mut event {
            Event::Init => self.listed = Some(HashSet::new()),
            Event::InitApply(object) | Event::Apply(object) => {
                trim_managed_fields(object);
                let name = name_of(object);
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                self.add(name, object);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<_> = self.by_object.keys().filter(|name| !listed.contains(name)).cloned().collect();
                gone.iter().for_each(|name| self.remove(name));
            }
            Event::Delete(object) => {
                trim_managed_fields(object);
                self.remove(&name_of(object));
            }
        }
        event
    }

    fn add(&mut self, name: NamespacedName, object: &mut DynamicObject) {
        self.remove(&name);
        let in_namespace = self.by_namespace.get(&name.namespace).copied().unwrap_or_default();
        let has_room = |bytes: usize| {
            bytes <= MAX_OBJECT_BYTES
                && in_namespace.saturating_add(bytes) <= MAX_NAMESPACE_BYTES
                && self.total.saturating_add(bytes) <= MAX_BYTES
        };
        if !has_room(bytes_of(object)) {
            object.data = Value::Null;
            object.metadata.annotations = None;
        }
        let bytes = bytes_of(object);
        self.total += bytes;
        *self.by_namespace.entry(name.namespace.clone()).or_default() += bytes;
        self.by_object.insert(name, bytes);
    }

    fn remove(&mut self, name: &NamespacedName) {
        let Some(bytes) = self.by_object.remove(name) else { return };
        self.total -= bytes;
        if let Some(left) = self.by_namespace.get_mut(&name.namespace) {
            *left -= bytes;
            if *left == 0 {
                self.by_namespace.remove(&name.namespace);
            }
        }
    }
}

/// Whether the content was dropped.
pub fn lacks_content(object: &DynamicObject) -> bool {
    object.data.is_null()
}

/// Reads an object whose content was dropped. None: it does not exist any more.
pub async fn read(
    server: &Server,
    resource: &ApiResource,
    name: &NamespacedName,
) -> Result<Option<DynamicObject>, CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &name.namespace, resource);
    let mut read = server.call(api.get_opt(&name.name)).await?;
    read.iter_mut().for_each(trim_managed_fields);
    Ok(read)
}

fn name_of(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Keeps who wrote the spec, when and in which API version. The lists of fields are half of the size of an object and not
/// used.
fn trim_managed_fields(object: &mut DynamicObject) {
    let Some(entries) = &mut object.metadata.managed_fields else { return };
    entries.retain(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some()));
    entries.iter_mut().for_each(|entry| entry.fields_v1 = None);
}

fn bytes_of(object: &DynamicObject) -> usize {
    let maps = object.metadata.annotations.iter().chain(&object.metadata.labels);
    let metadata: usize = maps.flatten().map(|(key, value)| 2 * ENTRY_BYTES + key.len() + value.len()).sum();
    metadata + bytes_of_value(&object.data)
}

/// The memory of a tree of values, which is many times its text if the values are small.
fn bytes_of_value(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(bytes_of_value).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| ENTRY_BYTES + key.len() + bytes_of_value(value)).sum()
        }
    };
    VALUE_BYTES + content
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, spec: Value) -> DynamicObject {
        let metadata = json!({ "namespace": namespace, "name": name, "annotations": { "a": "b" } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    /// Whether the object is cached with its content.
    fn is_whole(budget: &mut CacheBudget, object: DynamicObject) -> bool {
        let Event::Apply(cached) = budget.receive(Event::Apply(object)) else { panic!() };
        assert_eq!(lacks_content(&cached), cached.metadata.annotations.is_none());
        !lacks_content(&cached)
    }

    #[test]
    fn large_object_is_cached_without_content() {
        let mut budget = CacheBudget::default();
        assert!(is_whole(&mut budget, object("a", "text", json!("x".repeat(MAX_OBJECT_BYTES - 1000)))));
        assert!(!is_whole(&mut budget, object("a", "text", json!("x".repeat(MAX_OBJECT_BYTES)))));
        // 20 kB of text, and several hundred in memory.
        assert!(!is_whole(&mut budget, object("a", "numbers", json!(vec![1; 10_000]))));
        assert!(is_whole(&mut budget, object("a", "text", json!("small again"))));
    }

    #[test]
    fn full_namespace_leaves_room_for_others() {
        let mut budget = CacheBudget::default();
        let spec = json!("x".repeat(100_000));
        let mut apply = |namespace: &str, number: usize| {
            is_whole(&mut budget, object(namespace, &number.to_string(), spec.clone()))
        };
        let whole = (0..1_000).filter(|number| apply("attacker", *number)).count();
        assert!((70..90).contains(&whole), "{whole}");
        assert!(apply("victim", 0));
        // A change of a cached object does not need its room twice.
        assert!(apply("attacker", 0));
        assert!(budget.by_namespace["attacker"] <= MAX_NAMESPACE_BYTES);
    }

    #[test]
    fn objects_that_are_gone_leave_room() {
        let mut budget = CacheBudget::default();
        let spec = json!("x".repeat(100_000));
        for number in 0..100 {
            budget.receive(Event::Apply(object("a", &number.to_string(), spec.clone())));
        }
        assert!(!is_whole(&mut budget, object("a", "new", spec.clone())));
        budget.receive(Event::Delete(object("a", "0", spec.clone())));
        assert!(is_whole(&mut budget, object("a", "new", spec.clone())));
        for event in [Event::Init, Event::InitApply(object("a", "kept", json!({}))), Event::InitDone] {
            budget.receive(event);
        }
        assert_eq!(budget.by_object.len(), 1);
        assert_eq!(budget.total, budget.by_namespace["a"]);
        assert!(budget.total < 1000, "{}", budget.total);
        budget.receive(Event::Delete(object("a", "kept", json!({}))));
        assert!(budget.total == 0 && budget.by_namespace.is_empty());
    }

    #[test]
    fn trimmed_object_keeps_writers_of_its_spec() {
        let entry = |version: &str, fields: Value| json!({ "manager": "kubectl", "apiVersion": version, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields });
        let mut object: DynamicObject = serde_json::from_value(json!({ "metadata": { "name": "a", "managedFields": [
            entry("g/v1", json!({ "f:spec": { "f:a": {} } })), entry("g/v2", json!({ "f:status": {} })) ] } }))
        .unwrap();
        trim_managed_fields(&mut object);
        let kept = object.metadata.managed_fields.unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].api_version.as_deref(), &kept[0].fields_v1), (Some("g/v1"), &None));
    }
}
