//! Measurements of DynamoGraphDeploymentRequests, under the names and labels that dashboards of NVIDIA's operator look for.
//! Comes in: passes over requests, the phases they stand in, and verdicts on them; goes out: the series of a registry. The
//! series of a namespace are there for as long as it has requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use steersman_api::Family as Api;
use steersman_reconcile::NamespacedName;

const KIND: &str = Api::Dgdr.kind();

/// Phases as they are stored. What is none of them counts as the first.
const PHASES: [&str; 6] = ["Pending", "Profiling", "Ready", "Deploying", "Deployed", "Failed"];

/// From a pass that finds nothing to do to one whose calls all take their time.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub struct Requests {
    passes: Family<Pass, Counter>,
    pass_time: Histograms<Pass>,
    errors: Family<ReconcileError, Counter>,
    phases: Family<Standing, Gauge>,
    webhook_time: Histograms<Operation>,
    verdicts: Family<Verdict, Counter>,
    denials: Family<Denial, Counter>,
    /// Namespace and name of each request, and the phase it stands in.
    standing: Mutex<BTreeMap<NamespacedName, &'static str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    resource_type: &'static str,
    namespace: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileError {
    resource_type: &'static str,
    namespace: String,
    error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    resource_type: &'static str,
    namespace: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    resource_type: &'static str,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verdict {
    resource_type: &'static str,
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Denial {
    resource_type: &'static str,
    operation: &'static str,
    reason: &'static str,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Well,
    /// It is made again after some time.
    Again,
    /// With the HTTP status of the API server's answer, if there was one.
    Failed(Option<u16>),
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

/// An answer's status tells a conflict and a name that is taken apart by the text alone; both are conflicts here.
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
        // Nobody answered in time, or at all.
        None => "timeout",
    }
}

/// What Kubernetes calls an operation, and a reason of a refusal. Others are not made up by anybody but strangers.
fn known(word: &str, all: &[&'static str]) -> &'static str {
    all.iter().find(|known| **known == word).copied().unwrap_or("other")
}

const OPERATIONS: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
const REASONS: [&str; 6] = ["Invalid", "Forbidden", "BadRequest", "Timeout", "InternalError", "NotFound"];

impl Requests {
    pub fn register(registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let requests = Self {
            passes: Family::default(),
            pass_time: Family::new_with_constructor(histogram),
            errors: Family::default(),
            phases: Family::default(),
            webhook_time: Family::new_with_constructor(histogram),
            verdicts: Family::default(),
            denials: Family::default(),
            standing: Mutex::default(),
        };
        let registry = registry.sub_registry_with_prefix("dynamo_operator");
        let help = "How long passes over single objects take, by namespace and how they ended";
        registry.register("reconcile_duration_seconds", help, requests.pass_time.clone());
        let help = "Passes over single objects, by namespace and how they ended";
        registry.register("reconcile", help, requests.passes.clone());
        let help = "Passes that failed, by namespace and cause";
        registry.register("reconcile_errors", help, requests.errors.clone());
        let help = "Objects by namespace and phase; 0 on replicas that do not lead";
        registry.register("resources_total", help, requests.phases.clone());
        let help = "How long verdicts on objects took";
        registry.register("webhook_duration_seconds", help, requests.webhook_time.clone());
        registry.register("webhook_requests", "Verdicts on objects", requests.verdicts.clone());
        registry.register("webhook_denials", "Objects that were refused, by reason", requests.denials.clone());
        requests
    }

    /// The request stands in this phase.
    pub fn stands(&self, namespace: &str, name: &str, phase: &str) {
        let phase = PHASES.iter().find(|known| **known == phase).copied().unwrap_or(PHASES[0]);
        let mut standing = self.standing();
        let before = standing.insert(NamespacedName::new(namespace, name), phase);
        if before == Some(phase) {
            return;
        }
        self.leaves(namespace, before);
        self.phases.get_or_create(&of_phase(namespace, phase)).inc();
    }

    /// The request is gone, and with the last one of a namespace all that was measured there.
    pub fn forget(&self, namespace: &str, name: &str) {
        let mut standing = self.standing();
        let before = standing.remove(&NamespacedName::new(namespace, name));
        self.leaves(namespace, before);
        let from = NamespacedName::new(namespace, "");
        let others = standing.range(from..).next().is_some_and(|(other, _)| other.namespace == namespace);
        if !others {
            self.forget_namespace(namespace);
        }
    }

    /// Another replica leads from now on.
    pub fn forget_all(&self) {
        let standing = std::mem::take(&mut *self.standing());
        for (NamespacedName { namespace, .. }, phase) in standing {
            self.leaves(&namespace, Some(phase));
            self.forget_namespace(&namespace);
        }
    }

    /// Counts one pass over a request that is there.
    pub fn passed(&self, namespace: &str, ended: Ended, time: Duration) {
        let result = match ended {
            Ended::Well => RESULTS[0],
            Ended::Again => RESULTS[1],
            Ended::Failed(_) => RESULTS[2],
        };
        let pass = of_pass(namespace, result);
        self.passes.get_or_create(&pass).inc();
        self.pass_time.get_or_create(&pass).observe(time.as_secs_f64());
        if let Ended::Failed(status) = ended {
            self.errors.get_or_create(&of_error(namespace, error_type(status))).inc();
        }
    }

    /// Counts one verdict; `denied` has the reason of a refusal.
    pub fn judged(&self, operation: &str, denied: Option<&str>, time: Duration) {
        let (resource_type, operation) = (KIND, known(operation, &OPERATIONS));
        let result = if denied.is_some() { "denied" } else { "allowed" };
        self.verdicts.get_or_create(&Verdict { resource_type, operation, result }).inc();
        self.webhook_time.get_or_create(&Operation { resource_type, operation }).observe(time.as_secs_f64());
        if let Some(reason) = denied {
            let reason = known(reason, &REASONS);
            self.denials.get_or_create(&Denial { resource_type, operation, reason }).inc();
        }
    }

    fn leaves(&self, namespace: &str, phase: Option<&'static str>) {
        let Some(phase) = phase.map(|phase| of_phase(namespace, phase)) else { return };
        let left = self.phases.get_or_create(&phase).dec();
        if left <= 1 {
            self.phases.remove(&phase);
        }
    }

    fn forget_namespace(&self, namespace: &str) {
        for pass in RESULTS.map(|result| of_pass(namespace, result)) {
            self.passes.remove(&pass);
            self.pass_time.remove(&pass);
        }
        for error in ERRORS.map(|error| of_error(namespace, error)) {
            self.errors.remove(&error);
        }
    }

    fn standing(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, &'static str>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_pass(namespace: &str, result: &'static str) -> Pass {
    Pass { resource_type: KIND, namespace: namespace.to_owned(), result }
}

fn of_error(namespace: &str, error_type: &'static str) -> ReconcileError {
    ReconcileError { resource_type: KIND, namespace: namespace.to_owned(), error_type }
}

fn of_phase(namespace: &str, status: &'static str) -> Standing {
    Standing { resource_type: KIND, namespace: namespace.to_owned(), status }
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
    fn the_names_and_labels_are_those_of_nvidias_operator() {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        requests.stands("a", "x", "Profiling");
        requests.passed("a", Ended::Well, Duration::from_millis(2));
        requests.passed("a", Ended::Again, Duration::from_millis(2));
        requests.passed("a", Ended::Failed(Some(409)), Duration::from_millis(2));
        requests.judged("CREATE", None, Duration::from_millis(2));
        requests.judged("UPDATE", Some("Invalid"), Duration::from_millis(2));
        requests.judged("odd", Some("odd"), Duration::from_millis(2));
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
    fn a_request_stands_in_one_phase_and_its_namespace_goes_with_the_last_one() {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        for name in ["x", "y"] {
            requests.stands("a", name, "");
            requests.stands("a", name, "Profiling");
        }
        requests.stands("ab", "z", "Failed");
        requests.passed("a", Ended::Failed(None), Duration::ZERO);
        has(&registry, &format!("dynamo_operator_resources_total{{{OF},namespace=\"a\",status=\"Profiling\"}} 2"));
        assert!(!text(&registry).contains("status=\"Pending\""), "a phase in which nobody stands is not told");
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
    fn every_status_has_a_type_that_can_be_forgotten() {
        for status in [None].into_iter().chain((400..600).map(Some)) {
            assert!(ERRORS.contains(&error_type(status)), "{status:?}");
        }
    }
}
