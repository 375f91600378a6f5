//! Writes the status of the user's object: one PUT, only if it differs from the stored one.

use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, PostParams, TypeMeta};
use serde_json::{Value, json};
use steersman_reconcile::Failure;

use super::is_transient;
use super::owner::Owner;
use crate::client::{CallError, Server};

/// The object as it was observed.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    pub resource_version: &'a str,
    /// The raw status. Our types would drop fields that they do not know, and such a field must cause a write that
    /// removes it.
    pub status: Option<&'a Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// The stored status is the same.
    Unchanged,
    /// The new version of the object.
    Written(String),
    /// The object has changed or gone since it was observed; nothing was written.
    Conflict,
}

/// Writes the status if it differs from the stored one. The whole status is replaced: we are its only writer.
pub async fn write_status(
    server: &Server,
    manager: &str,
    owner: &Owner,
    stored: Stored<'_>,
    status: &Value,
) -> Result<StatusWrite, Failure> {
    if same(stored.status.unwrap_or(&Value::Null), status) {
        return Ok(StatusWrite::Unchanged);
    }
    // The server takes nothing but the status from this body.
    let body = DynamicObject {
        types: Some(TypeMeta { api_version: owner.kind.api_version(), kind: owner.kind.kind.clone() }),
        metadata: ObjectMeta {
            name: Some(owner.name.clone()),
            namespace: Some(owner.namespace.clone()),
            uid: Some(owner.uid.clone()),
            resource_version: Some(stored.resource_version.to_owned()),
            ..ObjectMeta::default()
        },
        data: json!({ "status": status }),
    };
    let resource = ApiResource::from_gvk(&owner.kind);
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &owner.namespace, &resource);
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    match server.call(api.replace_status(&owner.name, &params, &body)).await {
        Ok(written) => Ok(StatusWrite::Written(written.metadata.resource_version.unwrap_or_default())),
        Err(CallError::Answered { code: 404 | 409, .. }) => Ok(StatusWrite::Conflict),
        Err(error) => {
            let message = format!("cannot write the status: {error}");
            Err(Failure { object: owner.id(), transient: is_transient(&error), message, conflict: false })
        }
    }
}

/// Equal but for `null` and nothing being the same, and for an empty status being none.
fn same(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            let names = stored.keys().chain(wanted.keys());
            let of = |map: &serde_json::Map<String, Value>, name| map.get(name).cloned().unwrap_or(Value::Null);
            names.into_iter().all(|name| same(&of(stored, name), &of(wanted, name)))
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len() && stored.iter().zip(wanted).all(|(stored, wanted)| same(stored, wanted))
        }
        (Value::Null, Value::Object(empty)) | (Value::Object(empty), Value::Null) => empty.values().all(Value::is_null),
        (Value::Number(stored), Value::Number(wanted)) => stored == wanted || stored.as_f64() == wanted.as_f64(),
        _ => stored == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_status_fields_are_equal() {
        let table = [
            (json!(null), json!({}), true),
            (json!({ "phase": "Ready" }), json!({ "phase": "Ready", "note": null }), true),
            (json!({ "phase": "Ready" }), json!({ "phase": "Failed" }), false),
            (json!({ "phase": "Ready", "old": 1 }), json!({ "phase": "Ready" }), false),
            (json!({ "load": 1 }), json!({ "load": 1.0 }), true),
            (json!({ "conditions": [{ "type": "A" }] }), json!({ "conditions": [{ "type": "A" }] }), true),
            (json!({ "conditions": [{ "type": "A" }] }), json!({ "conditions": [] }), false),
            (json!(null), json!({ "phase": "Ready" }), false),
        ];
        for (stored, wanted, expected) in table {
            assert_eq!(same(&stored, &wanted), expected, "{stored} {wanted}");
            assert_eq!(same(&wanted, &stored), expected, "{wanted} {stored}");
        }
    }
}
