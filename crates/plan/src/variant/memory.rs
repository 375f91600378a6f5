//! Holds everything that is remembered between reconciles. Its loss costs accuracy, not safety.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::analyze::engine_args::EngineArgs;
use super::analyze::measured_demand::DemandMemory;

/// Observations kept per kind of load.
const WINDOW: usize = 10;
const KEEP_RECORDS: SignedDuration = SignedDuration::from_hours(7 * 24);
const KEEP_HISTORY: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapacityOrigin {
    /// Measured on pods.
    Live,
    /// From the arguments of the workload.
    Deployment,
}

/// Token capacity of the replicas of a variant, for times without a pod to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityRecord {
    pub model: String,
    pub accelerator: String,
    /// Per replica.
    pub gpus: i32,
    pub origin: CapacityOrigin,
    /// KV cache capacity in tokens; 0 if unknown.
    pub total_kv: i64,
    /// Tokens that a replica can serve.
    pub effective: i64,
    pub args: Option<EngineArgs>,
    pub at: Timestamp,
}

/// Tokens in use of saturated replicas, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SaturatedTokens {
    pub tokens: VecDeque<i64>,
    pub at: Option<Timestamp>,
}

/// Average request length of a model in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestLengths {
    pub input: f64,
    pub output: f64,
    pub at: Timestamp,
}

/// Timers of one scale target. Each holds the value it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleProgress {
    /// `spec.replicas`, while some replicas are not ready.
    pub unready: Option<(i32, Timestamp)>,
    /// Since when all replicas are ready again.
    pub recovered: Option<Timestamp>,
    /// `spec.replicas`, while more pods are ready.
    pub surplus_pods: Option<(i32, Timestamp)>,
    /// `spec.replicas`, while any larger number is decided.
    pub scale_up: Option<(i32, Timestamp)>,
    /// The smaller number that is decided, and `spec.replicas`.
    pub scale_down: Option<((i32, i32), Timestamp)>,
    pub ignored_target: Option<IgnoredTarget>,
}

/// A scale-up that a scale target did not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredTarget {
    pub requested: i32,
    /// `spec.replicas`, which did not change.
    pub current: i32,
    pub last_request: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// By `namespace|model|variant`.
    pub records: BTreeMap<String, CapacityRecord>,
    /// Tokens in use of saturated replicas, by model, accelerators and output length.
    pub history: BTreeMap<String, SaturatedTokens>,
    /// By `namespace|model|`.
    #[serde(default)]
    pub lengths: BTreeMap<String, RequestLengths>,
    /// Arrival rates and capacities, by `namespace|model|`.
    #[serde(default)]
    pub demand: BTreeMap<String, DemandMemory>,
    /// Timers of scale targets, by the same key as `records`.
    #[serde(default)]
    pub progress: BTreeMap<String, ScaleProgress>,
    /// The last decided numbers, by the same key. `None` before the first decision of this process.
    #[serde(default)]
    pub decided: Option<BTreeMap<String, i32>>,
}

impl Memory {
    pub fn key(namespace: &str, model: &str, variant: &str) -> String {
        format!("{namespace}|{model}|{variant}")
    }

    pub fn observe(&mut self, key: &str, tokens: i64, now: Timestamp) {
        let history = self.history.entry(key.to_owned()).or_default();
        history.tokens.push_back(tokens);
        while history.tokens.len() > WINDOW {
            history.tokens.pop_front();
        }
        history.at = Some(now);
    }

    /// Removes observations below `carried`: a replica without a queue that carries more shows that they were not the
    /// capacity. The replica that had a queue then may have been starting.
    pub fn refute(&mut self, key: &str, carried: i64) {
        let Some(history) = self.history.get_mut(key) else { return };
        history.tokens.retain(|tokens| *tokens >= carried);
        if history.tokens.is_empty() {
            self.history.remove(key);
        }
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "token counts are far smaller")]
    pub fn average(&self, key: &str) -> Option<i64> {
        let tokens = &self.history.get(key)?.tokens;
        let sum: f64 = tokens.iter().map(|tokens| *tokens as f64).sum();
        (!tokens.is_empty()).then(|| (sum / tokens.len() as f64) as i64)
    }

    /// A record of the same model on equal hardware with equal settings, preferably measured. `within`: prefix of its
    /// key.
    pub fn similar_record(&self, key: &str, within: &str, record: &CapacityRecord) -> Option<&CapacityRecord> {
        let fits = |(other_key, other): &(&String, &CapacityRecord)| {
            let alike = match (&record.args, &other.args) {
                (Some(a), Some(b)) => a.alike(b),
                _ => false,
            };
            other_key.as_str() != key
                && other_key.starts_with(within)
                && other.model == record.model
                && other.accelerator == record.accelerator
                && other.gpus == record.gpus
                && alike
        };
        let mut found: Vec<&CapacityRecord> = self.records.iter().filter(fits).map(|(_, other)| other).collect();
        found.sort_by_key(|other| other.origin != CapacityOrigin::Live);
        found.into_iter().next()
    }

    /// Drops expired entries.
    pub fn expire(&mut self, now: Timestamp) {
        self.records.retain(|_, record| now.duration_since(record.at) <= KEEP_RECORDS);
        self.lengths.retain(|_, lengths| now.duration_since(lengths.at) <= KEEP_HISTORY);
        self.demand.retain(|_, demand| demand.last_use().is_some_and(|at| now.duration_since(at) <= KEEP_RECORDS));
        self.history.retain(|_, history| history.at.is_some_and(|at| now.duration_since(at) <= KEEP_HISTORY));
    }
}
