//! Remembers token capacities between reconciles, for variants without a pod to measure.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::variant::saturation::engine_args::EngineArgs;
use crate::variant::saturation::progress::ScaleProgress;

/// Observations kept per kind of load.
const WINDOW: usize = 10;
const KEEP_RECORDS: SignedDuration = SignedDuration::from_hours(7 * 24);
const KEEP_HISTORY: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured on pods.
    Live,
    /// From the arguments of the workload.
    Deployment,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub model: String,
    pub accelerator: String,
    /// Per replica.
    pub gpus: i32,
    pub origin: Origin,
    /// KV cache capacity in tokens; 0 if unknown.
    pub total_kv: i64,
    /// Tokens that a replica can serve.
    pub effective: i64,
    pub args: Option<EngineArgs>,
    pub at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    pub tokens: VecDeque<i64>,
    pub at: Option<Timestamp>,
}

/// Average request length of a model in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    pub input: f64,
    pub output: f64,
    pub at: Timestamp,
}

/// State between reconciles. Losing it costs accuracy, not safety.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// By `namespace|model|variant`.
    pub records: BTreeMap<String, Record>,
    /// Tokens in use of saturated replicas, by model, accelerators and output length.
    pub history: BTreeMap<String, Observations>,
    /// By `namespace|model|`.
    #[serde(default)]
    pub lengths: BTreeMap<String, Lengths>,
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
        let seen = self.history.entry(key.to_owned()).or_default();
        seen.tokens.push_back(tokens);
        while seen.tokens.len() > WINDOW {
            seen.tokens.pop_front();
        }
        seen.at = Some(now);
    }

    /// Removes observations below `carried`: a replica without a queue that carries more shows that they were not the
    /// capacity. The replica that had a queue then may have been starting.
    pub fn refute(&mut self, key: &str, carried: i64) {
        let Some(seen) = self.history.get_mut(key) else { return };
        seen.tokens.retain(|tokens| *tokens >= carried);
        if seen.tokens.is_empty() {
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
    pub fn like(&self, key: &str, within: &str, record: &Record) -> Option<&Record> {
        let fits = |(other_key, other): &(&String, &Record)| {
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
        let mut found: Vec<&Record> = self.records.iter().filter(fits).map(|(_, other)| other).collect();
        found.sort_by_key(|other| other.origin != Origin::Live);
        found.into_iter().next()
    }

    /// Drops expired entries.
    pub fn forget(&mut self, now: Timestamp) {
        self.records.retain(|_, record| now.duration_since(record.at) <= KEEP_RECORDS);
        self.lengths.retain(|_, known| now.duration_since(known.at) <= KEEP_HISTORY);
        self.history.retain(|_, seen| seen.at.is_some_and(|at| now.duration_since(at) <= KEEP_HISTORY));
    }
}
