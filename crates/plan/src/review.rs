//! The result of validating an object for admission.

use steersman_reconcile::{FieldError, Message};

/// An object without errors is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    pub errors: Vec<FieldError>,
    /// Complete texts, each with its field.
    pub warnings: Vec<Message>,
}
