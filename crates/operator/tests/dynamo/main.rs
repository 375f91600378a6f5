//! The lives of DynamoGraphDeploymentRequests as users see them: one cluster with its controllers, one operator with the
//! rights that are shipped, and a namespace for each test. Pods and graphs are played; the relay is the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod edits;
mod failures;
#[path = "../stage/judged.rs"]
mod judged;
mod leaving;
mod lives;
mod profiler;
mod scene;
#[path = "../stage/mod.rs"]
mod stage;
mod versions;
mod waiting;
mod world;
