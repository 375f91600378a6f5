//! The vocabulary of a reconcile: what a plan contains, what became of it, and how both name objects. The decisions in
//! `steersman-plan` and the machinery in `steersman-runtime` share these types and know nothing of each other.

mod decode;
mod field_error;
mod finding;
mod lookup;
mod message;
mod name;
mod path;
mod plan;
pub mod quantity;

/// A label on a child adopted from an earlier operator: its pod template stays as that operator made it while this hash of
/// the inputs is the same. A label, because an annotation of a Deployment starts a new generation.
pub const ADOPTED_LABEL: &str = "steersman.dev/adopted";

pub use decode::{DecodeError, decode};
pub use field_error::{Cause, FieldError};
pub use finding::{Finding, Severity, join_sentences, sentences};
pub use lookup::Lookup;
pub use message::Message;
pub use name::{NamespacedName, ObjectId};
pub use path::{FieldNames, FieldPath, MovedField, Segment};
pub use plan::{Event, EventType, Failure, Outcome, Plan, Requeue, Write, WriteOp};
