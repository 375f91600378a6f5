//! What the engines say about one model, in numbers and words.
//! Comes in: an engine's analysis and the state of each variant; goes out: what every variant should have, with and without
//! bounds, and why.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::super::Mode;
use super::super::saturation::{State, shares, tokens};
use super::super::solve::{Need, Offer, Reason, cost_aware};
use super::super::story::IN_TRANSITION;

/// What an engine says about the model.
pub struct Said {
    pub signal: String,
    pub need: String,
    /// By variant: what it wants within bounds, what it wants without, and why.
    pub numbers: BTreeMap<String, Number>,
    pub spare: f64,
    /// An earlier decision is still being carried out.
    pub waits: Option<String>,
    /// Why nothing is lowered, although something is decided.
    pub doubt: Option<String>,
}

pub struct Number {
    pub granted: i32,
    pub wish: i32,
    pub reason: String,
    /// What keeps it from its wish beside the bounds.
    pub limit: Option<String>,
}

/// One wrong figure shall not ask for a thousand replicas: in one pass a variant at most doubles, or gets so many more.
const GROWTH: i32 = 4;

/// `picker`: how many requests wait before the replicas, where there is an endpoint picker.
pub fn by_shares(analysis: &shares::Analysis, states: &[State], picker: Option<f64>) -> Said {
    let bounded = shares::targets(analysis, states, true);
    let free = shares::targets(analysis, states, false);
    let current = |name: &str| states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current);
    let number = |(name, target): (&String, &i32)| {
        // Whoever is to have fewer, and still has them, keeps them while one is missing.
        let kept = bounded.transition && analysis.missing.is_some() && *target < current(name);
        let least = if kept { current(name) } else { *target };
        let wish = free.replicas.get(name).copied().filter(|_| !kept).unwrap_or(least);
        let state = states.iter().find(|state| state.variant == *name).filter(|_| wish > least);
        let (granted, limit) = state.map_or((least, None), |state| obstacle(state, least, wish));
        let reason = match (granted.cmp(&current(name)), &analysis.missing) {
            (_, Some(why)) if kept => format!("saturation-only mode: scale-down is taken back: {why}"),
            _ if bounded.transition => "saturation-only mode: no-change".to_owned(),
            (Ordering::Greater, Some(why)) => format!("saturation-only mode: scale-up: {why}"),
            (Ordering::Greater, None) => "saturation-only mode: scale-up".to_owned(),
            (Ordering::Less, _) => "saturation-only mode: scale-down".to_owned(),
            (Ordering::Equal, _) => "saturation-only mode: no-change".to_owned(),
        };
        (name.clone(), Number { granted, wish, reason, limit })
    };
    let mut numbers: BTreeMap<String, Number> = bounded.replicas.iter().map(number).collect();
    let grows = numbers.iter().any(|(name, number)| number.granted > current(name));
    for state in states.iter().filter(|state| state.current == 0 && state.unfollowed && state.bounds.allow(0)) {
        let wanted = analysis.missing.is_some() && !grows;
        numbers.entry(state.variant.clone()).or_insert_with(|| asleep(state, i32::from(wanted)));
    }
    let need = match (&analysis.missing, analysis.one_can_go) {
        (Some(why), _) => format!("one replica more: {why}"),
        (None, true) => "one replica fewer suffices".to_owned(),
        (None, false) => "nothing".to_owned(),
    };
    Said {
        signal: format!(
            "{} of {} replicas saturated, spare KV {:.3}, spare queue {:.1}{}{}",
            analysis.replicas - analysis.non_saturated,
            analysis.replicas,
            analysis.spare_kv,
            analysis.spare_queue,
            picker.map(|waiting| format!(", {waiting:.0} requests wait at the endpoint picker")).unwrap_or_default(),
            given_up(states)
        ),
        need,
        numbers,
        spare: analysis.spare_kv,
        waits: bounded.transition.then(|| format!("{IN_TRANSITION}: {}", awaited(analysis, states).join(", "))),
        doubt: None,
    }
}

/// One that was to run, and has no replica: it is taken as it is, unless it is the last that could grow.
fn asleep(state: &State, wish: i32) -> Number {
    let (granted, limit) = if wish > 0 { obstacle(state, 0, wish) } else { (0, None) };
    let reason = if granted > 0 { "scale-up" } else { "no-change" };
    Number { granted, wish, reason: format!("saturation-only mode: {reason}"), limit }
}

/// What a variant gets that is kept from its wish by something else than its bounds, and what that is.
fn obstacle(state: &State, granted: i32, wish: i32) -> (i32, Option<String>) {
    match state.limits().clamp(wish) {
        _ if state.stuck => (granted, Some("replicas that do not become ready".to_owned())),
        // Its number stays above what it has: it may follow any time, and nobody waits for it.
        open if state.unfollowed && open > granted => (open, Some(state.unmoved(open))),
        _ => (granted, state.out_of_room(wish)),
    }
}

/// Whom all others wait for.
fn awaited(analysis: &shares::Analysis, states: &[State]) -> Vec<String> {
    let told = |state: &State| {
        let State { variant, current, .. } = state;
        let pods = *analysis.pods.get(variant)?;
        match state.awaited() {
            Some(desired) if desired < *current && analysis.missing.is_some() => {
                Some(format!("{variant} was to have {desired} replicas and keeps its {current}, as one is missing"))
            }
            Some(desired) => Some(format!("{variant} is to have {desired} replicas and has {current}")),
            None if state.is_moving(pods) => {
                Some(format!("{variant} is to have {current} replicas, and {pods} have metrics"))
            }
            None => None,
        }
    };
    states.iter().filter_map(told).collect()
}

/// Whom nobody waits for any more.
fn given_up(states: &[State]) -> String {
    let told = |State { variant, current, pending, stuck, over, .. }: &State| match (stuck, over) {
        (true, _) => {
            Some(format!("; {pending} of {variant} do not become ready and are not waited for, look at their pods"))
        }
        (_, true) => {
            Some(format!("; {variant} has more pods than its {current} replicas, does a rollout of it pause?"))
        }
        _ => None,
    };
    states.iter().filter_map(told).collect()
}

pub fn by_tokens(analysis: &tokens::Analysis, states: &[State]) -> Said {
    let need = Need { required: analysis.required, spare: analysis.spare };
    let offers = analysis.variants.iter().zip(states).map(|(variant, state)| Offer {
        variant: variant.variant.clone(),
        cost: variant.cost,
        capacity: variant.capacity,
        current: state.current,
        ready: state.ready(),
        // More of what does not become ready is of no use, nor of what does not come.
        bounds: if state.stuck || state.unfollowed { state.limits().at_most(state.current) } else { state.limits() },
    });
    let offers: Vec<Offer> = offers.collect();
    let bounded = cost_aware(&offers, need, true, Mode::Steersman);
    let free = cost_aware(&offers, need, false, Mode::Steersman);
    let number = |offer: &Offer| {
        let solved = bounded.get(&offer.variant).copied().unwrap_or(offer.current);
        let wish = free.get(&offer.variant).copied().unwrap_or(solved);
        let most = offer.current.saturating_mul(2).max(offer.current.saturating_add(GROWTH));
        let slowed = solved.min(most);
        let state = states.iter().find(|state| state.variant == offer.variant).filter(|_| wish > slowed);
        let (granted, limit) = match state {
            Some(_) if slowed < solved => (slowed, Some(format!("growth in one pass: at most {most}"))),
            Some(state) => obstacle(state, slowed, wish.min(most)),
            None => (slowed, None),
        };
        let reason = Reason::of(offer.current, granted, need).to_string();
        (offer.variant.clone(), Number { granted, wish, reason, limit })
    };
    Said {
        signal: format!("{:.0} tokens of {:.0} in demand{}", analysis.demand, analysis.supply, given_up(states)),
        need: format!("required {:.0}, spare {:.0}", need.required, need.spare),
        numbers: offers.iter().map(number).collect(),
        spare: 1.0 - analysis.utilization,
        waits: None,
        doubt: None,
    }
}
