//! Turns an engine's analysis into a recommendation for each variant, with and without limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::variant::factor::{Explanation, Factor, FactorCode, FactorSubject};
use crate::variant::saturation::{VariantState, shares, tokens};
use crate::variant::solve::{Need, Offer, Reason, cost_aware};

/// An engine's recommendation for a model.
pub struct Recommendation {
    pub signal: Explanation,
    pub need: String,
    /// By variant.
    pub targets: BTreeMap<String, ReplicaTarget>,
    pub spare: f64,
    /// An earlier decision is still being carried out.
    pub waits: Option<Explanation>,
    /// Why nothing is lowered.
    pub doubt: Option<Explanation>,
}

pub struct ReplicaTarget {
    pub target: i32,
    pub unconstrained: i32,
    pub reason: String,
    /// The obstacle between `target` and `unconstrained`, other than the bounds.
    pub limit: Option<Explanation>,
}

/// Limit of growth in one reconcile: a variant at most doubles or gets this many more, so that a single wrong value
/// cannot request a thousand replicas.
const GROWTH: i32 = 4;

const NO_CHANGE: &str = "saturation-only mode: no-change";

/// `picker`: requests that wait at the endpoint picker, if there is one.
pub fn by_shares(analysis: &shares::Analysis, states: &[VariantState], picker: Option<f64>) -> Recommendation {
    let bounded = shares::targets(analysis, states, true);
    let free = shares::targets(analysis, states, false);
    let current = |name: &str| states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current);
    let number = |(name, target): (&String, &i32)| {
        // A pending scale-down stops while a replica is missing.
        let kept = bounded.transition && analysis.missing.is_some() && *target < current(name);
        let least = if kept { current(name) } else { *target };
        let unconstrained = free.replicas.get(name).copied().filter(|_| !kept).unwrap_or(least);
        let state = states.iter().find(|state| state.variant == *name);
        let limit = state.filter(|_| unconstrained > least).and_then(|state| obstacle(state, unconstrained));
        let taken_back = kept && state.is_some_and(|state| takes_back(state, *target));
        let reason = match (least.cmp(&current(name)), &analysis.missing) {
            (_, Some(why)) if taken_back => format!("saturation-only mode: scale-down cancelled: {why}"),
            _ if bounded.transition => NO_CHANGE.to_owned(),
            (Ordering::Greater, Some(why)) => format!("saturation-only mode: scale-up: {why}"),
            (Ordering::Greater, None) => "saturation-only mode: scale-up".to_owned(),
            (Ordering::Less, _) => "saturation-only mode: scale-down".to_owned(),
            (Ordering::Equal, _) => NO_CHANGE.to_owned(),
        };
        (name.clone(), ReplicaTarget { target: least, unconstrained, reason, limit })
    };
    let mut targets: BTreeMap<String, ReplicaTarget> = bounded.replicas.iter().map(number).collect();
    for (state, asked) in ignored_target(states) {
        let own = targets.remove(&state.variant);
        let unconstrained = own.as_ref().map_or(0, |number| number.unconstrained);
        let number = match (&analysis.missing, own) {
            (Some(why), _) => {
                let (target, limit) = unmoved(state, asked);
                let grows = target > state.current;
                let reason =
                    if grows { format!("saturation-only mode: scale-up: {why}") } else { NO_CHANGE.to_owned() };
                ReplicaTarget { target, unconstrained: unconstrained.max(asked), reason, limit }
            }
            (None, Some(own)) => own,
            (None, None) => {
                let current = state.current;
                ReplicaTarget { target: current, unconstrained: current, reason: NO_CHANGE.to_owned(), limit: None }
            }
        };
        targets.insert(state.variant.clone(), number);
    }
    let need = match (&analysis.missing, analysis.one_can_go) {
        (Some(why), _) => format!("one more replica: {why}"),
        (None, true) => "one replica fewer is enough".to_owned(),
        (None, false) => "no change".to_owned(),
    };
    let mut signal = Explanation::new(
        FactorCode::ReplicaSaturation,
        format!(
            "{} of {} replicas saturated, spare KV {:.3}, spare queue {:.1}",
            analysis.replicas - analysis.non_saturated,
            analysis.replicas,
            analysis.spare_kv,
            analysis.spare_queue,
        ),
    );
    if let Some(waiting) = picker {
        signal.factors.push(Factor::new(FactorCode::RequestsAtEndpointPicker));
        signal.text += &format!(", {waiting:.0} requests queued at the endpoint picker");
    }
    add_given_up(&mut signal, states);
    Recommendation {
        signal,
        need,
        targets,
        spare: analysis.spare_kv,
        waits: bounded.transition.then(|| in_transition(awaited(analysis, states))),
        doubt: None,
    }
}

/// Variants whose scale target did not follow a scale-up, with the requested number.
fn ignored_target(states: &[VariantState]) -> impl Iterator<Item = (&VariantState, i32)> {
    states.iter().filter_map(|state| Some((state, state.ignored_target?)))
}

/// Keeps requesting the number while capacity is missing, even if other variants grow in the meantime: the scale target
/// may follow at any time.
fn unmoved(state: &VariantState, asked: i32) -> (i32, Option<Explanation>) {
    let target = state.limits().clamp(asked).max(state.current);
    let limit = if target > state.current { Some(state.unmoved(target)) } else { state.out_of_room(asked) };
    (target, limit)
}

/// The obstacle to growing to `unconstrained`, other than the bounds.
fn obstacle(state: &VariantState, unconstrained: i32) -> Option<Explanation> {
    if state.stuck {
        return Some(Explanation::new(FactorCode::ReplicasNotReady, "replicas that do not become ready"));
    }
    state.out_of_room(unconstrained)
}

/// Whether a pending scale-down to `number` can be cancelled. One that the bounds require cannot.
fn takes_back(state: &VariantState, number: i32) -> bool {
    state.ignored_target.is_none() && state.bounds.clamp(state.current) > number
}

/// Explains which variants are still carrying out an earlier decision.
pub fn in_transition(awaited: Vec<Explanation>) -> Explanation {
    let texts: Vec<&str> = awaited.iter().map(|one| one.text.as_str()).collect();
    let text = format!("waiting for an earlier decision to be carried out: {}", texts.join(", "));
    let mut factors = vec![Factor::new(FactorCode::InTransition)];
    factors.extend(awaited.into_iter().flat_map(|one| one.factors));
    Explanation { factors, text }
}

/// The variants that are in transition.
fn awaited(analysis: &shares::Analysis, states: &[VariantState]) -> Vec<Explanation> {
    let told = |state: &VariantState| {
        let VariantState { variant, current, .. } = state;
        let pods = *analysis.pods.get(variant)?;
        let (code, text) = match state.awaited() {
            Some(desired) if analysis.missing.is_some() && takes_back(state, desired) => {
                let kept = state.bounds.clamp(*current);
                let text = format!(
                    "scale-down of variant {variant} to {desired} cancelled, {kept} replicas stay: one more is needed"
                );
                (FactorCode::ScaleDownTakenBack, text)
            }
            Some(desired) => {
                let text = format!("variant {variant} has {current} replicas, {desired} are desired");
                (FactorCode::DecisionPending, text)
            }
            None if state.is_moving(pods) => {
                let text = format!("variant {variant} has {current} replicas, {pods} have metrics");
                (FactorCode::MetricsPending, text)
            }
            None => return None,
        };
        Some(Explanation::of(Factor::about(code, FactorSubject::Variant(variant.clone())), text))
    };
    states.iter().filter_map(told).collect()
}

/// Adds the variants that are no longer waited for.
fn add_given_up(signal: &mut Explanation, states: &[VariantState]) {
    for VariantState { variant, current, pending, hangs, over, .. } in states {
        let (code, text) = match (hangs, over) {
            (true, _) => {
                let pending = pending.max(&1);
                let text = format!(
                    "not ready for more than 10 minutes and ignored: {pending} of variant {variant}, check the pods"
                );
                (FactorCode::ReplicasNotReady, text)
            }
            (_, true) => {
                let text = format!(
                    "variant {variant} has more ready pods than its {current} replicas, check whether a rollout is paused"
                );
                (FactorCode::MorePodsThanReplicas, text)
            }
            _ => continue,
        };
        signal.factors.push(Factor::about(code, FactorSubject::Variant(variant.clone())));
        signal.text += &format!("; {text}");
    }
}

pub fn by_tokens(analysis: &tokens::Analysis, states: &[VariantState]) -> Recommendation {
    let need = Need { required: analysis.required, spare: analysis.spare };
    let offers = analysis.variants.iter().zip(states).map(|(variant, state)| Offer {
        variant: variant.variant.clone(),
        cost: variant.cost,
        capacity: variant.capacity,
        current: state.current,
        ready: state.ready(),
        // A variant whose replicas do not become ready or do not appear gets no more.
        bounds: if state.stuck || state.ignored_target.is_some() {
            state.limits().at_most(state.current)
        } else {
            state.limits()
        },
    });
    let offers: Vec<Offer> = offers.collect();
    let bounded = cost_aware(&offers, need, true);
    let free = cost_aware(&offers, need, false);
    let number = |(offer, state): (&Offer, &VariantState)| {
        let solved = bounded.get(&offer.variant).copied().unwrap_or(offer.current);
        let unconstrained = free.get(&offer.variant).copied().unwrap_or(solved);
        let most = offer.current.saturating_mul(2).max(offer.current.saturating_add(GROWTH));
        let slowed = solved.min(most);
        let (target, unconstrained, limit) = match state.ignored_target.filter(|_| analysis.short) {
            Some(asked) => {
                let (target, limit) = unmoved(state, asked);
                (target, unconstrained.max(asked), limit)
            }
            None if slowed < solved => {
                let text = format!("growth per reconcile: at most {most} replicas");
                (slowed, unconstrained, Some(Explanation::new(FactorCode::GrowthPerReconcile, text)))
            }
            None => {
                (slowed, unconstrained, obstacle(state, unconstrained.min(most)).filter(|_| unconstrained > slowed))
            }
        };
        let reason = Reason::of(offer.current, target, need).to_string();
        (offer.variant.clone(), ReplicaTarget { target, unconstrained, reason, limit })
    };
    let text = format!("demand of {:.0} tokens, capacity of {:.0} tokens", analysis.demand, analysis.supply);
    let mut signal = Explanation::new(FactorCode::TokenDemand, text);
    add_given_up(&mut signal, states);
    Recommendation {
        signal,
        need: format!("required {:.0} tokens, spare {:.0} tokens", need.required, need.spare),
        targets: offers.iter().zip(states).map(number).collect(),
        spare: 1.0 - analysis.utilization,
        waits: None,
        doubt: None,
    }
}
