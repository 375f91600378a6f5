//! The local cluster for tests, benchmarks and `cargo xtask up`: a real etcd, API server, controller manager, scheduler and
//! Prometheus, with nodes and pods simulated by kwok. It provides clients for named users, fresh namespaces, GPU nodes, and
//! pods whose behaviour a test sets with annotations.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the local cluster runs on Linux only: it relies on parent-death signals and /proc to leave no process behind"
);

pub mod apply;
pub mod audit;
pub mod binaries;
pub mod cache;
mod client;
pub mod cluster;
pub mod conditions;
pub mod cut;
mod exclusive;
pub mod graphs;
mod identities;
mod kubectl;
pub mod log;
pub mod measure;
pub mod metrics;
mod namespace;
pub mod nodes;
pub mod openapi;
pub mod operator;
pub mod pki;
pub mod play;
pub mod pods;
pub mod ports;
pub mod process;
pub mod profiler;
pub mod prometheus;
mod shared;
pub mod shown;
pub mod skip;
pub mod tree;
pub mod wait;

pub use apply::object;
pub use cluster::{Cluster, Flavour, Options};
pub use conditions::{condition, statement};
pub use exclusive::{Turn, turn};
pub use log::Log;
pub use namespace::Namespace;
pub use nodes::{Gpu, NodePool};
pub use operator::{Account, Asked, Launch, Operator};
pub use play::Play;
pub use pods::Pods;
pub use profiler::Profiler;
pub use prometheus::Prometheus;
pub use shared::{Own, SHARED_CLUSTERS, alone, own, shared};
