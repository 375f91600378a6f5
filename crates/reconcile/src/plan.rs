//! The plan for one object, the writes, events and findings that a reconcile results in, and its outcome.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::{Finding, ObjectId};

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

/// An event on the user's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub type_: EventType,
    /// CamelCase, as the Events API expects it.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Event {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason, message: message.into() }
    }
}

/// The result of carrying out a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of objects written or deleted.
    pub written: usize,
    /// The first failure; the writes after it were not tried.
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {message}")]
pub struct Failure {
    pub object: ObjectId,
    /// The answer of the API server, or why it could not be asked.
    pub message: String,
    /// A retry may help; an object that the API server rejected stays rejected.
    pub transient: bool,
    /// Another writer changed the object first. The next reconcile sees the change, so there is nothing to report.
    pub conflict: bool,
}
