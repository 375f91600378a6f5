//! The observed children of an owner, with their `managedFields`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{DynamicObject, TypeMeta};
use kube::core::GroupVersionKind;

/// The observed children of one owner, by kind and name.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The version in which the owner itself was seen.
    owner_version: Option<String>,
    objects: BTreeMap<(String, String), BTreeMap<String, Arc<DynamicObject>>>,
}

impl Live {
    /// Lists leave the kind out of their items, so it is named here.
    pub fn insert(&mut self, kind: &GroupVersionKind, object: impl Into<Arc<DynamicObject>>) {
        let mut object = object.into();
        if object.types.is_none() {
            let types = TypeMeta { api_version: kind.api_version(), kind: kind.kind.clone() };
            Arc::make_mut(&mut object).types = Some(types);
        }
        self.objects.entry(key(kind)).or_default().insert(object.name_any(), object);
    }

    /// Sets the version in which the owner was observed.
    pub fn of_owner(self, version: Option<String>) -> Self {
        Self { owner_version: version, ..self }
    }

    pub fn owner_version(&self) -> Option<&str> {
        self.owner_version.as_deref()
    }

    pub fn get(&self, kind: &GroupVersionKind, name: &str) -> Option<&DynamicObject> {
        self.objects.get(&key(kind))?.get(name).map(Arc::as_ref)
    }

    /// All of a kind, by name.
    pub fn of(&self, kind: &GroupVersionKind) -> impl Iterator<Item = &DynamicObject> {
        self.objects.get(&key(kind)).into_iter().flat_map(BTreeMap::values).map(Arc::as_ref)
    }
}

/// The key leaves out the version: an object has the same name in every version of its kind.
fn key(kind: &GroupVersionKind) -> (String, String) {
    (kind.group.clone(), kind.kind.clone())
}
