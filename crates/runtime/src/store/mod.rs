//! Objects of the API server that watches keep up to date.

pub mod cache;
pub mod references;
mod scope;
pub mod served;
pub mod watching;

pub use scope::Scope;
