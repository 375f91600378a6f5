//! User scenarios of DynamoGraphDeploymentRequests. All tests share one cluster with its controllers and one operator with
//! the RBAC rules that are shipped; each test has its own namespace. Pods and graphs are simulated; the relay is the real
//! one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod deletion;
mod env;
mod failures;
mod lifecycle;
mod profiler;
mod recovery;
#[path = "../shared_env/mod.rs"]
mod shared_env;
#[path = "../shared_env/namespace.rs"]
mod shared_namespace;
mod spec_changes;
mod test_namespace;
mod versions;
mod waiting;
