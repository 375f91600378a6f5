//! Defines the snapshot of the fleet that `plan` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use steersman_api::variant::v1alpha1::{VariantAutoscalingSpec, VariantAutoscalingStatus};
use steersman_reconcile::{Lookup, NamespacedName};

use super::Mode;
use super::config::{Config, ConfigFinding};
use super::saturation::engine_args::Container;
use super::saturation::tokens::SchedulerQueue;
use super::saturation::tokens::capacity::Memory;
use super::target::TargetName;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetSnapshot {
    pub now: Timestamp,
    pub settings: Settings,
    pub config: Config,
    pub variants: Vec<ObservedVariant>,
    /// By namespace and model name. A model that is not here was not queried.
    pub models: BTreeMap<NamespacedName, ModelMetrics>,
    /// GPUs of the nodes, by short product name.
    pub gpus: Lookup<BTreeMap<String, i32>>,
    /// State from earlier reconciles.
    pub memory: Memory,
    /// Models whose plan panicked in this reconcile. Their objects keep their last decision.
    pub defective: BTreeSet<NamespacedName>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    pub mode: Mode,
    /// Stabilization window: a target is lowered only this long after its last change.
    pub settle: SignedDuration,
}

/// `spec` and `status` are shared with the cache, because a fleet may have ten thousand objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedVariant {
    pub key: NamespacedName,
    pub generation: Option<i64>,
    pub created: Timestamp,
    /// The object has a deletion timestamp.
    pub deleting: bool,
    pub labels: BTreeMap<String, String>,
    pub spec: Arc<VariantAutoscalingSpec>,
    pub status: Option<Arc<VariantAutoscalingStatus>>,
    /// `None` if it does not exist.
    pub target: Lookup<Option<ObservedTarget>>,
    /// Findings about the ConfigMaps that apply to the object. All objects of a namespace share them.
    pub config: Arc<[ConfigFinding]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedTarget {
    /// `spec.replicas`. If absent, the API server's default of 1 applies.
    pub replicas: Option<i32>,
    /// `status.replicas`, once the status has been written.
    pub status_replicas: Option<i32>,
    pub ready: i32,
    /// Ready pods by their own status. During a rollout there may be more than `ready`.
    pub ready_pods: i32,
    /// Why the pods of the replicas cannot be found, and what to do about it.
    pub pods_error: Option<Box<str>>,
    /// GPUs that one replica requests.
    pub gpus: i32,
    /// GPUs that its pods on nodes request. `None` if its pods are unknown.
    pub used_gpus: Option<i32>,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelMetrics {
    pub pods: Result<Vec<PodMetrics>, MetricsError>,
    /// Requests within the retention period.
    pub requests: Lookup<f64>,
    /// `None` if no endpoint picker queues requests before the replicas.
    pub queue: Lookup<Option<SchedulerQueue>>,
}

/// Why there are no metrics of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MetricsError {
    NotFound,
    /// Pods of the namespace have metrics, under these model names that no object has.
    ModelNameMismatch(Vec<String>),
    /// Age of the newest sample, in Go's format.
    Stale(String),
    QueryFailed(String),
    /// No Prometheus is configured; the text says what to do.
    NotConfigured(String),
}

/// Metrics of one pod. A missing or invalid value is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodMetrics {
    pub name: Arc<str>,
    /// Scale target of the pod, shared by all its pods.
    pub target: Arc<TargetName>,
    /// A pod that is not ready gets no requests, so its empty queue says nothing about the load.
    pub ready: bool,
    /// Used share of the KV cache.
    pub kv: Option<f64>,
    /// Waiting requests.
    pub queue: Option<f64>,
    /// KV cache capacity in tokens.
    pub total_kv: Option<i64>,
    /// Averages per request. `None` if there was no request.
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub hit_rate: Option<f64>,
    /// Waiting and running requests in the newest sample. `queue` is the highest value of the last minute.
    pub waiting: Option<f64>,
    pub running: Option<f64>,
    /// Completed requests since the start of the server.
    pub completed: Option<f64>,
    pub completed_per_second: Option<f64>,
    /// Average time that a request ran, without its time in the queue.
    pub service_seconds: Option<f64>,
    /// Averages per request and per token. `None` if there was no request.
    pub ttft_seconds: Option<f64>,
    pub itl_seconds: Option<f64>,
}
