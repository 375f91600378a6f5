//! A child in the cache: the fields that are read often, and the object as JSON text. A parsed tree takes several times
//! the memory, and reconciles that need the object are rare.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;

use super::Watched;
use crate::apply::controller;

#[derive(Clone, Debug)]
pub struct Kept {
    pub uid: Option<String>,
    /// The object that controls it.
    pub owner: Option<Owner>,
    /// The name in the label by which such children name their object.
    pub named: Option<String>,
    /// Versions of the API server's objects are numbers that grow. None: it is none, and the object counts as new.
    version: Option<u64>,
    text: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: String,
    pub kind: String,
    pub name: String,
}

impl Kept {
    /// `None` if the object cannot be serialized, which does not happen for an object that came as JSON.
    pub fn of(object: &DynamicObject, watched: &Watched) -> Option<Self> {
        let owner = controller(object).map(|reference| Owner {
            uid: reference.uid.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
        });
        Some(Self {
            uid: object.uid(),
            owner,
            named: watched.naming.and_then(|naming| object.labels().get(naming.label).cloned()),
            version: object.resource_version().and_then(|version| version.parse().ok()),
            text: serde_json::to_vec(object).ok()?.into(),
        })
    }

    /// Whether the child belongs to no single object.
    pub fn is_shared(&self) -> bool {
        self.owner.is_none() && self.named.is_none()
    }

    pub fn is_older_than(&self, other: &Self) -> bool {
        matches!((self.version, other.version), (Some(one), Some(other)) if one < other)
    }

    pub fn object(&self) -> Option<DynamicObject> {
        serde_json::from_slice(&self.text).ok()
    }
}
