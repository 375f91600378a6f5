//! The plan for one object: the writes, events and findings that a reconcile results in.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::{Event, Finding};

/// Without writes, events and findings, the object is as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan<R> {
    /// Carried out in order: a later write may rely on an earlier one. A write that changes nothing is not sent.
    pub writes: Vec<WriteOp>,
    /// Kinds of which the object has no other children than those in `writes`: the rest that it controls is deleted. Empty
    /// while a finding blocks, and never volume claims.
    pub prune: Vec<GroupVersionKind>,
    pub events: Vec<Event>,
    pub findings: Vec<Finding>,
    pub requeue: Requeue,
    /// Values resolved while planning. The status is rendered from them, so that nothing is resolved twice.
    pub resolution: R,
}

impl<R> Plan<R> {
    /// A plan that changes nothing.
    pub fn empty(resolution: R) -> Self {
        let (writes, prune, events, findings) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { writes, prune, events, findings, requeue: Requeue::AwaitChange, resolution }
    }
}

/// A write to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOp {
    /// An object that the user's object controls. It is garbage-collected with it.
    Owned(Write),
    /// An object that the user's object must not own: it is shared, or outlives its author. Its labels identify it.
    Unowned(Write),
    /// A merge patch of the user's object itself, against the version that was observed.
    PatchOwner(Value),
    /// Deletes an object that blocks a write, by its observed UID. With a version, only if it has not changed since.
    Delete { kind: GroupVersionKind, name: String, uid: String, version: Option<String> },
}

impl WriteOp {
    /// The object of an apply or a create.
    pub fn object(&self) -> Option<&DynamicObject> {
        match self {
            Self::Owned(write) | Self::Unowned(write) => Some(write.object()),
            Self::PatchOwner(_) | Self::Delete { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Forced server-side apply, if the live object differs.
    Apply(DynamicObject),
    /// Create if absent; an existing object is left alone, as volume claims must be.
    CreateOnce(DynamicObject),
}

impl Write {
    pub fn object(&self) -> &DynamicObject {
        match self {
            Self::Apply(object) | Self::CreateOnce(object) => object,
        }
    }
}

/// When to reconcile again without a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requeue {
    /// A watch covers everything that matters.
    #[default]
    AwaitChange,
    After(Duration),
}
