//! Pure decisions: from a snapshot of plain data, which carries its own time, to a plan and a status. The same input
//! yields the same output.

mod content_hash;
pub mod dynamo;
pub mod exposition;
mod field_names;
pub mod llamastack;
pub mod oci;
pub mod pods;
pub mod preflight;
pub mod variant;
pub mod yaml;

pub use field_names::field_names;

use steersman_reconcile::{FieldError, Message};

/// The result of validating an object for admission. An object without errors is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    pub errors: Vec<FieldError>,
    /// Complete texts, each with its field.
    pub warnings: Vec<Message>,
}
