//! The answer of a family's rules on an object that a user wants to store.

use steersman_reconcile::{FieldError, Message};

/// Without errors, the object is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    pub errors: Vec<FieldError>,
    /// Whole texts, each with its field.
    pub warnings: Vec<Message>,
}
