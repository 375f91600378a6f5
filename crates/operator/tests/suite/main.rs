//! The binary and its library from outside: alone, and on the local cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod apply;
mod certs;
mod cli;
mod client;
mod core_schema;
mod crds;
mod leader;
mod moving;
mod preflight;
mod process;
mod rbac;
mod schemas;
mod slice;
mod webhooks;
