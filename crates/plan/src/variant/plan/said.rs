//! Turns an engine's analysis into a recommendation for each variant, with and without limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::variant::Mode;
use crate::variant::factor::{Explanation, Factor, FactorCode, Reference};
use crate::variant::saturation::{State, shares, tokens};
use crate::variant::solve::{Need, Offer, Reason, cost_aware};

/// An engine's recommendation for a model.
pub struct Said {
    pub signal: Explanation,
    pub need: String,
    /// By variant.
    pub numbers: BTreeMap<String, Number>,
    pub spare: f64,
    /// An earlier decision is still being carried out.
    pub waits: Option<Explanation>,
    /// Why nothing is lowered.
    pub doubt: Option<Explanation>,
}

pub struct Number {
    pub granted: i32,
    pub wish: i32,
    pub reason: String,
    /// The obstacle between `granted` and `wish`, other than the bounds.
    pub limit: Option<Explanation>,
}

/// Limit of growth in one reconcile: a variant at most doubles or gets this many more, so that a single wrong value
/// cannot request a thousand replicas.
const GROWTH: i32 = 4;

const NO_CHANGE: &str = "saturation-only mode: no-change";

/// `picker`: requests that wait at the endpoint picker, if there is one.
pub fn by_shares(analysis: &shares::Analysis, states: &[State], picker: Option<f64>) -> Said {
    let bounded = shares::targets(analysis, states, true);
    let free = shares::targets(analysis, states, false);
    let current = |name: &str| states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current);
    let number = |(name, target): (&String, &i32)| {
        // A pending scale-down stops while a replica is missing.
        let kept = bounded.transition && analysis.missing.is_some() && *target < current(name);
        let least = if kept { current(name) } else { *target };
        let wish = free.replicas.get(name).copied().filter(|_| !kept).unwrap_or(least);
        let state = states.iter().find(|state| state.variant == *name);
        let limit = state.filter(|_| wish > least).and_then(|state| obstacle(state, wish));
        let taken_back = kept && state.is_some_and(|state| takes_back(state, *target));
        let reason = match (least.cmp(&current(name)), &analysis.missing) {
            (_, Some(why)) if taken_back => format!("saturation-only mode: scale-down is taken back: {why}"),
            _ if bounded.transition => NO_CHANGE.to_owned(),
            (Ordering::Greater, Some(why)) => format!("saturation-only mode: scale-up: {why}"),
            (Ordering::Greater, None) => "saturation-only mode: scale-up".to_owned(),
            (Ordering::Less, _) => "saturation-only mode: scale-down".to_owned(),
            (Ordering::Equal, _) => NO_CHANGE.to_owned(),
        };
        (name.clone(), Number { granted: least, wish, reason, limit })
    };
    let mut numbers: BTreeMap<String, Number> = bounded.replicas.iter().map(number).collect();
    for (state, asked) in unfollowed(states) {
        let own = numbers.remove(&state.variant);
        let wish = own.as_ref().map_or(0, |number| number.wish);
        let number = match (&analysis.missing, own) {
            (Some(why), _) => {
                let (granted, limit) = unmoved(state, asked);
                let grows = granted > state.current;
                let reason =
                    if grows { format!("saturation-only mode: scale-up: {why}") } else { NO_CHANGE.to_owned() };
                Number { granted, wish: wish.max(asked), reason, limit }
            }
            (None, Some(own)) => own,
            (None, None) => {
                let current = state.current;
                Number { granted: current, wish: current, reason: NO_CHANGE.to_owned(), limit: None }
            }
        };
        numbers.insert(state.variant.clone(), number);
    }
    let need = match (&analysis.missing, analysis.one_can_go) {
        (Some(why), _) => format!("one replica more: {why}"),
        (None, true) => "one replica fewer suffices".to_owned(),
        (None, false) => "nothing".to_owned(),
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
        signal.text += &format!(", {waiting:.0} requests wait at the endpoint picker");
    }
    add_given_up(&mut signal, states);
    Said {
        signal,
        need,
        numbers,
        spare: analysis.spare_kv,
        waits: bounded.transition.then(|| in_transition(awaited(analysis, states))),
        doubt: None,
    }
}

/// Variants whose scale target did not follow a scale-up, with the requested number.
fn unfollowed(states: &[State]) -> impl Iterator<Item = (&State, i32)> {
    states.iter().filter_map(|state| Some((state, state.unfollowed?)))
}

/// Keeps requesting the number while capacity is missing, even if other variants grow in the meantime: the scale target
/// may follow at any time.
fn unmoved(state: &State, asked: i32) -> (i32, Option<Explanation>) {
    let granted = state.limits().clamp(asked).max(state.current);
    let limit = if granted > state.current { Some(state.unmoved(granted)) } else { state.out_of_room(asked) };
    (granted, limit)
}

/// The obstacle to growing to `wish`, other than the bounds.
fn obstacle(state: &State, wish: i32) -> Option<Explanation> {
    if state.stuck {
        return Some(Explanation::new(FactorCode::ReplicasNotReady, "replicas that do not become ready"));
    }
    state.out_of_room(wish)
}

/// Whether a pending scale-down to `number` can be cancelled. One that the bounds require cannot.
fn takes_back(state: &State, number: i32) -> bool {
    state.unfollowed.is_none() && state.bounds.clamp(state.current) > number
}

/// Explains which variants are still carrying out an earlier decision.
pub fn in_transition(awaited: Vec<Explanation>) -> Explanation {
    let texts: Vec<&str> = awaited.iter().map(|one| one.text.as_str()).collect();
    let text = format!("an earlier decision is still being carried out: {}", texts.join(", "));
    let mut factors = vec![Factor::new(FactorCode::InTransition)];
    factors.extend(awaited.into_iter().flat_map(|one| one.factors));
    Explanation { factors, text }
}

/// The variants that are in transition.
fn awaited(analysis: &shares::Analysis, states: &[State]) -> Vec<Explanation> {
    let told = |state: &State| {
        let State { variant, current, .. } = state;
        let pods = *analysis.pods.get(variant)?;
        let (code, text) = match state.awaited() {
            Some(desired) if analysis.missing.is_some() && takes_back(state, desired) => {
                let kept = state.bounds.clamp(*current);
                let text = format!("{variant} was to have {desired} replicas and keeps its {kept}, as one is missing");
                (FactorCode::ScaleDownTakenBack, text)
            }
            Some(desired) => {
                let text = format!("{variant} is to have {desired} replicas and has {current}");
                (FactorCode::DecisionPending, text)
            }
            None if state.is_moving(pods) => {
                let text = format!("{variant} is to have {current} replicas, and {pods} have metrics");
                (FactorCode::MetricsPending, text)
            }
            None => return None,
        };
        Some(Explanation::of(Factor::about(code, Reference::Variant(variant.clone())), text))
    };
    states.iter().filter_map(told).collect()
}

/// Adds the variants that are no longer waited for.
fn add_given_up(signal: &mut Explanation, states: &[State]) {
    for State { variant, current, pending, hangs, over, .. } in states {
        let (code, text) = match (hangs, over) {
            (true, _) => {
                let pending = pending.max(&1);
                let text =
                    format!("{pending} of {variant} do not become ready and are not waited for, look at their pods");
                (FactorCode::ReplicasNotReady, text)
            }
            (_, true) => {
                let text = format!("{variant} has more pods than its {current} replicas, does a rollout of it pause?");
                (FactorCode::MorePodsThanReplicas, text)
            }
            _ => continue,
        };
        signal.factors.push(Factor::about(code, Reference::Variant(variant.clone())));
        signal.text += &format!("; {text}");
    }
}

pub fn by_tokens(analysis: &tokens::Analysis, states: &[State]) -> Said {
    let need = Need { required: analysis.required, spare: analysis.spare };
    let offers = analysis.variants.iter().zip(states).map(|(variant, state)| Offer {
        variant: variant.variant.clone(),
        cost: variant.cost,
        capacity: variant.capacity,
        current: state.current,
        ready: state.ready(),
        // A variant whose replicas do not become ready or do not appear gets no more.
        bounds: if state.stuck || state.unfollowed.is_some() {
            state.limits().at_most(state.current)
        } else {
            state.limits()
        },
    });
    let offers: Vec<Offer> = offers.collect();
    let bounded = cost_aware(&offers, need, true, Mode::Steersman);
    let free = cost_aware(&offers, need, false, Mode::Steersman);
    let number = |(offer, state): (&Offer, &State)| {
        let solved = bounded.get(&offer.variant).copied().unwrap_or(offer.current);
        let wish = free.get(&offer.variant).copied().unwrap_or(solved);
        let most = offer.current.saturating_mul(2).max(offer.current.saturating_add(GROWTH));
        let slowed = solved.min(most);
        let (granted, wish, limit) = match state.unfollowed.filter(|_| analysis.short) {
            Some(asked) => {
                let (granted, limit) = unmoved(state, asked);
                (granted, wish.max(asked), limit)
            }
            None if slowed < solved => {
                let text = format!("growth in one pass: at most {most}");
                (slowed, wish, Some(Explanation::new(FactorCode::GrowthPerReconcile, text)))
            }
            None => (slowed, wish, obstacle(state, wish.min(most)).filter(|_| wish > slowed)),
        };
        let reason = Reason::of(offer.current, granted, need).to_string();
        (offer.variant.clone(), Number { granted, wish, reason, limit })
    };
    let text = format!("{:.0} tokens of {:.0} in demand", analysis.demand, analysis.supply);
    let mut signal = Explanation::new(FactorCode::TokenDemand, text);
    add_given_up(&mut signal, states);
    Said {
        signal,
        need: format!("required {:.0}, spare {:.0}", need.required, need.spare),
        numbers: offers.iter().zip(states).map(number).collect(),
        spare: 1.0 - analysis.utilization,
        waits: None,
        doubt: None,
    }
}
