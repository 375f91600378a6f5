//! Takes over the fields of an earlier operator's field managers. Otherwise a field that we drop later would stay: its earlier
//! owner would still claim it.

use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};
use steersman_reconcile::ADOPTED_LABEL;

use super::owner::{Legacy, Owner};
use super::ownership::is_legacy;
use crate::client::{CallError, Server};

/// Takes over a child in two writes, with a crash possible after each: first the label under which the plan keeps the
/// running pod template, then the fields. In the opposite order, a crash in between would leave a child that looks as
/// if it had always been ours, and the next reconcile would restart its pods.
pub(super) async fn take_over(
    server: &Server,
    manager: &str,
    owner: &Owner,
    kind: &GroupVersionKind,
    wanted: &DynamicObject,
    live: &DynamicObject,
) -> Result<DynamicObject, CallError> {
    let label = wanted.labels().get(ADOPTED_LABEL);
    let Some(label) = label.filter(|label| live.labels().get(ADOPTED_LABEL) != Some(label)) else {
        return fold(server, manager, owner, kind, live).await;
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(server.client.clone(), &owner.namespace, &ApiResource::from_gvk(kind));
    let metadata = json!({ "resourceVersion": live.metadata.resource_version, "labels": { ADOPTED_LABEL: label } });
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let labelled = server.call(api.patch(&live.name_any(), &params, &patch)).await?;
    fold(server, manager, owner, kind, &labelled).await
}

/// Moves the `managedFields` entries of the earlier operator into ours with one patch, so that the fields always have
/// an owner.
async fn fold(
    server: &Server,
    manager: &str,
    owner: &Owner,
    kind: &GroupVersionKind,
    live: &DynamicObject,
) -> Result<DynamicObject, CallError> {
    let Some(legacy) = &owner.legacy else { return Ok(live.clone()) };
    send(server, owner, kind, &live.name_any(), &patch(manager, &kind.api_version(), legacy, live)).await
}

/// Sends a JSON patch that begins with a test of the resourceVersion.
pub(super) async fn send(
    server: &Server,
    owner: &Owner,
    kind: &GroupVersionKind,
    name: &str,
    patch: &Value,
) -> Result<DynamicObject, CallError> {
    let body = patch.to_string().into_bytes();
    // kube has JSON patches behind a feature that nothing else needs.
    let resource = ApiResource::from_gvk(kind);
    let url = format!("{}/{}", DynamicObject::url_path(&resource, Some(&owner.namespace)), name);
    let request = Request::patch(url).header(header::CONTENT_TYPE, "application/json-patch+json").body(body);
    let request = request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)));
    let call = async { server.client.request::<DynamicObject>(request?).await };
    match server.call(call).await {
        // The resourceVersion test failed: another writer changed the object first. Report a conflict, so that the next
        // reconcile retries.
        Err(CallError::Answered { code: 422, reason, fields, message }) => {
            Err(CallError::Answered { code: 409, reason, fields, message })
        }
        answer => answer,
    }
}

/// The JSON patch that moves all fields of the earlier operator to `manager`, if the object is still as seen.
fn patch(manager: &str, api_version: &str, legacy: &Legacy, live: &DynamicObject) -> Value {
    let (theirs, mut entries): (Vec<_>, Vec<_>) =
        live.managed_fields().iter().cloned().partition(|entry| is_legacy(entry, legacy) || is_by(entry, manager));
    let mut fields = Map::new();
    // Fields are named as their version names them; of another version they cannot be ours.
    for entry in theirs.iter().filter(|entry| entry.api_version.as_deref() == Some(api_version)) {
        if let Some(FieldsV1(Value::Object(more))) = &entry.fields_v1 {
            join(&mut fields, more);
        }
    }
    entries.push(ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Apply".to_owned()),
        api_version: Some(api_version.to_owned()),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(Value::Object(fields))),
        time: theirs.iter().filter_map(|entry| entry.time.clone()).max(),
        subresource: None,
    });
    json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": live.metadata.resource_version },
        { "op": "replace", "path": "/metadata/managedFields", "value": entries },
    ])
}

/// Whether the entry has fields that `manager` applied, or wrote with another patch, as the label of the adoption.
fn is_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager) && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// The fields of both.
pub(super) fn join(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, below) in more {
        let here = fields.entry(name.clone()).or_insert_with(|| json!({}));
        if let (Value::Object(here), Value::Object(below)) = (here, below) {
            join(here, below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
        json!({ "manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2026-01-01T00:00:00Z" })
    }

    #[test]
    fn adoption_takes_only_fields_of_legacy_managers() {
        let legacy =
            Legacy { managed_by: "llama-stack-operator".into(), managers: vec!["manager".into(), "starter".into()] };
        let others = entry("kube-controller-manager", "Update", "apps/v1", json!({ "f:status": {} }));
        let live: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "starter", "resourceVersion": "7", "managedFields": [
                entry("manager", "Update", "apps/v1", json!({ "f:spec": { "f:replicas": {}, "f:strategy": { "f:type": {} } } })),
                entry("starter", "Apply", "apps/v1", json!({ "f:spec": { "f:replicas": {}, "f:selector": {} } })),
                entry("manager", "Update", "apps/v1beta1", json!({ "f:spec": { "f:rollbackTo": {} } })),
                others,
            ] },
        }))
        .unwrap();
        let patch = patch("steersman/llsd", "apps/v1", &legacy, &live);
        let fields = json!({ "f:spec": { "f:replicas": {}, "f:selector": {}, "f:strategy": { "f:type": {} } } });
        let ours = entry("steersman/llsd", "Apply", "apps/v1", fields);
        assert_eq!(
            patch,
            json!([
                { "op": "test", "path": "/metadata/resourceVersion", "value": "7" },
                { "op": "replace", "path": "/metadata/managedFields", "value": [others, ours] },
            ])
        );
    }
}
