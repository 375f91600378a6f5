//! The local cluster itself: what it plays, what it refuses, and what is absent from the bare flavour.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bare;
mod jobs;
mod nodes;
mod pods;
mod prometheus;
mod support;
mod users;
mod volumes;
