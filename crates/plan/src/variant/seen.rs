//! One snapshot of the whole fleet, as plain data.
//! Comes in: objects, their workloads, metrics and settings; goes out: nothing, this is what the plan reads.

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
pub struct Seen {
    pub now: Timestamp,
    pub settings: Settings,
    pub config: Config,
    pub variants: Vec<VariantSeen>,
    /// By namespace and name of the model. A model that is not here was not asked about.
    pub models: BTreeMap<NamespacedName, ModelSeen>,
    /// Accelerators of the nodes, by the short name of their type.
    pub gpus: Lookup<BTreeMap<String, i32>>,
    /// What earlier passes learned.
    pub memory: Memory,
    /// Models whose plan panicked in this reconcile. Their objects keep their last decision.
    pub defective: BTreeSet<NamespacedName>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    pub mode: Mode,
    /// A number is lowered only this long after it last changed.
    pub settle: SignedDuration,
}

/// What is stored is shared with whoever keeps it from pass to pass: there may be ten thousand objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantSeen {
    pub key: NamespacedName,
    pub generation: Option<i64>,
    pub created: Timestamp,
    /// It has a deletion timestamp.
    pub deleting: bool,
    pub labels: BTreeMap<String, String>,
    pub spec: Arc<VariantAutoscalingSpec>,
    /// As stored.
    pub status: Option<Arc<VariantAutoscalingStatus>>,
    /// The workload. None: there is none.
    pub target: Lookup<Option<TargetSeen>>,
    /// What is wrong in the ConfigMaps that hold for it: the same for all objects of a namespace.
    pub config: Arc<[ConfigFinding]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TargetSeen {
    /// Of its spec; absent counts as 1, as the API server has it.
    pub replicas: Option<i32>,
    /// Of its status, once that speaks of the workload at all.
    pub status_replicas: Option<i32>,
    pub ready: i32,
    /// Its pods that say so themselves. They may be more while new ones take the place of old ones.
    pub ready_pods: i32,
    /// It has replicas, and nobody can tell which pods they are: why, and what to do about it.
    pub unfound: Option<Box<str>>,
    /// Accelerators that one replica requests.
    pub gpus: i32,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSeen {
    pub pods: Result<Vec<PodSeen>, Silence>,
    /// Requests served within the retention period.
    pub requests: Lookup<f64>,
    /// None: nothing queues requests before the replicas.
    pub queue: Lookup<Option<SchedulerQueue>>,
}

/// Why there are no metrics of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Silence {
    Missing,
    /// Pods of the namespace are measured, under names of models that no object asks about.
    Misnamed(Vec<String>),
    /// How old the newest is, as Go writes it.
    Stale(String),
    /// The cause.
    Failed(String),
    /// There is nobody to ask: what to do about it.
    Unasked(String),
}

/// One pod's metrics. What was not measured, or is not a number, is absent: it is never taken for zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodSeen {
    pub name: Arc<str>,
    /// The workload that it belongs to, named once for all its pods.
    pub target: Arc<TargetName>,
    /// One that is not gets no requests: that it is empty says nothing.
    pub ready: bool,
    /// Share of the KV cache in use.
    pub kv: Option<f64>,
    /// Waiting requests.
    pub queue: Option<f64>,
    /// Tokens that fit into the KV cache.
    pub total_kv: Option<i64>,
    /// Averages per request; absent where none came.
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub hit_rate: Option<f64>,
}
