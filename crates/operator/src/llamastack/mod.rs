//! The controller of LlamaStackDistributions.

mod controller;
pub mod observe;
pub mod oci;

pub use controller::{LlamaStack, rules, secret_rules};
pub use observe::operator_config::own_rules;
