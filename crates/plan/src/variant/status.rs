//! Builds the status of an object, and returns the stored one unchanged if only figures moved, so that a settled object
//! causes no write.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_api::variant::v1alpha1::{
    Actuation, CurrentAlloc, DecisionStatus, DesiredOptimizedAlloc, LastUpdate, VariantAutoscalingStatus,
};
use steersman_reconcile::{Event, EventType, Lookup, Severity};

use super::analyze::MetricsState;
use super::config::ConfigFinding;
use super::decision_status::{MAX_FACTORS, fresh, is_same, is_stale, limit_factors};
use super::eligibility::Conflict;
use super::names;
use super::plan::{Decision, DecisionKind};
use super::snapshot::{MetricsError, ObservedVariant};
use super::trace::{DecidedBy, Factor, FactorCode, Stage};

const WRITTEN_BY_CONFLICT: &str = "DeploymentTargetConflict";
const STALE: &str = "MetricsStale";
const SKIPPED: &str = "SkippedProcessing";
const EXCLUDED: &str = "NamespaceExcluded";
/// Limit of `numReplicasChanged` in the schema.
const LARGEST_CHANGE: i32 = 10_000;
/// Faults that the message of one condition describes.
const MOST_FAULTS: usize = 5;
/// `maxItems` of `status.configFaults`.
const MAX_STORED_FAULTS: usize = 20;

pub fn status(
    variant: &ObservedVariant,
    decision: &Decision,
    applied: bool,
    now: Timestamp,
) -> VariantAutoscalingStatus {
    let stored = variant.status.clone().unwrap_or_default();
    let mut status = VariantAutoscalingStatus::clone(&stored);
    if variant.starts_over() || decision.kind == DecisionKind::Suppressed {
        status.desired_optimized_alloc = None;
    }
    if variant.is_retargeted() {
        status.current_alloc = None;
    }
    if let Some(replicas) = running(variant) {
        status.current_alloc = Some(CurrentAlloc { num_replicas: replicas });
    }
    if let Some(replicas) = decision.replicas {
        status.desired_optimized_alloc = Some(desired(&status, decision, replicas, now));
        status.actuation = Some(Actuation { applied });
    } else if decision.kind == DecisionKind::Suppressed || status.actuation.is_some() {
        status.actuation = Some(Actuation { applied: false });
    }
    let fresh = fresh(variant, decision, time(now));
    let same = stored.decision.as_ref().filter(|known| is_same(known, &fresh));
    let mut kept = stored.conditions.clone();
    forget(variant, decision, &mut kept);
    let mut statements = statements(variant, decision, same.unwrap_or(&fresh));
    statements.iter_mut().for_each(|statement| keep_age(statement, &stored, &variant.spec.model_id));
    status.conditions = conditions::merge(&kept, &statements, variant.generation, now);
    status.decision = Some(match same {
        Some(known) if status.conditions == stored.conditions => known.clone(),
        // The conditions changed, so the status is written in any case: with current factors and figures, but with the
        // wanted number that the conditions name.
        Some(known) => DecisionStatus { wanted: known.wanted, ..fresh },
        None => fresh,
    });
    status.config_faults = faults(variant).take(MAX_STORED_FAULTS).map(ConfigFinding::fault).collect();
    if status != *stored
        && let Some(desired) = status.desired_optimized_alloc.as_mut().filter(|_| decision.replicas.is_some())
    {
        desired.last_run_time = Some(time(now));
    }
    status
}

/// `None` if the scale target cannot be read; the stored value then stays.
fn running(variant: &ObservedVariant) -> Option<i32> {
    let target = variant.target.known()?.as_ref()?;
    Some(target.status_replicas.or(target.replicas).unwrap_or(1).max(0))
}

/// The API server stores whole seconds.
fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// `lastUpdate.reason` belongs to the last change of the number; conditions report what holds it since.
fn desired(
    stored: &VariantAutoscalingStatus,
    decision: &Decision,
    replicas: i32,
    now: Timestamp,
) -> DesiredOptimizedAlloc {
    let mut desired = stored.desired_optimized_alloc.clone().unwrap_or_default();
    let before = desired.num_replicas;
    let update = desired.last_update.clone().unwrap_or_default();
    let untold = update.reason.as_deref().unwrap_or_default().is_empty() || update.update_time.is_none();
    if before != Some(replicas) || untold {
        let changed = replicas.saturating_sub(before.unwrap_or_default());
        desired.last_update = Some(LastUpdate {
            update_time: Some(time(now)),
            num_replicas_changed: Some(changed.clamp(-LARGEST_CHANGE, LARGEST_CHANGE)),
            reason: Some(decision.reason.clone()),
            unclamped_reason: decision.unclamped_reason.clone(),
        });
    }
    desired.num_replicas = Some(replicas);
    // The newer schema requires at least two characters.
    if decision.accelerator.chars().count() >= 2 {
        desired.accelerator = Some(decision.accelerator.clone());
    }
    desired
}

/// Removes conditions whose cause is gone.
fn forget(variant: &ObservedVariant, decision: &Decision, kept: &mut Vec<Condition>) {
    if config(variant).is_none() {
        conditions::remove(kept, names::CONFIG);
    }
    if decision.conflict.is_none() {
        conditions::remove(kept, names::CONFLICT);
    }
    let lost = matches!(decision.conflict, Some(Conflict::Lost { .. }));
    let ours = conditions::find(kept, names::READY).is_some_and(|ready| ready.reason == WRITTEN_BY_CONFLICT);
    if ours && !lost {
        conditions::remove(kept, names::READY);
    }
}

fn statements(variant: &ObservedVariant, decision: &Decision, stored_decision: &DecisionStatus) -> Vec<Statement> {
    let (conflict, ready) = match &decision.conflict {
        None => (None, None),
        Some(won @ Conflict::Won { .. }) => {
            (Some(say(names::CONFLICT, Truth::True, "ConflictResolvedByArbitration", won.message())), None)
        }
        Some(lost @ Conflict::Lost { .. }) => {
            let told = say(names::CONFLICT, Truth::True, "SuppressedDueToConflict", lost.message());
            let words = "Suppressed due to deployment target conflict".to_owned();
            (Some(told), Some(say(names::READY, Truth::False, WRITTEN_BY_CONFLICT, words)))
        }
    };
    let told = [
        Some(target(variant)),
        metrics(variant, decision),
        Some(optimization(decision, stored_decision)),
        conflict,
        ready,
    ];
    told.into_iter().chain([Some(spec(decision)), config(variant)]).flatten().collect()
}

fn say(type_: &str, truth: Truth, reason: &str, message: String) -> Statement {
    Statement { type_: type_.to_owned(), truth, reason: reason.to_owned(), message }
}

fn target(variant: &ObservedVariant) -> Statement {
    let named = variant.workload();
    match &variant.target {
        _ if named.is_empty() => {
            let words = "spec.scaleTargetRef is missing; set kind and name of the workload to scale".to_owned();
            say(names::TARGET, Truth::False, "TargetNotFound", words)
        }
        Lookup::Known(Some(_)) => say(names::TARGET, Truth::True, "TargetFound", format!("Scale target {named} found")),
        Lookup::Known(None) => {
            let namespace = &variant.key.namespace;
            let words = format!(
                "Scale target {named} not found in namespace {namespace}. Create it or correct spec.scaleTargetRef. No \
                 replicas are decided until then"
            );
            say(names::TARGET, Truth::False, "TargetNotFound", words)
        }
        Lookup::Unknown(why) => {
            let words = format!("Scale target {named} could not be read: {why}");
            say(names::TARGET, Truth::Unknown, "TargetUnknown", words)
        }
    }
}

/// Keeps the first reported age of stale metrics in the message, so that growing age causes no write.
fn keep_age(statement: &mut Statement, stored: &VariantAutoscalingStatus, model: &str) {
    let known = conditions::find(&stored.conditions, &statement.type_);
    let known = known.filter(|known| known.reason == statement.reason && known.reason == STALE);
    if let Some(known) = known.filter(|_| is_stale(stored, model)) {
        statement.message.clone_from(&known.message);
    }
}

fn metrics(variant: &ObservedVariant, decision: &Decision) -> Option<Statement> {
    let (model, namespace) = (&variant.spec.model_id, &variant.key.namespace);
    let (truth, reason, message) = match &decision.metrics {
        MetricsState::NotQueried => return not_queried(variant, decision),
        MetricsState::Available => {
            let words = "Saturation metrics data is available for scaling decisions".to_owned();
            (Truth::True, "MetricsFound", words)
        }
        MetricsState::Unavailable(MetricsError::NotFound) => (
            Truth::False,
            "MetricsMissing",
            format!(
                "No vLLM metrics found for model '{model}' in namespace '{namespace}'. Check: (1) ServiceMonitor exists in \
                 monitoring namespace, (2) ServiceMonitor selector matches vLLM service labels, (3) vLLM pods are running \
                 and exposing /metrics endpoint, (4) Prometheus is scraping the monitoring namespace"
            ),
        ),
        MetricsState::Unavailable(MetricsError::ModelNameMismatch(others)) => {
            let others = others.iter().map(|other| format!("'{other}'")).collect::<Vec<_>>().join(", ");
            let words = format!(
                "No vLLM metrics found for model '{model}' in namespace '{namespace}'. Pods there report metrics of {others}, \
                 which no VariantAutoscaling has as modelID. Set spec.modelID to the name under which the server serves \
                 the model (--served-model-name)"
            );
            (Truth::False, "MetricsMissing", words)
        }
        MetricsState::Unavailable(MetricsError::Stale(age)) => (
            Truth::False,
            STALE,
            format!(
                "vLLM metrics for model '{model}' are stale (last update: {age} ago). ServiceMonitor may not be scraping \
                 correctly."
            ),
        ),
        MetricsState::Unavailable(MetricsError::QueryFailed(why)) => {
            (Truth::False, "PrometheusError", format!("Failed to query Prometheus: {why}"))
        }
        MetricsState::Unavailable(MetricsError::NotConfigured(why)) => {
            (Truth::False, "PrometheusError", format!("Prometheus API not configured: {why}"))
        }
        MetricsState::Incomplete(what) => (
            Truth::False,
            "MetricsMissing",
            format!(
                "No saturation metrics available - pods may not be ready or metrics not yet scraped: {what}. Replicas stay \
                 as they are until the metrics are complete"
            ),
        ),
        MetricsState::Partial(what) => (
            Truth::True,
            "MetricsPartial",
            format!(
                "Metrics of some pods are missing: {what}. Replicas are decided from the other pods; a pod without metrics \
                 adds no replicas, and it counts as busy before any are removed. Check that it exposes /metrics and that \
                 Prometheus scrapes it"
            ),
        ),
        MetricsState::NoReplicas => (
            Truth::False,
            "MetricsMissing",
            format!(
                "No replica of model '{model}' runs in namespace '{namespace}', so there are no metrics. To start one, \
                 scale {} or set spec.minReplicas to 1",
                variant.workload()
            ),
        ),
    };
    Some(say(names::METRICS, truth, reason, message))
}

/// Why metrics were not queried for an object that is not decided on. An earlier statement about its metrics no longer
/// applies.
fn not_queried(variant: &ObservedVariant, decision: &Decision) -> Option<Statement> {
    const MISSING: &str = "No saturation metrics available - pods may not be ready or metrics not yet scraped";
    let (truth, reason, message) = match (&decision.kind, &variant.target) {
        (DecisionKind::Suppressed, _) => (
            Truth::False,
            SKIPPED,
            "Metrics are not queried: another VariantAutoscaling decides for this scale target".to_owned(),
        ),
        (DecisionKind::Failed(_), Lookup::Known(None)) if variant.workload().is_empty() => {
            (Truth::False, "MetricsMissing", format!("{MISSING}: spec.scaleTargetRef is missing"))
        }
        (DecisionKind::Failed(_), Lookup::Known(None)) => {
            (Truth::False, "MetricsMissing", format!("{MISSING}: {} does not exist", variant.workload()))
        }
        (DecisionKind::Failed(_), Lookup::Unknown(_)) => {
            let words = format!("{MISSING}: {} could not be read", variant.workload());
            (Truth::Unknown, SKIPPED, words)
        }
        (DecisionKind::Failed(why), _) => {
            (Truth::False, "InvalidConfiguration", format!("Metrics are not queried: {why}"))
        }
        _ => return None,
    };
    Some(say(names::METRICS, truth, reason, message))
}

/// The wanted number is that of `status.decision`, so that both agree.
fn optimization(decision: &Decision, stored: &DecisionStatus) -> Statement {
    let replicas = decision.replicas.unwrap_or_default();
    let trace = &decision.trace;
    let limited = |limits: &str| match stored.wanted {
        Some(wanted) if stored.wanted != stored.granted || trace.is_unmoved() => {
            format!("; wanted {wanted}, limited by {limits}")
        }
        _ => String::new(),
    };
    let (truth, reason, message) = match &decision.kind {
        DecisionKind::Suppressed => {
            let words =
                "No replicas are decided: another VariantAutoscaling decides for this scale target; see condition \
                 DeploymentTargetConflict"
                    .to_owned();
            (Truth::False, SKIPPED, words)
        }
        DecisionKind::Failed(why) => (Truth::False, "OptimizationFailed", why.text.clone()),
        DecisionKind::Held => {
            let mut words = format!("{} ({replicas} replicas)", decision.reason);
            if !trace.limits.is_empty() {
                words += &limited(&trace.limit_texts().join(", "));
            }
            (Truth::True, "FallbackUsed", words)
        }
        DecisionKind::Decided => {
            let on = if decision.accelerator.is_empty() { "unknown accelerator" } else { &decision.accelerator };
            let limits = match trace.limits.is_empty() {
                true => trace.hold_text().unwrap_or_default().to_owned(),
                false => trace.limit_texts().join(", "),
            };
            let limits = limited(&limits);
            let words = format!("Optimization completed: {replicas} replicas on {on}{limits}");
            (Truth::True, "OptimizationSucceeded", words)
        }
    };
    say(names::OPTIMIZATION, truth, reason, message)
}

fn spec(decision: &Decision) -> Statement {
    match decision.findings.first() {
        None => {
            let words = "Every field of the spec is acted on.".to_owned();
            say(names::SPEC, Truth::True, names::SPEC, words)
        }
        Some(first) => {
            let told = decision.findings.iter().map(ToString::to_string);
            say(names::SPEC, Truth::True, first.reason, told.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Findings that require a correction.
fn faults(variant: &ObservedVariant) -> impl Iterator<Item = &ConfigFinding> {
    variant.config.iter().filter(|finding| finding.severity != Severity::Info)
}

/// `None` if there is nothing to correct.
fn config(variant: &ObservedVariant) -> Option<Statement> {
    let faults: Vec<&ConfigFinding> = faults(variant).collect();
    let first = faults.first()?;
    let told: Vec<String> = faults.iter().take(MOST_FAULTS).map(|fault| fault.to_string()).collect();
    let more = faults.len().saturating_sub(MOST_FAULTS);
    let more = if more > 0 { format!(" {more} more faults are in the log of Steersman.") } else { String::new() };
    Some(say(names::CONFIG, Truth::False, first.reason, format!("{}{more}", told.join(" "))))
}

/// The last status of an object whose namespace was excluded. It is written once: `None` if the status already reports the exclusion, the object is being deleted, or it has no status. The stored
/// decision stays, but is no longer published, so nothing acts on it.
pub fn excluded_status(variant: &ObservedVariant, now: Timestamp) -> Option<(VariantAutoscalingStatus, Event)> {
    let stored = variant.status.as_deref().filter(|_| !variant.deleting)?;
    let optimization = conditions::find(&stored.conditions, names::OPTIMIZATION);
    if optimization.is_some_and(|condition| condition.reason == EXCLUDED) {
        return None;
    }
    let message = format!(
        "No replicas are decided: namespace {} has annotation {}=true. The last decision is kept but no longer published, so \
         replicas stay as they are. Remove the annotation to resume",
        variant.key.namespace,
        names::EXCLUDE_ANNOTATION
    );
    let mut status = stored.clone();
    // Neither settings nor conflicts are evaluated for an excluded object.
    for over in [names::CONFIG, names::CONFLICT] {
        conditions::remove(&mut status.conditions, over);
    }
    status.config_faults.clear();
    status.conditions.retain(|known| known.type_ != names::READY || known.reason != WRITTEN_BY_CONFLICT);
    let statements = [
        say(names::METRICS, Truth::False, SKIPPED, "Metrics are not queried: the namespace is excluded".to_owned()),
        say(names::OPTIMIZATION, Truth::False, EXCLUDED, message.clone()),
    ];
    status.conditions = conditions::merge(&status.conditions, &statements, variant.generation, now);
    status.actuation = Some(Actuation { applied: false });
    if let Some(decision) = &mut status.decision {
        // Factors derived from the texts of an earlier version are stored too: those texts are ignored once factors
        // exist.
        decision.factors = limit_factors(decision);
        // The schema limits the list, and the last place is needed below.
        decision.factors.truncate(MAX_FACTORS - 1);
        decision.factors.push(Factor::new(FactorCode::NamespaceExcluded).stored(Stage::Hold));
        decision.hold = Some("the namespace is excluded".to_owned());
        decision.decided_by = Some(DecidedBy::Hold.as_str().to_owned());
        decision.time = Some(time(now));
    }
    Some((status, Event { type_: EventType::Normal, reason: EXCLUDED, message }))
}
