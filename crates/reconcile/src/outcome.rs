//! The result of carrying out a plan.

use std::fmt;

use crate::ObjectId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of objects written or deleted.
    pub written: usize,
    /// The first failure; the writes after it were not tried.
    pub failure: Option<Failure>,
}

/// A write that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub object: ObjectId,
    /// The answer of the API server, or why it could not be asked.
    pub message: String,
    /// A retry may help; an object that the API server rejected stays rejected.
    pub transient: bool,
    /// Another writer changed the object first. The next reconcile sees the change, so there is nothing to report.
    pub conflict: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.object, self.message)
    }
}
