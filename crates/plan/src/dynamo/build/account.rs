//! The account of profiling Jobs, and its binding.

use serde_json::{Value, json};

use crate::dynamo::names;
use crate::dynamo::snapshot::ObservedObject;

/// All requests of the namespace share the account, so that none owns it.
pub fn account(object: &ObservedObject) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": names::SERVICE_ACCOUNT,
            "namespace": object.namespace,
            "labels": names::account_labels(),
        },
    })
}

pub fn binding(object: &ObservedObject, cluster_role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": names::ROLE_BINDING,
            "namespace": object.namespace,
            "labels": names::account_labels(),
        },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role },
        "subjects": [
            { "kind": "ServiceAccount", "name": names::SERVICE_ACCOUNT, "namespace": object.namespace },
        ],
    })
}
