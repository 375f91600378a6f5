//! Exports the decisions as metrics for HPA and KEDA, with the labels of both generations of the API. Deleted objects
//! have no series.

mod steps;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use steersman_reconcile::NamespacedName;
use steersman_runtime::leader::Fence;

pub use self::steps::ReconcileStep;
use self::steps::Steps;

/// Limit of a label value in bytes.
const MAX_LABEL_BYTES: usize = 128;

/// Gauge values of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GaugeValues {
    pub model: String,
    pub target_name: String,
    pub target_kind: String,
    pub accelerator: String,
    /// `None` if another object decides, or nothing is decided yet.
    pub desired: Option<i32>,
    pub current: i32,
    /// The stage that determined the number.
    pub reason: &'static str,
    pub conflict: Option<ConflictResolution>,
    /// Latencies in seconds, if the number is decided by latency targets.
    pub predicted: LatencySeconds,
    pub measured: LatencySeconds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencySeconds {
    pub ttft: Option<f64>,
    pub itl: Option<f64>,
}

/// Resolution of a conflict over a scale target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictResolution {
    /// The object decides; the number counts all objects of the conflict.
    Winner(usize),
    Suppressed,
}

#[derive(Debug, Default)]
pub struct Gauges {
    state: Mutex<GaugeState>,
    steps: Steps,
}

#[derive(Debug, Default)]
struct GaugeState {
    instance: Option<String>,
    values: BTreeMap<NamespacedName, GaugeValues>,
    /// Number of changes, by direction and reason.
    scaled: BTreeMap<NamespacedName, BTreeMap<(&'static str, &'static str), u64>>,
    decided: u64,
    written: u64,
    /// Number of objects by each factor of their last decision.
    factors: BTreeMap<&'static str, u64>,
    reconciled: Option<Timestamp>,
    /// Closed while this replica does not lead.
    fence: Option<Fence>,
}

impl Gauges {
    /// Sets the label of the operator instance.
    pub fn set_instance(&self, instance: Option<String>) {
        self.lock().instance = instance;
    }

    /// Hides all series while the fence is closed, so that a leader that was paused publishes nothing even before it
    /// notices that it lost the lease.
    pub fn set_fence(&self, fence: &Fence) {
        self.lock().fence = Some(fence.clone());
    }

    /// Replaces all values.
    pub fn publish(&self, values: BTreeMap<NamespacedName, GaugeValues>) {
        let mut state = self.lock();
        let GaugeState { values: before, scaled, .. } = &mut *state;
        for (key, now) in &values {
            let from = before.get(key).and_then(|before| before.desired);
            let (Some(from), Some(to)) = (from, now.desired) else { continue };
            if from != to {
                let direction = if to > from { "up" } else { "down" };
                *scaled.entry(key.clone()).or_default().entry((direction, now.reason)).or_default() += 1;
            }
        }
        scaled.retain(|key, _| values.contains_key(key));
        state.values = values;
    }

    pub fn get(&self, key: &NamespacedName) -> Option<GaugeValues> {
        self.lock().values.get(key).cloned()
    }

    /// Replaces the values of one object. `None` removes them.
    pub fn set(&self, key: NamespacedName, values: Option<GaugeValues>) {
        match values {
            Some(values) => drop(self.lock().values.insert(key, values)),
            None => self.remove(&key),
        }
    }

    /// Removes the series of an excluded namespace.
    pub fn remove_namespace(&self, namespace: &str) {
        let mut state = self.lock();
        state.values.retain(|key, _| key.namespace != namespace);
        state.scaled.retain(|key, _| key.namespace != namespace);
    }

    /// Removes the series of a deleted object.
    pub fn remove(&self, key: &NamespacedName) {
        let mut state = self.lock();
        state.values.remove(key);
        state.scaled.remove(key);
    }

    pub fn reconciled(&self, decided: usize, written: usize, at: Timestamp) {
        let mut state = self.lock();
        state.decided += decided as u64;
        state.written += written as u64;
        state.reconciled = Some(at);
    }

    /// Replaces the numbers of objects by the factors of their decisions.
    pub fn set_factors(&self, factors: BTreeMap<&'static str, u64>) {
        self.lock().factors = factors;
    }

    pub fn step(&self, step: ReconcileStep, took: Duration) {
        self.steps.took(step, took);
    }

    /// Removes all series. A standby publishes none, because two series of one object would be added up.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.values.clear();
        state.scaled.clear();
        state.factors.clear();
        state.reconciled = None;
    }

    fn lock(&self) -> MutexGuard<'_, GaugeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type MetricLabels = Vec<(&'static str, String)>;

impl GaugeState {
    fn labels(&self, key: &NamespacedName, values: &GaugeValues) -> MetricLabels {
        let mut labels = vec![
            ("target_name", label(&values.target_name)),
            ("target_kind", label(&values.target_kind)),
            ("variant_name", label(&key.name)),
            ("namespace", label(&key.namespace)),
            ("accelerator_type", label(&values.accelerator)),
        ];
        labels.extend(self.instance.iter().map(|instance| ("controller_instance", label(instance))));
        labels
    }

    fn leads(&self) -> bool {
        self.fence.as_ref().is_none_or(Fence::is_open)
    }

    fn visible(&self) -> impl Iterator<Item = (&NamespacedName, &GaugeValues)> {
        let leads = self.leads();
        self.values.iter().filter(move |_| leads)
    }

    fn decided(&self) -> impl Iterator<Item = (MetricLabels, &GaugeValues, i32)> {
        let numbers = self.visible().filter_map(|(key, values)| Some((key, values, values.desired?)));
        numbers.map(|(key, values, desired)| (self.labels(key, values), values, desired))
    }
}

/// Follows the Go operator: an empty value is `unknown`, and a long one is truncated.
fn label(value: &str) -> String {
    match value.trim() {
        "" => "unknown".to_owned(),
        value => value[..value.floor_char_boundary(MAX_LABEL_BYTES)].to_owned(),
    }
}

/// Desired divided by current; with no current replicas, the desired number itself.
fn ratio(desired: i32, current: i32) -> f64 {
    f64::from(desired) / f64::from(current.max(1))
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.lock();
        let gauge = MetricType::Gauge;
        let help = "Desired number of replicas for each scale target";
        let mut metric = encoder.encode_descriptor("wva_desired_replicas", help, None, gauge)?;
        for (labels, _, desired) in state.decided() {
            ConstGauge::new(i64::from(desired)).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Current number of replicas for each scale target";
        let mut metric = encoder.encode_descriptor("wva_current_replicas", help, None, gauge)?;
        for (labels, values, _) in state.decided() {
            ConstGauge::new(i64::from(values.current)).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Ratio of the desired number of replicas and the current number of replicas for each scale target";
        let mut metric = encoder.encode_descriptor("wva_desired_ratio", help, None, gauge)?;
        for (labels, values, desired) in state.decided() {
            ConstGauge::new(ratio(desired, values.current)).encode(metric.encode_family(&labels)?)?;
        }
        encode_latencies(&state, &mut encoder)?;
        encode_scaled(&state, &mut encoder)?;
        encode_conflicts(&state, &mut encoder)?;
        encode_factors(&state, &mut encoder)?;
        self.steps.encode(&mut encoder)?;
        encode_reconciles(&state, &mut encoder)
    }
}

/// The predicted latencies of the Go operator, and the measured ones to compare them with.
fn encode_latencies(state: &GaugeState, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Seconds = fn(&GaugeValues) -> Option<f64>;
    let gauges: [(&str, &str, Seconds); 4] = [
        (
            "wva_predicted_ttft_seconds",
            "Predicted Time To First Token (TTFT) in seconds from ModelAnalyzer for each model and scale target",
            |values| values.predicted.ttft,
        ),
        (
            "wva_predicted_itl_seconds",
            "Predicted Inter-Token Latency (ITL) in seconds from ModelAnalyzer for each model and scale target",
            |values| values.predicted.itl,
        ),
        (
            "wva_measured_ttft_seconds",
            "Average measured Time To First Token (TTFT) in seconds for each model and scale target",
            |values| values.measured.ttft,
        ),
        (
            "wva_measured_itl_seconds",
            "Average measured Inter-Token Latency (ITL) in seconds for each model and scale target",
            |values| values.measured.itl,
        ),
    ];
    for (name, help, value) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, values, _) in state.decided() {
            let Some(seconds) = value(values) else { continue };
            let labels: MetricLabels = [("model_name", label(&values.model))].into_iter().chain(labels).collect();
            ConstGauge::new(seconds).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_scaled(state: &GaugeState, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Total number of replica scaling operations";
    let mut metric = encoder.encode_descriptor("wva_replica_scaling", help, None, MetricType::Counter)?;
    for (key, values) in state.visible() {
        let Some(counts) = state.scaled.get(key) else { continue };
        for ((direction, reason), count) in counts {
            let own = [("direction", (*direction).to_owned()), ("reason", (*reason).to_owned())];
            let labels: MetricLabels = state.labels(key, values).into_iter().chain(own).collect();
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_conflicts(state: &GaugeState, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let contested = || state.visible().filter_map(|(key, values)| Some((key, values, values.conflict?)));
    let deployment = |values: &GaugeValues| ("deployment", label(&values.target_name));
    let help = "Number of VariantAutoscalings with the same scale target";
    let mut metric =
        encoder.encode_descriptor("wva_deployment_target_conflicts_total", help, None, MetricType::Gauge)?;
    for (key, values, resolution) in contested() {
        if let ConflictResolution::Winner(rivals) = resolution {
            let labels = vec![deployment(values), ("namespace", label(&key.namespace))];
            ConstGauge::new(i64::try_from(rivals).unwrap_or(i64::MAX)).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "Whether a VariantAutoscaling decides for a scale target that several have: 1 yes, 0 no";
    let mut metric = encoder.encode_descriptor("wva_conflict_resolution_status", help, None, MetricType::Gauge)?;
    for (key, values, resolution) in contested() {
        let (word, value) = match resolution {
            ConflictResolution::Winner(_) => ("winner", 1_i64),
            ConflictResolution::Suppressed => ("suppressed", 0),
        };
        let labels = vec![
            ("variant_name", label(&key.name)),
            ("namespace", label(&key.namespace)),
            deployment(values),
            ("resolution", word.to_owned()),
        ];
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The reasons of the decisions, such as missing metrics or accelerators, for alerts on the whole fleet.
fn encode_factors(state: &GaugeState, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "VariantAutoscalings whose last decision has this factor";
    let mut metric = encoder.encode_descriptor("steersman_fleet_decision_factors", help, None, MetricType::Gauge)?;
    for (factor, count) in state.factors.iter().filter(|_| state.leads()) {
        let labels = [("factor", *factor)];
        ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Cost and time of reconciles. The status of a settled object does not change, so it cannot show that reconciles still
/// happen.
fn encode_reconciles(state: &GaugeState, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "VariantAutoscalings decided; each counts once per reconcile";
    let metric = encoder.encode_descriptor("steersman_fleet_decisions", help, None, MetricType::Counter)?;
    ConstCounter::new(state.decided).encode(metric)?;
    let help = "Statuses of VariantAutoscalings written";
    let metric = encoder.encode_descriptor("steersman_fleet_status_writes", help, None, MetricType::Counter)?;
    ConstCounter::new(state.written).encode(metric)?;
    let Some(reconciled) = state.reconciled else { return Ok(()) };
    let help = "Time at which the last reconcile of the fleet ended, in seconds since 1970";
    let metric =
        encoder.encode_descriptor("steersman_fleet_last_reconcile_timestamp_seconds", help, None, MetricType::Gauge)?;
    ConstGauge::new(reconciled.as_duration().as_secs_f64()).encode(metric)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steersman_runtime::telemetry::metrics::Metrics;

    use super::*;

    fn registered() -> (Metrics, Arc<Gauges>) {
        Metrics::new(Timestamp::UNIX_EPOCH, |registry| {
            let gauges = Arc::new(Gauges::default());
            registry.register_collector(Box::new(gauges.clone()));
            gauges
        })
    }

    fn text(metrics: &Metrics) -> String {
        metrics.text().unwrap()
    }

    fn one(desired: i32, current: i32) -> BTreeMap<NamespacedName, GaugeValues> {
        let values = GaugeValues {
            model: "meta/llama".to_owned(),
            target_name: "llama-decode".to_owned(),
            target_kind: "Deployment".to_owned(),
            accelerator: "A100".to_owned(),
            desired: Some(desired),
            current,
            reason: "solver",
            ..GaugeValues::default()
        };
        BTreeMap::from([(NamespacedName::new("team-a", "llama"), values)])
    }

    const LABELS: &str = "target_name=\"llama-decode\",target_kind=\"Deployment\",variant_name=\"llama\",\
                          namespace=\"team-a\",accelerator_type=\"A100\"";

    #[test]
    fn series_match_both_generations_and_are_removed() {
        let (metrics, gauges) = registered();
        gauges.publish(one(2, 4));
        gauges.publish(one(5, 2));
        let exported = text(&metrics);
        for line in [
            format!("wva_desired_replicas{{{LABELS}}} 5"),
            format!("wva_current_replicas{{{LABELS}}} 2"),
            format!("wva_desired_ratio{{{LABELS}}} 2.5"),
            format!("wva_replica_scaling_total{{{LABELS},direction=\"up\",reason=\"solver\"}} 1"),
        ] {
            assert!(exported.lines().any(|known| known == line), "{line} in\n{exported}");
        }
        gauges.remove(&NamespacedName::new("team-a", "llama"));
        assert!(!text(&metrics).contains("llama"), "{}", text(&metrics));
        gauges.publish(one(5, 2));
        gauges.publish(BTreeMap::new());
        assert!(!text(&metrics).contains("llama"), "{}", text(&metrics));
    }

    #[test]
    fn latencies_are_published_if_known() {
        let (metrics, gauges) = registered();
        let mut values = one(2, 2);
        let llama = values.values_mut().next().unwrap();
        llama.predicted = LatencySeconds { ttft: Some(0.25), itl: Some(0.0125) };
        llama.measured = LatencySeconds { ttft: Some(0.5), itl: None };
        gauges.publish(values);
        let exported = text(&metrics);
        for line in [
            format!("wva_predicted_ttft_seconds{{model_name=\"meta/llama\",{LABELS}}} 0.25"),
            format!("wva_predicted_itl_seconds{{model_name=\"meta/llama\",{LABELS}}} 0.0125"),
            format!("wva_measured_ttft_seconds{{model_name=\"meta/llama\",{LABELS}}} 0.5"),
        ] {
            assert!(exported.lines().any(|known| known == line), "{line} in\n{exported}");
        }
        assert!(!exported.contains("wva_measured_itl_seconds{"), "{exported}");
    }

    #[test]
    fn lost_leadership_hides_all_series() {
        let (metrics, gauges) = registered();
        gauges.publish(one(2, 4));
        gauges.publish(one(5, 4));
        let fence = Fence::default();
        fence.open_until(std::time::Instant::now() + std::time::Duration::from_secs(3600));
        gauges.set_fence(&fence);
        assert!(text(&metrics).contains("wva_desired_replicas{"));
        fence.close();
        assert!(!text(&metrics).contains("llama"), "{}", text(&metrics));
    }

    #[test]
    fn reconcile_steps_are_measured_separately() {
        let (metrics, gauges) = registered();
        gauges.step(ReconcileStep::Decide, Duration::from_millis(3));
        gauges.step(ReconcileStep::Decide, Duration::from_millis(30));
        gauges.step(ReconcileStep::Ask, Duration::from_secs(2));
        let exported = text(&metrics);
        for line in [
            "# TYPE steersman_fleet_step_seconds histogram",
            "steersman_fleet_step_seconds_count{step=\"decide\"} 2",
            "steersman_fleet_step_seconds_bucket{le=\"0.005\",step=\"decide\"} 1",
            "steersman_fleet_step_seconds_sum{step=\"ask\"} 2.0",
        ] {
            assert!(exported.lines().any(|known| known == line), "{line} in\n{exported}");
        }
    }

    #[test]
    fn ratio_without_replicas_is_the_target() {
        let table = [(2, 5, 2.5), (0, 3, 3.0), (4, 4, 1.0), (6, 2, 1.0 / 3.0), (0, 0, 0.0), (1, 0, 0.0)];
        for (current, desired, expected) in table {
            assert!((ratio(desired, current) - expected).abs() < 1e-12, "{current} {desired}");
        }
    }

    #[test]
    fn labels_are_trimmed_and_bounded() {
        assert_eq!(label("  A100 "), "A100");
        assert_eq!(label(" "), "unknown");
        assert_eq!(label(&"ä".repeat(100)).len(), 128);
    }

    #[test]
    fn scale_target_conflict_is_published() {
        let (metrics, gauges) = registered();
        let mut values = one(2, 2);
        let winner = values.values_mut().next().unwrap();
        winner.conflict = Some(ConflictResolution::Winner(2));
        let loser = GaugeValues { desired: None, conflict: Some(ConflictResolution::Suppressed), ..winner.clone() };
        values.insert(NamespacedName::new("team-a", "late"), loser);
        gauges.publish(values);
        gauges.set_instance(Some("blue".to_owned()));
        let exported = text(&metrics);
        for line in [
            "wva_deployment_target_conflicts_total{deployment=\"llama-decode\",namespace=\"team-a\"} 2",
            "wva_conflict_resolution_status{variant_name=\"late\",namespace=\"team-a\",deployment=\"llama-decode\",resolution=\"suppressed\"} 0",
        ] {
            assert!(exported.lines().any(|known| known == line), "{line} in\n{exported}");
        }
        assert_eq!(exported.matches("wva_desired_replicas{").count(), 1, "{exported}");
        assert!(exported.contains("accelerator_type=\"A100\",controller_instance=\"blue\"}"), "{exported}");
    }
}
