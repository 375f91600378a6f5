//! The words that every family's plan is made of.
//! Comes in: nothing; goes out: the types with which `plan` says what shall be written, swept, told and looked at again.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};

use crate::Finding;

/// A label on a child taken over from an earlier operator: its pods are kept as that operator made them while this hash
/// of what asks for them is the same. Not an annotation, which would count as a new generation of a Deployment.
pub const ADOPTED: &str = "steersman.dev/adopted";

/// What shall be done about one object. Empty writes, notes and findings: all is as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order: a later write may rely on an earlier one.
    pub writes: Vec<Write>,
    /// Kinds of which the object has no other children than those in `writes`: what else it controls is removed. Empty
    /// while something blocks, and never volume claims.
    pub sweep: Vec<GroupVersionKind>,
    /// Events worth telling.
    pub notes: Vec<Note>,
    pub findings: Vec<Finding>,
    pub next: Next,
}

/// One write to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// By forced server-side apply, where the live object differs.
    Apply(DynamicObject),
    /// Created where it is absent and left alone where it is there, as volume claims are.
    CreateOnce(DynamicObject),
}

impl Write {
    pub fn object(&self) -> &DynamicObject {
        match self {
            Self::Apply(object) | Self::CreateOnce(object) => object,
        }
    }
}

/// An event on the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub kind: NoteKind,
    /// One word in CamelCase.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    Normal,
    Warning,
}

/// When to look again without being told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// A watch will tell.
    #[default]
    OnChange,
    Within(Duration),
}

/// What came of the writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many objects were written or removed.
    pub written: usize,
    /// The first failure; nothing after it was tried.
    pub failure: Option<Failure>,
}

/// A write that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which object, as `Deployment team-a/starter`.
    pub object: String,
    /// What the API server said, or why it could not be asked.
    pub message: String,
    /// Asking again may help; a refused object does not get better by itself.
    pub transient: bool,
    /// Somebody else was quicker, and the next pass sees it: nothing to tell anyone.
    pub conflict: bool,
}

/// Whether an object may be stored, by the rules of its family. No errors: accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<P> {
    pub errors: Vec<P>,
    pub warnings: Vec<String>,
}

impl<P> Default for Verdict<P> {
    fn default() -> Self {
        Self { errors: Vec::new(), warnings: Vec::new() }
    }
}
