//! Metrics of DynamoGraphDeploymentRequests, under the names and labels of NVIDIA's operator.
//!
//! The series of a namespace exist while it has requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use steersman_api::Family as Api;
use steersman_reconcile::NamespacedName;

const KIND: &str = Api::Dgdr.kind();

/// Phases. An unknown one counts as the first.
const PHASES: [&str; 6] = ["Pending", "Profiling", "Ready", "Deploying", "Deployed", "Failed"];

/// Buckets, from a reconcile without writes to one whose calls are all slow.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Names and values.
type Labels = Vec<(&'static str, String)>;

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub struct RequestMetrics {
    reconciles: Family<Labels, Counter>,
    reconcile_time: Histograms,
    errors: Family<Labels, Counter>,
    phases: Family<Labels, Gauge>,
    webhook_time: Histograms,
    reviews: Family<Labels, Counter>,
    denials: Family<Labels, Counter>,
    phase_by_request: Mutex<BTreeMap<NamespacedName, &'static str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    Success,
    /// Requeued.
    Requeue,
    /// Failed, with the HTTP status of the API server's answer, if there was one.
    Error(Option<u16>),
}

const RESULTS: [&str; 3] = ["success", "requeue", "error"];

const ERRORS: [&str; 12] = [
    "not_found",
    "already_exists",
    "conflict",
    "validation",
    "bad_request",
    "unauthorized",
    "forbidden",
    "timeout",
    "server_timeout",
    "unavailable",
    "rate_limited",
    "internal",
];

/// A conflict and an existing name have the same status, which is all that is passed on: both count as conflicts.
fn error_type(status: Option<u16>) -> &'static str {
    match status {
        Some(404) => "not_found",
        Some(409) => "conflict",
        Some(422) => "validation",
        Some(400 | 405 | 413 | 415) => "bad_request",
        Some(401) => "unauthorized",
        Some(403) => "forbidden",
        Some(408) => "timeout",
        Some(504) => "server_timeout",
        Some(503) => "unavailable",
        Some(429) => "rate_limited",
        Some(_) => "internal",
        // There was no answer.
        None => "timeout",
    }
}

/// Bounds the values of a label: an unknown word comes from a client other than an API server.
fn known(word: &str, all: &[&'static str]) -> &'static str {
    all.iter().find(|known| **known == word).copied().unwrap_or("other")
}

const OPERATIONS: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
const REASONS: [&str; 6] = ["Invalid", "Forbidden", "BadRequest", "Timeout", "InternalError", "NotFound"];

impl RequestMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let requests = Self {
            reconciles: Family::default(),
            reconcile_time: Family::new_with_constructor(histogram),
            errors: Family::default(),
            phases: Family::default(),
            webhook_time: Family::new_with_constructor(histogram),
            reviews: Family::default(),
            denials: Family::default(),
            phase_by_request: Mutex::default(),
        };
        let registry = registry.sub_registry_with_prefix("dynamo_operator");
        let help = "Duration of reconciles, by namespace and result";
        registry.register("reconcile_duration_seconds", help, requests.reconcile_time.clone());
        let help = "Reconciles, by namespace and result";
        registry.register("reconcile", help, requests.reconciles.clone());
        let help = "Failed reconciles, by namespace and cause";
        registry.register("reconcile_errors", help, requests.errors.clone());
        let help = "Objects by namespace and phase; no series on replicas that do not lead";
        registry.register("resources_total", help, requests.phases.clone());
        let help = "Duration of admission reviews";
        registry.register("webhook_duration_seconds", help, requests.webhook_time.clone());
        registry.register("webhook_requests", "Admission reviews, by operation and result", requests.reviews.clone());
        registry.register(
            "webhook_denials",
            "Rejected admission reviews, by operation and reason",
            requests.denials.clone(),
        );
        requests
    }

    /// Records the phase of a request.
    pub fn set_phase(&self, namespace: &str, name: &str, phase: &str) {
        let phase = PHASES.iter().find(|known| **known == phase).copied().unwrap_or(PHASES[0]);
        let mut phase_by_request = self.phase_by_request();
        let before = phase_by_request.insert(NamespacedName::new(namespace, name), phase);
        if before == Some(phase) {
            return;
        }
        self.leave_phase(namespace, before);
        self.phases.get_or_create(&phase_labels(namespace, phase)).inc();
    }

    /// Removes a request, and with the last one of a namespace all its series.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut phase_by_request = self.phase_by_request();
        let before = phase_by_request.remove(&NamespacedName::new(namespace, name));
        self.leave_phase(namespace, before);
        let from = NamespacedName::new(namespace, "");
        let others = phase_by_request.range(from..).next().is_some_and(|(other, _)| other.namespace == namespace);
        if !others {
            self.forget_namespace(namespace);
        }
    }

    /// Removes all requests, when another replica becomes the leader.
    pub fn forget_all(&self) {
        let phase_by_request = std::mem::take(&mut *self.phase_by_request());
        for (NamespacedName { namespace, .. }, phase) in phase_by_request {
            self.leave_phase(&namespace, Some(phase));
            self.forget_namespace(&namespace);
        }
    }

    pub fn record_reconcile(&self, namespace: &str, result: ReconcileResult, time: Duration) {
        let word = match result {
            ReconcileResult::Success => RESULTS[0],
            ReconcileResult::Requeue => RESULTS[1],
            ReconcileResult::Error(_) => RESULTS[2],
        };
        let labels = reconcile_labels(namespace, word);
        self.reconciles.get_or_create(&labels).inc();
        self.reconcile_time.get_or_create(&labels).observe(time.as_secs_f64());
        if let ReconcileResult::Error(status) = result {
            self.errors.get_or_create(&error_labels(namespace, error_type(status))).inc();
        }
    }

    /// Counts one admission review; `denied` is the reason of a refusal.
    pub fn record_review(&self, operation: &str, denied: Option<&str>, time: Duration) {
        let operation = ("operation", known(operation, &OPERATIONS));
        let result = if denied.is_some() { "denied" } else { "allowed" };
        self.reviews.get_or_create(&labels(&[operation, ("result", result)])).inc();
        self.webhook_time.get_or_create(&labels(&[operation])).observe(time.as_secs_f64());
        if let Some(reason) = denied {
            self.denials.get_or_create(&labels(&[operation, ("reason", known(reason, &REASONS))])).inc();
        }
    }

    fn leave_phase(&self, namespace: &str, phase: Option<&'static str>) {
        let Some(phase) = phase.map(|phase| phase_labels(namespace, phase)) else { return };
        let left = self.phases.get_or_create(&phase).dec();
        if left <= 1 {
            self.phases.remove(&phase);
        }
    }

    fn forget_namespace(&self, namespace: &str) {
        for labels in RESULTS.map(|result| reconcile_labels(namespace, result)) {
            self.reconciles.remove(&labels);
            self.reconcile_time.remove(&labels);
        }
        for error in ERRORS.map(|error| error_labels(namespace, error)) {
            self.errors.remove(&error);
        }
    }

    fn phase_by_request(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, &'static str>> {
        self.phase_by_request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reconcile_labels(namespace: &str, result: &str) -> Labels {
    labels(&[("namespace", namespace), ("result", result)])
}

fn error_labels(namespace: &str, error_type: &str) -> Labels {
    labels(&[("namespace", namespace), ("error_type", error_type)])
}

fn phase_labels(namespace: &str, phase: &str) -> Labels {
    labels(&[("namespace", namespace), ("status", phase)])
}

fn labels(others: &[(&'static str, &str)]) -> Labels {
    let kind = [("resource_type", KIND)];
    kind.iter().chain(others).map(|(name, value)| (*name, (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    const OF: &str = "resource_type=\"DynamoGraphDeploymentRequest\"";

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    fn has(registry: &Registry, line: &str) {
        let text = text(registry);
        assert!(text.lines().any(|has| has == line), "{line} is not in\n{text}");
    }

    #[test]
    fn series_have_names_of_nvidias_operator() {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry);
        requests.set_phase("a", "x", "Profiling");
        requests.record_reconcile("a", ReconcileResult::Success, Duration::from_millis(2));
        requests.record_reconcile("a", ReconcileResult::Requeue, Duration::from_millis(2));
        requests.record_reconcile("a", ReconcileResult::Error(Some(409)), Duration::from_millis(2));
        requests.record_review("CREATE", None, Duration::from_millis(2));
        requests.record_review("UPDATE", Some("Invalid"), Duration::from_millis(2));
        requests.record_review("odd", Some("odd"), Duration::from_millis(2));
        for line in [
            format!("dynamo_operator_reconcile_total{{{OF},namespace=\"a\",result=\"success\"}} 1"),
            format!("dynamo_operator_reconcile_total{{{OF},namespace=\"a\",result=\"requeue\"}} 1"),
            format!("dynamo_operator_reconcile_duration_seconds_count{{{OF},namespace=\"a\",result=\"error\"}} 1"),
            format!("dynamo_operator_reconcile_errors_total{{{OF},namespace=\"a\",error_type=\"conflict\"}} 1"),
            format!("dynamo_operator_resources_total{{{OF},namespace=\"a\",status=\"Profiling\"}} 1"),
            format!("dynamo_operator_webhook_duration_seconds_count{{{OF},operation=\"CREATE\"}} 1"),
            format!("dynamo_operator_webhook_requests_total{{{OF},operation=\"CREATE\",result=\"allowed\"}} 1"),
            format!("dynamo_operator_webhook_denials_total{{{OF},operation=\"UPDATE\",reason=\"Invalid\"}} 1"),
            format!("dynamo_operator_webhook_denials_total{{{OF},operation=\"other\",reason=\"other\"}} 1"),
            "# TYPE dynamo_operator_resources_total gauge".to_owned(),
        ] {
            has(&registry, &line);
        }
    }

    #[test]
    fn last_request_removes_series_of_namespace() {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry);
        for name in ["x", "y"] {
            requests.set_phase("a", name, "");
            requests.set_phase("a", name, "Profiling");
        }
        requests.set_phase("ab", "z", "Failed");
        requests.record_reconcile("a", ReconcileResult::Error(None), Duration::ZERO);
        has(&registry, &format!("dynamo_operator_resources_total{{{OF},namespace=\"a\",status=\"Profiling\"}} 2"));
        assert!(!text(&registry).contains("status=\"Pending\""), "a phase without requests has no series");
        requests.forget("a", "x");
        has(&registry, &format!("dynamo_operator_resources_total{{{OF},namespace=\"a\",status=\"Profiling\"}} 1"));
        has(
            &registry,
            &format!("dynamo_operator_reconcile_errors_total{{{OF},namespace=\"a\",error_type=\"timeout\"}} 1"),
        );
        requests.forget("a", "y");
        assert!(!text(&registry).contains("namespace=\"a\""), "{}", text(&registry));
        has(&registry, &format!("dynamo_operator_resources_total{{{OF},namespace=\"ab\",status=\"Failed\"}} 1"));
        requests.forget("ab", "never there");
        has(&registry, &format!("dynamo_operator_resources_total{{{OF},namespace=\"ab\",status=\"Failed\"}} 1"));
        requests.forget_all();
        assert!(!text(&registry).contains("namespace="), "{}", text(&registry));
    }

    #[test]
    fn every_status_has_a_listed_error_type() {
        for status in [None].into_iter().chain((400..600).map(Some)) {
            assert!(ERRORS.contains(&error_type(status)), "{status:?}");
        }
    }
}
