//! Defines and validates the thresholds of the saturation engines.

use serde::{Deserialize, Serialize};

/// Names of the engines.
const PERCENTAGE: &str = "percentage";
const TOKENS: &str = "saturation";
const QUEUEING: &str = "queueing";

/// Smallest distance between threshold and trigger: some idle servers hold a block of the KV cache.
const LEAST_ROOM: f64 = 0.01;

/// Tolerance for decimal fractions.
const MARGIN: f64 = 1e-9;

/// An entry as written. A missing field is taken from the entry below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaturationEntry {
    #[serde(rename = "model_id")]
    pub model_id: Option<String>,
    pub namespace: Option<String>,
    pub kv_cache_threshold: Option<f64>,
    pub queue_length_threshold: Option<f64>,
    pub kv_spare_trigger: Option<f64>,
    pub queue_spare_trigger: Option<f64>,
    pub enable_limiter: Option<bool>,
    pub analyzer_name: Option<String>,
    pub scale_up_threshold: Option<f64>,
    pub scale_down_boundary: Option<f64>,
}

pub const FIELDS: [&str; 10] = [
    "model_id",
    "namespace",
    "kvCacheThreshold",
    "queueLengthThreshold",
    "kvSpareTrigger",
    "queueSpareTrigger",
    "enableLimiter",
    "analyzerName",
    "scaleUpThreshold",
    "scaleDownBoundary",
];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// A replica that uses this share of its KV cache is saturated.
    pub kv_cache: f64,
    /// A replica with this many waiting requests is saturated.
    pub queue_length: f64,
    /// Average spare KV cache below which a replica is added.
    pub kv_spare: f64,
    /// Average spare queue length below which a replica is added.
    pub queue_spare: f64,
    /// Utilization above which capacity is missing. The percentage engine does not use it.
    pub scale_up: f64,
    /// Utilization below which capacity is spare. The percentage engine does not use it.
    pub scale_down: f64,
    pub analyzer: Analyzer,
    pub limiter: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Analyzer {
    /// The queueing model for a model whose variants all have a profile and latency targets. For others, compares the rate
    /// at which requests arrive with the rate that the replicas can complete.
    #[default]
    Demand,
    /// Compares the used shares of KV cache and queue, and changes one replica at a time.
    Percentage,
    /// Compares tokens in use with the token capacity.
    Tokens,
    /// The queueing model for all models. A variant without a profile or latency targets keeps its number.
    Queueing,
}

impl Default for Thresholds {
    /// Upstream's defaults.
    fn default() -> Self {
        Self {
            kv_cache: 0.80,
            queue_length: 5.0,
            kv_spare: 0.10,
            queue_spare: 3.0,
            scale_up: 0.85,
            scale_down: 0.70,
            analyzer: Analyzer::default(),
            limiter: false,
        }
    }
}

impl Thresholds {
    /// Applies the fields of `entry`.
    #[must_use]
    pub fn with(&self, entry: &SaturationEntry) -> Self {
        Self {
            kv_cache: entry.kv_cache_threshold.unwrap_or(self.kv_cache),
            queue_length: entry.queue_length_threshold.unwrap_or(self.queue_length),
            kv_spare: entry.kv_spare_trigger.unwrap_or(self.kv_spare),
            queue_spare: entry.queue_spare_trigger.unwrap_or(self.queue_spare),
            scale_up: entry.scale_up_threshold.unwrap_or(self.scale_up),
            scale_down: entry.scale_down_boundary.unwrap_or(self.scale_down),
            analyzer: entry.analyzer_name.as_deref().map_or(self.analyzer, analyzer),
            limiter: entry.enable_limiter.unwrap_or(self.limiter),
        }
    }

    /// Takes over the settings that apply to the whole fleet.
    #[must_use]
    pub fn under(self, fleet: &Self) -> Self {
        Self { analyzer: fleet.analyzer, limiter: fleet.limiter, ..self }
    }

    /// Sets the thresholds of the utilization if they are zero and the engine uses them.
    #[must_use]
    pub fn filled(mut self) -> Self {
        let shipped = Self::default();
        if self.analyzer != Analyzer::Percentage && self.scale_up == 0.0 {
            self.scale_up = shipped.scale_up;
        }
        if self.analyzer != Analyzer::Percentage && self.scale_down == 0.0 {
            self.scale_down = shipped.scale_down;
        }
        self
    }

    pub fn validate(&self) -> Result<(), String> {
        let Self { kv_cache, queue_length, kv_spare, queue_spare, scale_up, scale_down, .. } = *self;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let boundary = |value: f64| value > 0.0 && value <= 1.0;
        if !share(kv_cache) {
            return Err(format!("kvCacheThreshold must be between 0 and 1, got {kv_cache:.2}"));
        }
        if !at_least_zero(queue_length) {
            return Err(format!("queueLengthThreshold must be >= 0, got {queue_length:.1}"));
        }
        if !share(kv_spare) {
            return Err(format!("kvSpareTrigger must be between 0 and 1, got {kv_spare:.2}"));
        }
        if !at_least_zero(queue_spare) {
            return Err(format!("queueSpareTrigger must be >= 0, got {queue_spare:.1}"));
        }
        if kv_cache < kv_spare {
            return Err(format!("kvCacheThreshold ({kv_cache:.2}) should be >= kvSpareTrigger ({kv_spare:.2})"));
        }
        if matches!(self.analyzer, Analyzer::Percentage | Analyzer::Queueing) {
            return Ok(());
        }
        if !boundary(scale_up) {
            return Err(format!("scaleUpThreshold must be in (0, 1], got {scale_up:.2}"));
        }
        if !boundary(scale_down) {
            return Err(format!("scaleDownBoundary must be in (0, 1], got {scale_down:.2}"));
        }
        if scale_up <= scale_down {
            return Err(format!("scaleUpThreshold ({scale_up:.2}) must be > scaleDownBoundary ({scale_down:.2})"));
        }
        Ok(())
    }

    /// Thresholds with which an idle replica is saturated would add replicas without end.
    pub fn always_saturated(&self) -> Option<String> {
        let zero =
            |name: &str| Some(format!("{name} is 0, so even an idle replica counts as saturated: set it above 0"));
        match self {
            _ if self.kv_cache <= 0.0 => zero("kvCacheThreshold"),
            _ if self.queue_length <= 0.0 => zero("queueLengthThreshold"),
            _ if self.analyzer == Analyzer::Tokens && self.queue_length < 1.0 => Some(format!(
                "queueLengthThreshold ({:.1}) is below 1, so the token engine takes every busy replica as full: \
                 raise it to 1 or more",
                self.queue_length
            )),
            _ if self.analyzer != Analyzer::Tokens && self.kv_cache - self.kv_spare < LEAST_ROOM - MARGIN => {
                Some(format!(
                    "kvCacheThreshold ({:.3}) is less than {LEAST_ROOM} above kvSpareTrigger ({:.3}), so an idle replica \
                     may have too little spare KV cache, and replicas would be added without end: raise the first or lower \
                     the second",
                    self.kv_cache, self.kv_spare
                ))
            }
            _ if self.queue_length < self.queue_spare => Some(format!(
                "queueLengthThreshold ({:.1}) is below queueSpareTrigger ({:.1}), so even an idle replica has too little spare \
                 queue, and replicas would be added without end: raise the first or lower the second",
                self.queue_length, self.queue_spare
            )),
            _ => None,
        }
    }
}

fn at_least_zero(value: f64) -> bool {
    value >= 0.0 && value.is_finite()
}

fn analyzer(name: &str) -> Analyzer {
    match name {
        TOKENS => Analyzer::Tokens,
        PERCENTAGE => Analyzer::Percentage,
        QUEUEING => Analyzer::Queueing,
        _ => Analyzer::Demand,
    }
}

/// Upstream treats any other name as none.
pub fn known_analyzer(entry: &SaturationEntry) -> Result<(), String> {
    match entry.analyzer_name.as_deref() {
        None | Some("" | PERCENTAGE | TOKENS | QUEUEING) => Ok(()),
        Some(_) => Err(format!("analyzerName must be \"{PERCENTAGE}\", \"{TOKENS}\", \"{QUEUEING}\" or empty")),
    }
}
