//! Decides one model as the Go operator does, including its defects: bounds are ignored, missing metrics are zero, and
//! a variant without a target publishes its last one.

use std::collections::BTreeMap;

use steersman_reconcile::Lookup;

use super::group::Group;
use super::{Decision, Metrics, Standing, replicas};
use crate::variant::Mode;
use crate::variant::config::thresholds::Analyzer;
use crate::variant::factor::{Explanation, FactorCode};
use crate::variant::limits::enforce::{Sleep, enforce};
use crate::variant::saturation::State;
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::saturation::{shares, tokens};
use crate::variant::seen::{PodSeen, Silence, VariantSeen};
use crate::variant::solve::{Need, Offer, Reason, cost_aware};
use crate::variant::story::{Binding, Story};

struct Said {
    targets: BTreeMap<String, i32>,
    reasons: BTreeMap<String, String>,
    spare: f64,
}

pub fn decide(group: &Group<'_>, memory: &mut Memory) -> Vec<Decision> {
    let awake: Vec<&VariantSeen> = group.variants.iter().copied().filter(|one| one.current() != Some(0)).collect();
    let active = Group { variants: &awake, ..*group };
    replicas::learn(&active, memory);
    let (metrics, said) = match active.pods() {
        Ok(pods) if pods.is_empty() => (Metrics::Silent(Silence::Missing), None),
        Ok(pods) => (Metrics::Found, ask(&active, &pods, memory)),
        Err(silence) => (Metrics::Silent(silence), None),
    };
    group.variants.iter().map(|variant| decision(group, variant, &metrics, said.as_ref())).collect()
}

fn ask(group: &Group<'_>, pods: &[(&VariantSeen, &PodSeen)], memory: &mut Memory) -> Option<Said> {
    let thresholds = group.seen.config.thresholds(group.namespace, group.model, Mode::Upstream)?;
    let states = group.states();
    let mut said = match thresholds.analyzer {
        Analyzer::Shares => {
            let analysis = shares::analyze(&replicas::by_share(pods, Mode::Upstream), &thresholds, Mode::Upstream);
            let targets = shares::targets(&analysis, &states, false).replicas;
            let reasons = targets.iter().map(|(name, target)| {
                let action = Reason::of(current(&states, name), *target, Need::default()).action();
                (name.clone(), format!("saturation-only mode: {action}"))
            });
            Said { reasons: reasons.collect(), targets, spare: analysis.spare_kv }
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
            Said { reasons: reasons.collect(), targets, spare: 1.0 - analysis.utilization }
        }
    };
    let costs = states.iter().map(|state| (state.variant.clone(), state.cost)).collect();
    if enforce(&mut said.targets, &costs, &sleep(group)) && thresholds.analyzer == Analyzer::Tokens {
        for (name, target) in &said.targets {
            let action = Reason::of(current(&states, name), *target, Need::default()).action();
            said.reasons.insert(name.clone(), format!("V2 {action} (optimizer: cost-aware, enforced)"));
        }
    }
    Some(said)
}

fn current(states: &[State], name: &str) -> i32 {
    states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current)
}

fn sleep(group: &Group<'_>) -> Sleep {
    if !group.seen.config.zero(group.namespace).enabled(group.namespace, group.model) {
        return Sleep::Forbidden;
    }
    match group.metrics.map(|metrics| &metrics.requests) {
        Some(Lookup::Known(0.0)) => Sleep::Idle,
        Some(Lookup::Known(_)) => Sleep::Awake,
        Some(Lookup::Unknown(why)) => Sleep::Unknown(Explanation::new(FactorCode::RequestsUnknown, why)),
        None => Sleep::Unknown(Explanation::new(FactorCode::ModelNotQueried, "the model was not asked about")),
    }
}

fn decision(group: &Group<'_>, variant: &VariantSeen, metrics: &Metrics, said: Option<&Said>) -> Decision {
    let name = &variant.key.name;
    let target = said.and_then(|said| said.targets.get(name)).copied();
    let previous = variant.previous();
    let failed = matches!(metrics, Metrics::Silent(Silence::Failed(_)));
    let kept = match previous.replicas {
        1.. => previous.replicas,
        _ if failed => current(&group.states(), name),
        _ => 0,
    };
    let replicas = target.unwrap_or(kept);
    let reason = said.and_then(|said| said.reasons.get(name)).cloned().unwrap_or(previous.reason);
    let binding = if target.is_some() { Binding::Solver } else { Binding::Hold };
    Decision {
        standing: if target.is_some() { Standing::Decided } else { Standing::Held },
        replicas: Some(replicas),
        accelerator: variant.accelerator(),
        spare: said.map_or(1.0, |said| said.spare),
        metrics: metrics.clone(),
        unfollowed: false,
        conflict: None,
        story: Story { solver: reason.clone(), binding, wish: replicas, granted: replicas, ..Story::default() },
        findings: variant.findings(),
        unclamped_reason: None,
        reason,
    }
}
