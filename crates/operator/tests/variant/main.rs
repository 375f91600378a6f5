//! Fleets of VariantAutoscalings as those who run them see them: one cluster with its controllers and simulated nodes, one
//! Prometheus, one operator with the rights that are shipped, and a namespace for each test. What pods measure is
//! simulated; that they are there, how they are scraped and who decides is real.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod excluded;
mod follower;
mod kinds;
mod lasting;
mod loads;
mod metrics;
mod operator;
mod player;
mod scene;
#[path = "../stage/mod.rs"]
mod stage;
mod targets;
mod world;
mod zero;
