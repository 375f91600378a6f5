//! Vocabulary that every family shares.
//! Comes in: pieces of Kubernetes metadata; goes out: the same pieces, checked, compared or merged.

pub mod conditions;
pub mod core_schema;
mod sensitive;
mod server_version;

pub use sensitive::Sensitive;
pub use server_version::{ServerVersion, UnreadableVersion};
