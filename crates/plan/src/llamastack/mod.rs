//! The decision for one `LlamaStackDistribution` of version v1alpha1: a server, its storage and its address.
//! Comes in: the object and its live children, as plain data; goes out: the children as they should be, findings, and the
//! object's status.

mod adoption;
pub mod config;
pub mod names;
mod plan;
mod report;
mod seen;
pub mod validate;
mod workload;

pub use plan::plan;
pub use report::report;
pub use seen::{ClaimSeen, DeploymentSeen, ObjectSeen, ReplicasOwner, Seen, ServerSeen, Settings};
