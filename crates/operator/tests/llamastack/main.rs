//! User stories, edge cases and scenarios of LlamaStackDistributions. All tests share one cluster with its controllers and
//! one operator with the RBAC rules that are shipped; each test has its own namespace. Pods are simulated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod edge_cases;
mod env;
mod examples;
mod lifecycle;
mod scenarios;
#[path = "../shared_env/mod.rs"]
mod shared_env;
#[path = "../shared_env/namespace.rs"]
mod shared_namespace;
mod stories;
mod test_namespace;
