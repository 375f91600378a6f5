//! The developer commands as a person meets them: what they say when something is missing, and that nothing survives them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

// It takes the longest, and the runner begins in the order of names.
mod alive;
mod endings;
#[path = "../../src/layers.rs"]
mod graph;
mod layers;
mod purity;
mod python;
mod requirements;
mod sentences;
mod support;
