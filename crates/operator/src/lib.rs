//! The operator's parts, as a library so that tests and developer commands can call them.
//! Comes in: a cluster, named by flags; goes out: what was read from it, and the rights that reading needs.

pub mod cli;
pub mod client;
pub mod crds;
pub mod leader;
pub mod observe;
pub mod preflight;
mod proxy;
pub mod rbac;
