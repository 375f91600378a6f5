//! Builds `status.decision`, and keeps the stored one while its factors are the same, so that a settled object causes no
//! write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman_api::meta::conditions;
use steersman_api::variant::v1alpha1::{
    DecidedTarget, DecisionFactor, DecisionStatus, LatencyStatus, ServiceLevelStatus, VariantAutoscalingStatus,
};

use super::analyze::service_levels::{Latency, ServiceLevelDecision};
use super::plan::Decision;
use super::snapshot::ObservedVariant;
use super::trace::{self, DecidedBy, DecisionTrace, FactorCode, Stage};
use super::{legacy_texts, names};

/// Limit of each stored text.
const MAX_TEXT_BYTES: usize = 300;
const ELLIPSIS: char = '…';
/// `maxItems` of the schema.
const MAX_LIMITS: usize = 8;
pub const MAX_FACTORS: usize = 16;

pub fn fresh(variant: &ObservedVariant, decision: &Decision, time: Time) -> DecisionStatus {
    let trace = &decision.trace;
    let number = |number: i32| decision.replicas.map(|_| number.max(0));
    let stored = variant.status.as_deref().and_then(|status| status.decision.as_ref());
    let target = variant.spec.scale_target_ref.as_ref().map(|target| DecidedTarget {
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        name: target.name.clone(),
    });
    DecisionStatus {
        time: Some(time),
        wanted: number(trace.wanted),
        granted: number(trace.granted),
        decided_by: Some(trace.decided_by.as_str().to_owned()),
        // An object without a scale target is not decided on, so the stored number belongs to the previous target.
        scale_target_ref: target.or_else(|| stored?.scale_target_ref.clone()),
        factors: factors(trace),
        signal: shortened(&trace.signal.text),
        need: shortened(&trace.need),
        solver: shortened(&trace.solver),
        limits: trace.limits.iter().filter_map(|limit| shortened(&limit.text)).take(MAX_LIMITS).collect(),
        hold: trace.hold.as_ref().and_then(|hold| shortened(&hold.text)),
        service_level: decision.service_level.as_ref().map(service_level),
    }
}

fn service_level(decision: &ServiceLevelDecision) -> ServiceLevelStatus {
    let latency = |latency: Latency| {
        let stored = LatencyStatus {
            ttft_milliseconds: latency.ttft.and_then(rounded),
            itl_milliseconds: latency.itl.and_then(rounded),
        };
        Some(stored).filter(|stored| *stored != LatencyStatus::default())
    };
    ServiceLevelStatus {
        class: Some(decision.class.clone()),
        target: latency(decision.targets),
        predicted: latency(decision.predicted),
        measured: latency(decision.measured),
        requests_per_second: rounded(decision.arrival_rate),
        grows_above: decision.grows_above.and_then(rounded),
        shrinks_below: decision.shrinks_below.and_then(rounded),
    }
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> Option<f64> {
    format!("{value:.2e}").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Limits come first: events depend on them, so they are the last to be truncated.
fn factors(trace: &DecisionTrace) -> Vec<DecisionFactor> {
    let limits = trace.limits.iter().flat_map(|limit| &limit.factors).map(|factor| factor.stored(Stage::Limits));
    let hold = trace.hold.iter().flat_map(|hold| &hold.factors).map(|factor| factor.stored(Stage::Hold));
    let signal = trace.signal.factors.iter().map(|factor| factor.stored(Stage::Signal));
    limits.chain(hold).chain(signal).take(MAX_FACTORS).collect()
}

fn shortened(text: &str) -> Option<String> {
    let kept = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    match (kept.len() < text.len(), kept.is_empty()) {
        (_, true) => None,
        (true, _) => Some(format!("{kept}{ELLIPSIS}")),
        (false, _) => Some(kept.to_owned()),
    }
}

/// Whether both have the same explanation. Texts are ignored, because their figures move with the load.
pub fn is_same(stored: &DecisionStatus, fresh: &DecisionStatus) -> bool {
    stored.granted == fresh.granted
        && stored.decided_by == fresh.decided_by
        && stored.scale_target_ref == fresh.scale_target_ref
        && stored.factors == fresh.factors
        && is_same_class(stored, fresh)
        && is_alike(stored, fresh)
}

/// Whether both are about the same latency targets.
fn is_same_class(stored: &DecisionStatus, fresh: &DecisionStatus) -> bool {
    let class = |decision: &DecisionStatus| {
        decision.service_level.as_ref().map(|level| (level.class.clone(), level.target.clone()))
    };
    class(stored) == class(fresh)
}

/// Whether the wanted numbers are close. The wanted number moves with the load, so it is stored again only when it has
/// doubled or halved, or when it crosses the granted number.
fn is_alike(stored: &DecisionStatus, fresh: &DecisionStatus) -> bool {
    let side = |decision: &DecisionStatus| decision.wanted.cmp(&decision.granted);
    let (one, other) = (stored.wanted.unwrap_or_default(), fresh.wanted.unwrap_or_default());
    let close = one == other || one.max(other) < one.min(other).saturating_mul(2);
    side(stored) == side(fresh) && close
}

pub fn limit_factors(decision: &DecisionStatus) -> Vec<DecisionFactor> {
    if decision.factors.is_empty() {
        return decision.limits.iter().filter_map(|text| legacy_texts::limit(text)).collect();
    }
    let is_limit = |factor: &&DecisionFactor| factor.stage == Stage::Limits.as_str();
    decision.factors.iter().filter(is_limit).cloned().collect()
}

/// Whether the stored decision says that the scale target stays at `current` and does not follow.
pub fn is_unmoved_at(status: &VariantAutoscalingStatus, current: i32) -> bool {
    let Some(decision) = &status.decision else { return false };
    let unmoved = |factor: &DecisionFactor| {
        trace::is(factor, Stage::Limits, FactorCode::WorkloadUnmoved) && factor.replicas == Some(current)
    };
    limit_factors(decision).iter().any(unmoved)
}

/// The obstacle between the wanted and the granted number. An event is sent when it changes.
#[derive(PartialEq, Eq)]
pub struct Constraint {
    /// Reason of condition `OptimizationReady`. It differs after an exclusion, so that the event is sent again.
    reason: String,
    accelerator: Option<String>,
    limits: Vec<DecisionFactor>,
}

/// `None` if the wanted number is granted and the scale target follows it.
pub fn constraint(status: &VariantAutoscalingStatus) -> Option<Constraint> {
    let decision = status.decision.as_ref()?;
    let reason = conditions::find(&status.conditions, names::OPTIMIZATION)?.reason.clone();
    let mut limits = limit_factors(decision);
    let unmoved = limits.iter().any(|factor| trace::is(factor, Stage::Limits, FactorCode::WorkloadUnmoved));
    let limited =
        decision.decided_by.as_deref() == Some(DecidedBy::Limits.as_str()) && decision.wanted > decision.granted;
    if !unmoved && !limited {
        return None;
    }
    // A changed bound with the same effect is not a new obstacle.
    limits.iter_mut().for_each(|factor| factor.replicas = None);
    let desired = status.desired_optimized_alloc.as_ref();
    Some(Constraint { reason, accelerator: desired.and_then(|desired| desired.accelerator.clone()), limits })
}

/// Whether the stored decision already reports stale metrics of this model.
pub fn is_stale(status: &VariantAutoscalingStatus, model: &str) -> bool {
    let factors = status.decision.iter().flat_map(|decision| &decision.factors);
    factors.into_iter().any(|factor| {
        trace::is(factor, Stage::Signal, FactorCode::MetricsStale) && factor.model.as_deref() == Some(model)
    })
}
