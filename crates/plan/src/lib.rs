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
mod review;
pub mod variant;

pub use field_names::field_names;
pub use review::Review;
