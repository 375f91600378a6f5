//! Builds the objects that are written for a request.

pub mod account;
pub mod graph;
pub mod profile_job;
