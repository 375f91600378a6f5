//! Types and schemas that all APIs use.

pub mod conditions;
pub mod schema;
mod sensitive;
mod server_version;

pub use sensitive::Sensitive;
pub use server_version::{ServerVersion, UnreadableVersion};
