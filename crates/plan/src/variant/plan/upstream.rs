//! Decides one model as the Go operator does, including its defects: bounds are ignored, missing metrics are zero, and
//! a variant without a target publishes its last one.

use std::collections::BTreeMap;

use steersman_reconcile::Lookup;

use super::group::Group;
use super::{Decision, DecisionKind, MetricsState, replicas};
use crate::variant::Mode;
use crate::variant::config::thresholds::Analyzer;
use crate::variant::decision_trace::{DecidedBy, DecisionTrace};
use crate::variant::factor::{Explanation, FactorCode};
use crate::variant::limits::enforce::{ScaleToZero, enforce};
use crate::variant::saturation::VariantState;
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::saturation::{shares, tokens};
use crate::variant::snapshot::{MetricsError, ObservedVariant, PodMetrics};
use crate::variant::solve::{Need, Offer, Reason, cost_aware};

struct UpstreamTargets {
    targets: BTreeMap<String, i32>,
    reasons: BTreeMap<String, String>,
    spare: f64,
}

pub fn decide(group: &Group<'_>, memory: &mut Memory) -> Vec<Decision> {
    let awake: Vec<&ObservedVariant> = group.variants.iter().copied().filter(|one| one.current() != Some(0)).collect();
    let active = Group { variants: &awake, ..*group };
    replicas::learn(&active, memory);
    let (metrics, targets) = match active.pods() {
        Ok(pods) if pods.is_empty() => (MetricsState::Unavailable(MetricsError::NotFound), None),
        Ok(pods) => (MetricsState::Available, ask(&active, &pods, memory)),
        Err(silence) => (MetricsState::Unavailable(silence), None),
    };
    group.variants.iter().map(|variant| decision(group, variant, &metrics, targets.as_ref())).collect()
}

fn ask(group: &Group<'_>, pods: &[(&ObservedVariant, &PodMetrics)], memory: &mut Memory) -> Option<UpstreamTargets> {
    let thresholds = group.seen.config.thresholds(group.namespace, group.model, Mode::Upstream)?;
    let states = group.states();
    let mut targets = match thresholds.analyzer {
        Analyzer::Shares => {
            let analysis = shares::analyze(&replicas::by_share(pods, Mode::Upstream), &thresholds, Mode::Upstream);
            let targets = shares::targets(&analysis, &states, false).replicas;
            let reasons = targets.iter().map(|(name, target)| {
                let action = Reason::of(current(&states, name), *target, Need::default()).action();
                (name.clone(), format!("saturation-only mode: {action}"))
            });
            UpstreamTargets { reasons: reasons.collect(), targets, spare: analysis.spare_kv }
        }
        Analyzer::Tokens => {
            let model = tokens::Model {
                namespace: group.namespace,
                name: group.model,
                now: group.seen.now,
                mode: Mode::Upstream,
                thresholds: &thresholds,
                queue: None,
            };
            let (replicas, _) = replicas::by_token(group, pods, memory).ok()?;
            let analysis = tokens::analyze(&model, &replicas, &states, memory);
            let need = Need { required: analysis.required, spare: analysis.spare };
            let offers = analysis.variants.iter().zip(&states).map(|(variant, state)| Offer {
                variant: variant.variant.clone(),
                cost: variant.cost,
                capacity: variant.capacity,
                current: state.current,
                ..Offer::default()
            });
            let targets = cost_aware(&offers.collect::<Vec<_>>(), need, false, Mode::Upstream);
            let reasons = targets
                .iter()
                .map(|(name, target)| (name.clone(), Reason::of(current(&states, name), *target, need).to_string()));
            UpstreamTargets { reasons: reasons.collect(), targets, spare: 1.0 - analysis.utilization }
        }
    };
    let costs = states.iter().map(|state| (state.variant.clone(), state.cost)).collect();
    if enforce(&mut targets.targets, &costs, &scale_to_zero(group)) && thresholds.analyzer == Analyzer::Tokens {
        for (name, target) in &targets.targets {
            let action = Reason::of(current(&states, name), *target, Need::default()).action();
            targets.reasons.insert(name.clone(), format!("V2 {action} (optimizer: cost-aware, enforced)"));
        }
    }
    Some(targets)
}

fn current(states: &[VariantState], name: &str) -> i32 {
    states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current)
}

fn scale_to_zero(group: &Group<'_>) -> ScaleToZero {
    if !group.seen.config.zero(group.namespace).enabled(group.namespace, group.model) {
        return ScaleToZero::Disabled;
    }
    match group.metrics.map(|metrics| &metrics.requests) {
        Some(Lookup::Known(0.0)) => ScaleToZero::Idle,
        Some(Lookup::Known(_)) => ScaleToZero::Active,
        Some(Lookup::Unknown(why)) => ScaleToZero::Unknown(Explanation::new(FactorCode::RequestsUnknown, why)),
        None => ScaleToZero::Unknown(Explanation::new(FactorCode::ModelNotQueried, "the model was not queried")),
    }
}

fn decision(
    group: &Group<'_>,
    variant: &ObservedVariant,
    metrics: &MetricsState,
    targets: Option<&UpstreamTargets>,
) -> Decision {
    let name = &variant.key.name;
    let target = targets.and_then(|targets| targets.targets.get(name)).copied();
    let previous = variant.previous();
    let failed = matches!(metrics, MetricsState::Unavailable(MetricsError::QueryFailed(_)));
    let kept = match previous.replicas {
        1.. => previous.replicas,
        _ if failed => current(&group.states(), name),
        _ => 0,
    };
    let replicas = target.unwrap_or(kept);
    let reason = targets.and_then(|targets| targets.reasons.get(name)).cloned().unwrap_or(previous.reason);
    let decided_by = if target.is_some() { DecidedBy::Solver } else { DecidedBy::Hold };
    Decision {
        kind: if target.is_some() { DecisionKind::Decided } else { DecisionKind::Held },
        replicas: Some(replicas),
        accelerator: variant.accelerator(),
        spare: targets.map_or(1.0, |targets| targets.spare),
        metrics: metrics.clone(),
        ignored_target: false,
        conflict: None,
        trace: DecisionTrace {
            solver: reason.clone(),
            decided_by,
            wanted: replicas,
            granted: replicas,
            ..DecisionTrace::default()
        },
        findings: variant.findings(),
        unclamped_reason: None,
        reason,
    }
}
