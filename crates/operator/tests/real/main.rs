//! User scenarios on a cluster with a real node: the operator, its users' servers and Dynamo's profiler run in containers. Only
//! the engine of models is simulated, by Dynamo's engine simulator.
//!
//! Run by `cargo xtask test --suite real`, which builds the programs and images. The tests share the cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod env;
mod load;
mod operator;
mod requests;
mod running_server;
mod servers;
mod variants;
