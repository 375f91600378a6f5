//! The owner of the children that are written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use steersman_reconcile::ObjectId;

use super::ownership::is_legacy;

/// The object that the children belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub kind: GroupVersionKind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The earlier operator that may have created some of the children.
    pub legacy: Option<Legacy>,
}

/// An earlier operator, as its label and field managers identify it on its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Legacy {
    /// The value of `app.kubernetes.io/managed-by`.
    pub managed_by: String,
    /// Field managers of the earlier operator. Steersman takes over their fields.
    pub managers: Vec<String>,
}

impl Legacy {
    /// Whether fields of a child still belong to the earlier operator.
    pub fn is_of(&self, child: &DynamicObject) -> bool {
        child.managed_fields().iter().any(|entry| is_legacy(entry, self))
    }
}

impl Owner {
    /// Creates an owner without children of an earlier operator.
    pub fn of(kind: GroupVersionKind, object: &DynamicObject) -> Self {
        Self {
            kind,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            legacy: None,
        }
    }

    /// The owner reference of a child, so that it is deleted with its owner.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.kind.api_version(),
            kind: self.kind.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    pub fn controls(&self, child: &DynamicObject) -> bool {
        controller(child).is_some_and(|reference| reference.uid == self.uid)
    }

    /// The JSON patch that takes references to the owner off an object that shall outlive it. None: it has none, or shall
    /// have them.
    pub(super) fn release(&self, wanted: &DynamicObject, object: &DynamicObject) -> Option<Value> {
        let references = object.owner_references();
        let kept = |reference: &&OwnerReference| {
            let same =
                |wanted: &OwnerReference| wanted.uid == reference.uid && wanted.controller == reference.controller;
            reference.uid != self.uid || wanted.owner_references().iter().any(same)
        };
        let others: Vec<&OwnerReference> = references.iter().filter(kept).collect();
        (others.len() < references.len()).then(|| {
            json!([
                { "op": "test", "path": "/metadata/resourceVersion", "value": object.metadata.resource_version },
                { "op": "replace", "path": "/metadata/ownerReferences", "value": others },
            ])
        })
    }

    /// The child as it goes to the server: in our namespace and controlled by us.
    pub(super) fn complete(&self, child: &DynamicObject) -> DynamicObject {
        let mut child = self.placed(child);
        if controller(&child).is_none() {
            child.metadata.owner_references.get_or_insert_default().push(self.reference());
        }
        child
    }

    /// The object as it goes to the server without an owner reference: only the namespace is set.
    pub(super) fn placed(&self, object: &DynamicObject) -> DynamicObject {
        let mut object = object.clone();
        object.metadata.namespace.get_or_insert_with(|| self.namespace.clone());
        object
    }

    /// The owner itself.
    pub(super) fn id(&self) -> ObjectId {
        ObjectId::new(&self.kind.kind, &self.namespace, &self.name)
    }

    pub(super) fn child_id(&self, child: &DynamicObject) -> ObjectId {
        let kind = child.types.as_ref().map_or("object", |types| types.kind.as_str());
        ObjectId::new(kind, &self.namespace, child.name_any())
    }

    pub(super) fn child_id_named(&self, kind: &GroupVersionKind, name: &str) -> ObjectId {
        ObjectId::new(&kind.kind, &self.namespace, name)
    }
}

/// The controller reference of a child. The API server allows at most one.
pub fn controller(child: &impl Resource) -> Option<&OwnerReference> {
    child.owner_references().iter().find(|reference| reference.controller == Some(true))
}
