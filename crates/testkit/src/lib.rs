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
pub mod cluster_gateway;
pub mod conditions;
mod exclusive;
pub mod fake_graphs;
pub mod fake_metrics;
pub mod fake_profiler;
pub mod fault_injection;
mod identities;
mod kubectl;
pub mod kubectl_output;
pub mod llamastack_specs;
pub mod log;
pub mod measure;
pub mod metrics;
mod namespace;
pub mod nodes;
pub mod openapi;
pub mod operator;
pub mod pki;
pub mod pod_behaviour;
pub mod ports;
pub mod process;
pub mod process_tree;
pub mod prometheus;
pub mod pty;
pub mod real_node;
mod shared;
pub mod skip;
pub mod wait;

pub use apply::object;
pub use cluster::{Cluster, Flavour, Options};
pub use cluster_gateway::ClusterGateway;
pub use conditions::{condition, condition_parts};
pub use exclusive::{ExclusiveCluster, exclusive_cluster};
pub use fake_metrics::FakePodMetrics;
pub use fake_profiler::FakeProfiler;
pub use log::Log;
pub use namespace::Namespace;
pub use nodes::{Gpu, NodePool};
pub use operator::{Operator, OperatorAccount, OperatorCommand, WebhookFamilies};
pub use pod_behaviour::PodBehaviour;
pub use prometheus::PrometheusServer;
pub use pty::PseudoTerminal;

pub use shared::{CLUSTERS_VARIABLE, ProcessCluster, prepared_cluster, shared_cluster, start_process_cluster};
