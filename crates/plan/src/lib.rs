//! What should be: pure decisions, from what was seen to what shall be done and said.
//! Comes in: a `Seen` of plain data that carries its own time; goes out: findings and reports, the same for the same input.

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
