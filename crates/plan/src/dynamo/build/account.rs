//! The account of profiling Jobs, and its bindings. All requests of a namespace share them: each is one of their owners, so
//! that they are deleted with the last one.

use serde_json::{Value, json};
use steersman_api::Family;

use crate::dynamo::names;
use crate::dynamo::snapshot::{ObservedObject, ObservedOwners};

pub fn account(object: &ObservedObject, known: Option<&ObservedOwners>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(object, names::SERVICE_ACCOUNT, known),
    })
}

pub fn binding(object: &ObservedObject, name: &str, cluster_role: &str, known: Option<&ObservedOwners>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(object, name, known),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role },
        "subjects": [
            { "kind": "ServiceAccount", "name": names::SERVICE_ACCOUNT, "namespace": object.namespace },
        ],
    })
}

/// Whether the request is one of the owners.
pub fn is_owner(object: &ObservedObject, known: &ObservedOwners) -> bool {
    known.references.iter().any(|reference| reference["uid"] == object.uid.as_str())
}

/// The version makes the write a conflict if another request has become an owner meanwhile.
fn metadata(object: &ObservedObject, name: &str, known: Option<&ObservedOwners>) -> Value {
    let known = known.cloned().unwrap_or_default();
    let new = (!is_owner(object, &known)).then(|| owner(object));
    let owners: Vec<Value> = known.references.into_iter().chain(new).collect();
    let mut metadata = json!({
        "name": name,
        "namespace": object.namespace,
        "labels": names::account_labels(),
        "ownerReferences": owners,
    });
    if let Some(version) = known.resource_version {
        metadata["resourceVersion"] = version.into();
    }
    metadata
}

fn owner(object: &ObservedObject) -> Value {
    json!({
        "apiVersion": format!("{}/{}", Family::Dgdr.group(), Family::Dgdr.storage_version()),
        "kind": Family::Dgdr.kind(),
        "name": object.name,
        "uid": object.uid,
    })
}
