//! Items that other writers added to lists that the server merges, such as the ports of a Service. They are kept, as all
//! additions of others, until the server rejects a child because of them: for example after someone changed the number of a
//! port, so that the port we want is a second one with the same name. Then they become ours, and the next apply removes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::adopt::join;
use super::diff::{keys_of, matches};
use super::ownership::is_ours;

/// The JSON patch that makes them ours, if the object is still as seen. None: there are none.
pub(super) fn patch(manager: &str, wanted: &DynamicObject, live: &DynamicObject) -> Option<Value> {
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
            let (kept, more) = split(fields, wanted_spec);
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

/// Splits an entry's fields into those that stay with their manager, and items of lists we want that are not among our
/// items.
fn split(fields: &Map<String, Value>, wanted: &Value) -> (Map<String, Value>, Map<String, Value>) {
    let (mut kept, mut foreign) = (Map::new(), Map::new());
    for (step, below) in fields {
        let inside = match (step.strip_prefix("f:"), keys_of(step), wanted) {
            (Some(name), _, _) => wanted.get(name),
            (None, Some(keys), Value::Array(items)) => {
                let found = items.iter().find(|item| matches(&keys, item));
                if found.is_none() {
                    foreign.insert(step.clone(), below.clone());
                    continue;
                }
                found
            }
            _ => None,
        };
        match (inside, below.as_object()) {
            (Some(inside), Some(below)) if !below.is_empty() => {
                let (stays, more) = split(below, inside);
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
        let patch = patch(OURS, &live, &live).unwrap();
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
        assert_eq!(patch(OURS, &live, &live), None);
        let never_ours = service(vec![theirs]);
        assert_eq!(patch(OURS, &never_ours, &never_ours), None);
    }
}
