//! Items that other writers added to lists that the server merges, such as the ports of a Service. They are kept, as all
//! additions of others, until the server rejects a child because of them: for example after someone changed the number of a
//! port, so that the port we want is a second one with the same name. Then the items of the lists that the rejection names
//! become ours, and the next apply removes them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::adopt::join;
use super::diff::{keys_of, matches};
use super::ownership::is_ours;

/// The JSON patch that makes them ours, if the object is still as seen. `rejected` are the fields that the server rejects.
/// None: no list that it names has such items.
pub(super) fn patch(manager: &str, wanted: &DynamicObject, live: &DynamicObject, rejected: &[String]) -> Option<Value> {
    let lists: BTreeSet<String> = rejected.iter().map(|field| list_of(field)).collect();
    let wanted_spec = wanted.data.get("spec")?;
    let mut entries = live.managed_fields().to_vec();
    let ours = entries.iter().position(|entry| is_ours(entry, manager))?;
    let version = entries[ours].api_version.clone();
    let mut foreign = Map::new();
    for (place, entry) in entries.iter_mut().enumerate() {
        let whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
        if let Some(fields) = spec_of(entry).filter(|_| place != ours && whole)
            && version == entry.api_version
        {
            let (kept, more) = split(fields, wanted_spec, "spec", &lists);
            join(&mut foreign, &more);
            set_spec(entry, kept);
        }
    }
    if foreign.is_empty() {
        return None;
    }
    let mut fields = spec_of(&entries[ours]).cloned().unwrap_or_default();
    join(&mut fields, &foreign);
    set_spec(&mut entries[ours], fields);
    entries.retain(|entry| !matches!(&entry.fields_v1, Some(FieldsV1(Value::Object(fields))) if fields.is_empty()));
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version },
        { "op": "replace", "path": "/metadata/managedFields", "value": entries },
    ]))
}

fn spec_of(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref()?.0.get("f:spec")?.as_object()
}

fn set_spec(entry: &mut ManagedFieldsEntry, fields: Map<String, Value>) {
    if let Some(FieldsV1(Value::Object(all))) = &mut entry.fields_v1 {
        all.remove("f:spec");
        if !fields.is_empty() {
            all.insert("f:spec".to_owned(), Value::Object(fields));
        }
    }
}

/// The list that a rejected field is in, without indexes: `spec.ports` of `spec.ports[1].name`. A field that is in no list
/// may be one itself.
fn list_of(field: &str) -> String {
    let inside = field.rfind('[').map_or(field, |last| &field[..last]);
    let mut list = String::new();
    let mut depth = 0;
    for letter in inside.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            letter if depth == 0 => list.push(letter),
            _ => {}
        }
    }
    list
}

/// Splits an entry's fields into those that stay with their manager, and items of `lists` that we want and that are not
/// among our items. `path` is that of the fields, without indexes.
fn split(
    fields: &Map<String, Value>,
    wanted: &Value,
    path: &str,
    lists: &BTreeSet<String>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut kept, mut foreign) = (Map::new(), Map::new());
    for (step, below) in fields {
        let below_path = step.strip_prefix("f:").map_or_else(|| path.to_owned(), |name| format!("{path}.{name}"));
        let inside = match (step.strip_prefix("f:"), keys_of(step), wanted) {
            (Some(name), _, _) => wanted.get(name),
            (None, Some(keys), Value::Array(items)) => {
                let found = items.iter().find(|item| matches(&keys, item));
                if found.is_none() && lists.contains(path) {
                    foreign.insert(step.clone(), below.clone());
                    continue;
                }
                found
            }
            _ => None,
        };
        match (inside, below.as_object()) {
            (Some(inside), Some(below)) if !below.is_empty() => {
                let (stays, more) = split(below, inside, &below_path, lists);
                if !stays.is_empty() {
                    kept.insert(step.clone(), Value::Object(stays));
                }
                if !more.is_empty() {
                    foreign.insert(step.clone(), Value::Object(more));
                }
            }
            _ => {
                kept.insert(step.clone(), below.clone());
            }
        }
    }
    (kept, foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "steersman/llsd";

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({ "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields })
    }

    fn service(fields: Vec<Value>) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "stack-service", "resourceVersion": "7", "managedFields": fields },
            "spec": { "type": "ClusterIP", "ports": [{ "name": "http", "port": 8321, "protocol": "TCP" }] },
        }))
        .unwrap()
    }

    const WANTED: &str = r#"k:{"port":8321,"protocol":"TCP"}"#;
    const STRAY: &str = r#"k:{"port":9999,"protocol":"TCP"}"#;

    #[test]
    fn only_foreign_list_items_become_ours() {
        let ours = entry(OURS, "Apply", json!({ "f:spec": { "f:type": {} } }));
        let theirs = entry(
            "kubectl-edit",
            "Update",
            json!({ "f:metadata": { "f:labels": { "f:mine": {} } }, "f:spec": { "f:sessionAffinity": {},
                "f:ports": { WANTED: { "f:appProtocol": {} }, STRAY: { ".": {}, "f:port": {} } } } }),
        );
        let live = service(vec![ours, theirs]);
        let patch = patch(OURS, &live, &live, &["spec.ports[1].name".to_owned()]).unwrap();
        assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
        let ours = json!({ "f:spec": { "f:type": {}, "f:ports": { STRAY: { ".": {}, "f:port": {} } } } });
        let theirs = json!({ "f:metadata": { "f:labels": { "f:mine": {} } }, "f:spec": { "f:sessionAffinity": {},
            "f:ports": { WANTED: { "f:appProtocol": {} } } } });
        assert_eq!(patch[1]["value"], json!([entry(OURS, "Apply", ours), entry("kubectl-edit", "Update", theirs)]));
    }

    #[test]
    fn no_foreign_items_no_patch() {
        let ours = entry(OURS, "Apply", json!({ "f:spec": { "f:ports": { WANTED: { "f:port": {} } } } }));
        let theirs = entry("kubectl-edit", "Update", json!({ "f:spec": { "f:externalName": {} } }));
        let live = service(vec![ours, theirs.clone()]);
        let rejected = ["spec.ports".to_owned()];
        assert_eq!(patch(OURS, &live, &live, &rejected), None);
        let never_ours = service(vec![theirs]);
        assert_eq!(patch(OURS, &never_ours, &never_ours, &rejected), None);
    }

    #[test]
    fn lists_outside_the_rejection_stay_foreign() {
        let ours = entry(OURS, "Apply", json!({ "f:spec": { "f:type": {} } }));
        let theirs = entry("mesh", "Update", json!({ "f:spec": { "f:ports": { STRAY: { ".": {}, "f:port": {} } } } }));
        let live = service(vec![ours, theirs]);
        for rejected in ["spec.clusterIP", "spec.portsX[0].name", "spec", "metadata.labels", ""] {
            assert_eq!(patch(OURS, &live, &live, &[rejected.to_owned()]), None, "{rejected}");
        }
        assert_eq!(patch(OURS, &live, &live, &[]), None);
        for rejected in ["spec.ports", "spec.ports[1]", "spec.ports[0].nodePort"] {
            assert!(patch(OURS, &live, &live, &[rejected.to_owned()]).is_some(), "{rejected}");
        }
    }

    #[test]
    fn rejected_field_names_its_innermost_list() {
        for (field, list) in [
            ("spec.template.spec.containers[0].env[3].name", "spec.template.spec.containers.env"),
            ("spec.template.spec.containers[0].image", "spec.template.spec.containers"),
            ("spec.ports", "spec.ports"),
            ("metadata.annotations[a.b/c]", "metadata.annotations"),
        ] {
            assert_eq!(list_of(field), list);
        }
    }
}
