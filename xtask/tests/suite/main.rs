//! The developer commands: their error messages, and that none of their processes survives.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

// The test runner starts tests in the order of their names; this module takes the longest and is first.
mod demo;
mod docs;
mod error_messages;
#[path = "../../src/layers.rs"]
mod graph;
mod image;
mod layers;
mod limits;
mod process_cleanup;
mod purity;
mod python;
mod real_node;
mod requirements;
mod screen;
mod support;
mod watches;
