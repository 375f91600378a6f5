//! Tests of the local cluster: simulated pods and nodes, users, volumes, Prometheus, and the bare flavour.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bare;
mod jobs;
mod nodes;
mod pods;
mod prometheus;
mod support;
mod users;
mod volumes;
