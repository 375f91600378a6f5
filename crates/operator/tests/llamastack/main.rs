//! The stories, edge cases and scenarios of the generated server configuration, as users see them: one cluster with its
//! controllers, one operator with the rights that are shipped, and a namespace for each test. Pods are played.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod edges;
mod examples;
#[path = "../stage/judged.rs"]
mod judged;
mod lasting;
mod scenarios;
mod scene;
#[path = "../stage/mod.rs"]
mod stage;
mod stories;
mod world;
