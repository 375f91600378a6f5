//! Defines the snapshot of the fleet that `plan` reads, and what the stages derive from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use steersman_api::variant::v1alpha1::{DEFAULT_VARIANT_COST, VariantAutoscalingSpec, VariantAutoscalingStatus};
use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use super::analyze::engine_args::Container;
use super::bounds::Bounds;
use super::config::costs::Costs;
use super::config::{Config, ConfigFinding};
use super::events::is_suppressed;
use super::fallback::{FallbackInput, HeldTarget, Previous, hold};
use super::memory::Memory;
use super::target::{TargetName, is_decided_for};
use super::{legacy_texts, names};

/// Smallest `spec.maxReplicas` we act on. An object stored under an older schema may have 0; it keeps its last decision
/// instead of being scaled to zero.
pub const MIN_MAX_REPLICAS: i32 = 1;

/// Cost of a replica if none is set.
pub const DEFAULT_COST: f64 = 10.0;

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

impl ObservedVariant {
    /// Key of the variant in `Memory`.
    pub fn memory_key(&self) -> String {
        Memory::key(&self.key.namespace, &self.spec.model_id, &self.key.name)
    }

    /// Kind and name, for messages.
    pub fn workload(&self) -> String {
        self.spec.scale_target_ref.as_ref().map(|to| format!("{} {}", to.kind, to.name)).unwrap_or_default()
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { min: self.spec.min_replicas, max: self.spec.max_replicas.filter(|max| *max >= MIN_MAX_REPLICAS) }
    }

    /// The scale target, if it exists and could be read.
    pub fn scale_target(&self) -> Option<&ObservedTarget> {
        self.target.known()?.as_ref()
    }

    /// `spec.replicas` of the scale target.
    pub fn current(&self) -> Option<i32> {
        self.scale_target().map(|target| target.replicas.unwrap_or(1).max(0))
    }

    /// Ready replicas, or ready pods if there are more. `readyReplicas` of a StatefulSet includes pods that are being
    /// scaled down.
    pub fn ready_replicas(&self) -> i32 {
        let current = self.current().unwrap_or_default();
        self.scale_target().map_or(0, |target| target.ready.min(current).max(target.ready_pods))
    }

    /// Cost of a replica: `spec.variantCost`, or that of its accelerators if it has the default value.
    pub fn cost(&self, costs: &Costs) -> f64 {
        let of_accelerators = || costs.cents.get(&self.accelerator()).map(|cents| cents * f64::from(self.gpus()));
        match self.parsed_cost() {
            Some(_) if self.spec.variant_cost == DEFAULT_VARIANT_COST => of_accelerators().unwrap_or(DEFAULT_COST),
            Some(cost) => cost,
            None => DEFAULT_COST,
        }
    }

    fn parsed_cost(&self) -> Option<f64> {
        self.spec.variant_cost.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
    }

    /// GPUs of one replica: those that its pods request. `spec.acceleratorCount` counts only if they request none, because a
    /// claim of one user must not take GPUs from others.
    pub fn gpus(&self) -> i32 {
        let Lookup::Known(Some(target)) = &self.target else { return 1 };
        let claimed = || self.spec.accelerator_count.and_then(|count| i32::try_from(count).ok()).unwrap_or(1);
        if target.gpus > 0 { target.gpus } else { claimed().max(1) }
    }

    /// Whether the GPUs of its replicas count as used. Pods that request none use none, whatever the object claims. If the scale
    /// target cannot be read, one GPU for each replica is kept.
    pub fn uses_gpus(&self) -> bool {
        !matches!(&self.target, Lookup::Known(Some(target)) if target.gpus <= 0)
    }

    /// Empty if unknown. The decision is published in any case.
    pub fn accelerator(&self) -> String {
        let label = || self.labels.get(names::ACCELERATOR_LABEL).cloned();
        let stored = || self.status.as_ref()?.desired_optimized_alloc.as_ref()?.accelerator.clone();
        self.spec.accelerator.clone().or_else(label).or_else(stored).unwrap_or_default()
    }

    /// The number that is kept while nothing can be decided.
    pub fn held(&self, now: Timestamp) -> HeldTarget {
        let input = FallbackInput {
            bounds: self.bounds(),
            current: self.current().unwrap_or_default(),
            created: self.created,
            previous: self.previous(),
            others_run: false,
        };
        hold(&input, now)
    }

    /// The stored decision, if it was made for this scale target.
    pub fn previous(&self) -> Previous {
        let status = self.status.as_ref().filter(|_| !self.starts_over());
        let stored = status.and_then(|status| status.desired_optimized_alloc.clone()).unwrap_or_default();
        let update = stored.last_update.unwrap_or_default();
        let decided = stored.num_replicas.is_some();
        let at = update.update_time.or(stored.last_run_time).map(|time| time.0);
        let reason = update.reason.unwrap_or_default();
        Previous {
            replicas: stored.num_replicas.unwrap_or_default(),
            unclamped_reason: update.unclamped_reason.or_else(|| legacy_texts::unclamped_reason(&reason)),
            reason,
            at: at.or(Some(self.created)).filter(|_| decided),
        }
    }

    /// Whether the stored decision does not apply: it was made for another scale target, or another object decided in
    /// between.
    pub fn starts_over(&self) -> bool {
        self.is_retargeted() || self.status.as_deref().is_some_and(is_suppressed)
    }

    /// Whether `scaleTargetRef` was changed since the status was written, so that the status is about another scale
    /// target.
    pub fn is_retargeted(&self) -> bool {
        let (Some(status), Some(target)) = (self.status.as_deref(), self.spec.scale_target_ref.as_ref()) else {
            return false;
        };
        match status.decision.as_ref().and_then(|decision| decision.scale_target_ref.as_ref()) {
            Some(decided) => !is_decided_for(decided, target),
            // Earlier operators stored no group.
            None => legacy_texts::scale_target(status)
                .is_some_and(|decided| (decided.kind, decided.name) != (target.kind.clone(), target.name.clone())),
        }
    }

    /// Contradicting bounds, which an object stored under an older schema may have.
    fn odd_bounds(&self) -> Option<Finding> {
        let Bounds { min, max } = self.bounds();
        let message = match max {
            Some(max) if max < min => format!("spec.maxReplicas={max} is below spec.minReplicas={min}; {max} is used."),
            _ if min < 0 => format!("spec.minReplicas={min} is below 0; 0 is used."),
            _ => return None,
        };
        let remedy = "Correct spec.minReplicas or spec.maxReplicas: 0 <= minReplicas <= maxReplicas.".to_owned();
        Some(Finding { severity: Severity::Warning, reason: "BoundsContradict", message, remedy })
    }

    /// Fields of the spec that are ignored or invalid.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.parsed_cost().is_none() {
            findings.push(Finding {
                severity: Severity::Warning,
                reason: "VariantCostInvalid",
                message: format!(
                    "spec.variantCost {:?} is not a number; {DEFAULT_COST} is used.",
                    self.spec.variant_cost
                ),
                remedy: "Write a decimal number such as \"10\" or \"12.5\".".to_owned(),
            });
        }
        findings.extend(self.odd_bounds());
        if let Some(id) = &self.spec.variant_id {
            findings.push(Finding {
                severity: Severity::Info,
                reason: "VariantIDIgnored",
                message: format!("spec.variantID {id:?} is only displayed: variants are identified by metadata.name."),
                remedy: "No action is needed.".to_owned(),
            });
        }
        findings
    }
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
    /// Names of the ready pods. Empty if they are unknown.
    pub pods: Vec<ReadyPod>,
    /// Why the pods of the replicas cannot be found, and what to do about it.
    pub pods_error: Option<Box<str>>,
    /// GPUs that one replica requests.
    pub gpus: i32,
    /// GPUs that its pods on nodes request. `None` if its pods are unknown.
    pub used_gpus: Option<i32>,
    pub containers: Vec<Container>,
}

/// A ready pod, with or without metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadyPod {
    pub name: Arc<str>,
    /// When it became ready.
    pub since: Option<Timestamp>,
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

/// Requests that wait at the endpoint picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SchedulerQueue {
    pub requests: f64,
    pub bytes: f64,
}

/// A model with its metrics and its variants that are decided on.
pub struct ObservedModel<'a> {
    pub snapshot: &'a FleetSnapshot,
    pub namespace: &'a str,
    pub name: &'a str,
    pub variants: &'a [&'a ObservedVariant],
    pub metrics: Option<&'a ModelMetrics>,
    /// A further variant of the model is not decided on, but may serve requests.
    pub is_partly_unseen: bool,
}

impl<'a> ObservedModel<'a> {
    /// The pods of the variants, sorted.
    pub fn pods(&self) -> Result<Vec<(&'a ObservedVariant, &'a PodMetrics)>, MetricsError> {
        let pods = self.metrics.map_or(Err(&MetricsError::NotFound), |metrics| metrics.pods.as_ref());
        let pods = pods.map_err(Clone::clone)?;
        let mut pods: Vec<_> = pods.iter().filter_map(|pod| Some((self.owner(pod)?, pod))).collect();
        pods.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        Ok(pods)
    }

    pub fn owner(&self, pod: &PodMetrics) -> Option<&'a ObservedVariant> {
        let owns = |variant: &&&ObservedVariant| {
            variant.spec.scale_target_ref.as_ref().is_some_and(|target| pod.target.is(target))
        };
        self.variants.iter().find(owns).copied()
    }

    pub fn retention(&self) -> SignedDuration {
        self.snapshot.config.zero(self.namespace).retention(self.namespace, self.name)
    }
}
