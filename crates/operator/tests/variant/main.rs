//! User scenarios of VariantAutoscalings. All tests share one cluster with its controllers and simulated nodes, one
//! Prometheus and one operator with the RBAC rules that are shipped; each test has its own namespace. The metrics of pods
//! are simulated; pods, scrapes and decisions are real.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod env;
mod excluded;
mod fake_hpa;
mod load;
mod load_generator;
mod metrics;
mod operator;
mod operator_restart;
mod scale_to_zero;
#[path = "../shared_env/mod.rs"]
mod shared_env;
mod target_kinds;
mod targets;
mod test_namespace;
