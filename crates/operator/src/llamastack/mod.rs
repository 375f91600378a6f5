//! LlamaStackDistribution: what its controller reads, and its part of a reconcile.

mod controller;
pub mod observe;
pub mod oci;

pub use controller::{LlamaStack, own_rules, rules};
