//! Measures the steps of a reconcile of the fleet in histograms.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// The steps of a reconcile. Waiting is separated from computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileStep {
    /// Reading the stores.
    Gather,
    /// Waiting for Prometheus and for objects that are not watched, and reading the answers.
    Ask,
    Decide,
    /// Building gauges and statuses.
    Report,
    Write,
}

impl EncodeLabelValue for ReconcileStep {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let word = match self {
            Self::Gather => "gather",
            Self::Ask => "ask",
            Self::Decide => "decide",
            Self::Report => "report",
            Self::Write => "write",
        };
        EncodeLabelValue::encode(&word, encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: ReconcileStep,
}

/// Upper limits of the buckets. The first fits reading ten objects from the stores; the last is above the time limit of
/// Prometheus queries.
const STEP_SECONDS: [f64; 10] = [0.0001, 0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];

#[derive(Debug)]
pub struct Steps(Family<StepLabels, Histogram, fn() -> Histogram>);

impl Default for Steps {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(STEP_SECONDS)))
    }
}

impl Steps {
    pub fn took(&self, step: ReconcileStep, took: Duration) {
        self.0.get_or_create(&StepLabels { step }).observe(took.as_secs_f64());
    }

    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Duration of the steps of a reconcile of the fleet: gather, decide and report are computing, ask and write \
                    are waiting for Prometheus and the API server";
        let metric = encoder.encode_descriptor("steersman_fleet_step_seconds", help, None, MetricType::Histogram)?;
        self.0.encode(metric)
    }
}
