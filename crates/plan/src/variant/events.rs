//! Chooses the event for a changed object, and the hints about the fleet that go to the log. An unchanged object causes
//! no event.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_reconcile::{Event, EventType, NamespacedName};

use super::decision_status::constraint;
use super::plan::{Decision, DecisionKind};
use super::snapshot::{FleetSnapshot, ObservedVariant};
use super::{MetricsState, names};

/// Time that new replicas have before missing metrics are reported.
const COMING: SignedDuration = SignedDuration::from_mins(10);

/// Whether the stored status says that another object decides on the scale target.
pub fn is_suppressed(status: &VariantAutoscalingStatus) -> bool {
    conditions::find(&status.conditions, names::CONFLICT)
        .is_some_and(|conflict| conflict.reason == "SuppressedDueToConflict")
}

/// The subject of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintKind {
    DefaultCosts,
    MinReplicas,
}

/// A setup that is valid but rarely intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub kind: HintKind,
    pub message: &'static str,
    pub variants: Vec<NamespacedName>,
    pub recommendation: &'static str,
}

/// Messages keep the Go operator's wording, because users search their logs for it.
pub fn hints(seen: &FleetSnapshot) -> Vec<Hint> {
    let living: Vec<&ObservedVariant> = seen.variants.iter().filter(|variant| !variant.deleting).collect();
    let keys = |found: Vec<&ObservedVariant>| {
        let mut keys: Vec<NamespacedName> = found.into_iter().map(|variant| variant.key.clone()).collect();
        keys.sort();
        keys
    };
    let usual: Vec<&ObservedVariant> =
        living.iter().copied().filter(|one| ["", "10"].contains(&one.spec.variant_cost.as_str())).collect();
    let mut hints = Vec::new();
    if living.len() > 1 && !usual.is_empty() {
        hints.push(Hint {
            kind: HintKind::DefaultCosts,
            message: "Warning: Multiple variants detected with some using default variantCost",
            variants: keys(usual),
            recommendation: "Set spec.variantCost of each variant to the cost of one replica: cheaper variants are scaled up first",
        });
    }
    let mut models: BTreeMap<(&str, &str), Vec<&ObservedVariant>> = BTreeMap::new();
    for one in living.into_iter().filter(|one| one.spec.min_replicas > 0) {
        models.entry((&one.key.namespace, &one.spec.model_id)).or_default().push(one);
    }
    for variants in models.into_values().filter(|variants| variants.len() > 1) {
        hints.push(Hint {
            kind: HintKind::MinReplicas,
            message: "Multiple variants with minReplicas > 0 may lead to unnecessary GPU utilization",
            variants: keys(variants),
            recommendation: "Set spec.minReplicas above 0 on one variant of the model only, and to 0 on the others",
        });
    }
    hints
}

/// The most important change of this reconcile. The first decision for an object or a new scale target causes no event.
pub fn event(variant: &ObservedVariant, decision: &Decision, status: &VariantAutoscalingStatus) -> Option<Event> {
    let stored = variant.status.clone().unwrap_or_default();
    let number = |status: &VariantAutoscalingStatus| status.desired_optimized_alloc.as_ref()?.num_replicas;
    if let (Some(before), Some(after)) = (number(&stored), number(status))
        && before != after
        && !variant.starts_over()
    {
        let reason = match after {
            0 => "ScaledToZero",
            _ if after > before => "ScaledUp",
            _ => "ScaledDown",
        };
        let message = format!("From {before} to {after} replicas: {}", decision.reason);
        return Some(Event { type_: EventType::Normal, reason, message });
    }
    let turned = |type_: &str, to: &str| turned(&stored, status, type_, to);
    if let Some(conflict) = turned(names::CONFLICT, "True") {
        return Some(warning("DeploymentTargetConflict", &conflict.message));
    }
    if matches!(decision.kind, DecisionKind::Failed(_))
        && let Some(failed) = turned(names::OPTIMIZATION, "False")
    {
        return Some(warning("OptimizationFailed", &failed.message));
    }
    // Metrics that were never available are not reported as lost.
    let had = conditions::find(&stored.conditions, names::METRICS).is_some_and(|metrics| metrics.status == "True");
    if had
        && !expected(decision, status)
        && let Some(silent) = turned(names::METRICS, "False")
    {
        return Some(warning("MetricsUnavailable", &silent.message));
    }
    // The wanted number moves with the load, so a change of it alone causes no event.
    let constraint_now = constraint(status)?;
    if constraint(&stored).is_some_and(|known| known == constraint_now) {
        return None;
    }
    let optimization = conditions::find(&status.conditions, names::OPTIMIZATION)?;
    Some(warning("ResourceConstrained", &optimization.message))
}

/// Whether missing metrics are normal: no replica runs, or replicas were added a short time ago.
fn expected(decision: &Decision, status: &VariantAutoscalingStatus) -> bool {
    let grown = || {
        let desired = status.desired_optimized_alloc.as_ref()?;
        let update = desired.last_update.as_ref().filter(|update| update.num_replicas_changed > Some(0))?;
        let since = desired.last_run_time.as_ref()?.0.duration_since(update.update_time.as_ref()?.0);
        Some(since < COMING)
    };
    match decision.metrics {
        MetricsState::NoReplicas => true,
        MetricsState::Incomplete(_) => grown().unwrap_or(false),
        _ => false,
    }
}

fn warning(reason: &'static str, message: &str) -> Event {
    Event { type_: EventType::Warning, reason, message: message.to_owned() }
}

/// The condition, if it has this status now and did not have it before.
fn turned<'a>(
    stored: &VariantAutoscalingStatus,
    status: &'a VariantAutoscalingStatus,
    type_: &str,
    to: &str,
) -> Option<&'a Condition> {
    let before = conditions::find(&stored.conditions, type_).is_some_and(|known| known.status == to);
    conditions::find(&status.conditions, type_).filter(|known| known.status == to && !before)
}
