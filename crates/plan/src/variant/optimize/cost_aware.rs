//! Selects the variants that add missing capacity or give up spare capacity, by cost.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::variant::analyze::measured_demand::FlipPoints;
use crate::variant::analyze::saturation_tokens::TokenAnalysis;
use crate::variant::analyze::{Recommendation, ReplicaTarget, add_given_up};
use crate::variant::bounds::Bounds;
use crate::variant::progress::VariantState;
use crate::variant::trace::{Explanation, FactorCode};

/// Limit of growth in one reconcile for the token engine: a variant at most doubles or gets this many more, so that a single wrong value
/// cannot request a thousand replicas.
const MAX_ADDED_REPLICAS: i32 = 4;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Offer {
    pub variant: String,
    pub cost: f64,
    /// Tokens, or requests per second, of one replica; 0 if unknown.
    pub capacity: f64,
    pub current: i32,
    /// Replicas of `current` that serve.
    pub ready: i32,
    pub bounds: Bounds,
}

/// Missing or spare capacity of a model, in the unit of the offers. If both are set, only `required` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Need {
    pub required: f64,
    pub spare: f64,
}

/// The cheapest targets. `bounded`: targets stay within the bounds.
pub fn cost_aware(offers: &[Offer], need: Need, bounded: bool) -> BTreeMap<String, i32> {
    let mut offers: Vec<Offer> = offers.to_vec();
    // Ties are broken by name, so that the order of the input does not matter.
    offers.sort_by(|a, b| a.variant.cmp(&b.variant));
    if !bounded {
        offers.iter_mut().for_each(|offer| offer.bounds = Bounds::default());
    }
    let current: BTreeMap<String, i32> = offers.iter().map(|offer| (offer.variant.clone(), offer.current)).collect();
    let need = apply_bounds(&mut offers, need);
    let begin: BTreeMap<String, i32> = offers.iter().map(|offer| (offer.variant.clone(), offer.current)).collect();
    let mut targets = begin.clone();
    if need.required > 0.0 {
        scale_up(&mut offers, need.required, &mut targets);
    } else if need.spare > 0.0 {
        scale_down(&mut offers, need.spare, &mut targets);
    }
    // A change caused by bounds alone is not the solver's: bounds are applied and reported later.
    let solution = |(variant, target): (String, i32)| {
        let solved = begin.get(&variant) != Some(&target);
        let target = if solved { target } else { current.get(&variant).copied().unwrap_or(target) };
        (variant, target)
    };
    targets.into_iter().map(solution).collect()
}

/// Applies the bounds first and returns the remaining need: replicas added by bounds reduce what is required, replicas
/// removed by bounds reduce what is spare. Added replicas are not ready, so no other variant shrinks because of them.
fn apply_bounds(offers: &mut [Offer], mut need: Need) -> Need {
    let lacks = need.required > 0.0;
    for offer in offers {
        let kept = offer.bounds.clamp(offer.current);
        if lacks {
            need.required -= f64::from(kept.saturating_sub(offer.current)) * offer.capacity;
        }
        need.spare -= f64::from(offer.ready.saturating_sub(kept).max(0)) * offer.capacity;
        offer.ready = offer.ready.min(kept);
        offer.current = kept;
    }
    Need { required: need.required.max(0.0), spare: need.spare.max(0.0) }
}

fn scale_up(offers: &mut [Offer], required: f64, targets: &mut BTreeMap<String, i32>) {
    offers.sort_by(|a, b| (a.cost / a.capacity).total_cmp(&(b.cost / b.capacity)));
    let mut remaining = required;
    for offer in offers.iter().filter(|offer| offer.capacity > 0.0) {
        if remaining <= 0.0 {
            break;
        }
        let room = offer.bounds.max.map_or(i32::MAX, |max| max.saturating_sub(offer.current).max(0));
        let added = whole((remaining / offer.capacity).ceil()).min(room);
        remaining -= f64::from(added) * offer.capacity;
        targets.insert(offer.variant.clone(), offer.current.saturating_add(added));
    }
}

/// Replicas that are still starting have no capacity: no variant shrinks because of them, and removing them frees
/// nothing. The last serving replica of the model stays, even if its variant is not the cheapest.
fn scale_down(offers: &mut [Offer], spare: f64, targets: &mut BTreeMap<String, i32>) {
    offers.sort_by(|a, b| b.cost.total_cmp(&a.cost).then(b.variant.cmp(&a.variant)));
    let serves = |offer: &Offer| offer.ready > 0;
    let mut remaining = spare;
    for offer in offers.iter().filter(|offer| offer.capacity > 0.0 && serves(offer)) {
        let stays = |other: &Offer| targets.get(&other.variant).is_some_and(|target| *target > 0) && serves(other);
        let last = !offers.iter().any(|other| other.variant != offer.variant && stays(other));
        let floor = offer.bounds.min.max(i32::from(last));
        let removed = whole((remaining / offer.capacity).floor()).min(offer.current.saturating_sub(floor).max(0));
        remaining -= f64::from(removed) * offer.capacity;
        targets.insert(offer.variant.clone(), offer.current - removed);
    }
}

/// Caps the number far above any real one.
#[expect(clippy::cast_possible_truncation, reason = "bounded before")]
fn whole(replicas: f64) -> i32 {
    replicas.clamp(0.0, 1_000_000.0) as i32
}

/// The offer of a variant. Variants whose replicas do not become ready or do not appear get no more.
pub fn offer(state: &VariantState, capacity: f64, cost: f64) -> Offer {
    let capped = state.stuck || state.ignored_target.is_some();
    Offer {
        variant: state.variant.clone(),
        cost,
        capacity,
        current: state.current,
        ready: state.ready(),
        bounds: if capped { state.limits().at_most(state.current) } else { state.limits() },
    }
}

/// The targets of the variants, in the order of `states`. `short`: the ready replicas do not suffice.
/// `max_added`: limit of growth in one reconcile, beyond doubling.
pub fn targets(
    offers: &[Offer],
    states: &[VariantState],
    need: Need,
    short: bool,
    max_added: Option<i32>,
    reason: impl Fn(&Offer, i32) -> String,
) -> BTreeMap<String, ReplicaTarget> {
    let bounded = cost_aware(offers, need, true);
    let free = cost_aware(offers, need, false);
    let number = |(offer, state): (&Offer, &VariantState)| {
        let solved = bounded.get(&offer.variant).copied().unwrap_or(offer.current);
        let unconstrained = free.get(&offer.variant).copied().unwrap_or(solved);
        let doubled = |added: i32| offer.current.saturating_mul(2).max(offer.current.saturating_add(added));
        let most = max_added.map_or(i32::MAX, doubled);
        let slowed = solved.min(most);
        let (target, unconstrained, obstacle) = match state.ignored_target.filter(|_| short) {
            Some(requested) => {
                let (target, obstacle) = state.repeated_request(requested);
                (target, unconstrained.max(requested), obstacle)
            }
            None if slowed < solved => {
                let text = format!("growth per reconcile: at most {most} replicas");
                (slowed, unconstrained, Some(Explanation::new(FactorCode::GrowthPerReconcile, text)))
            }
            None => (slowed, unconstrained, state.obstacle(unconstrained.min(most)).filter(|_| unconstrained > slowed)),
        };
        (offer.variant.clone(), ReplicaTarget { target, unconstrained, reason: reason(offer, target), obstacle })
    };
    offers.iter().zip(states).map(number).collect()
}

/// Distributes the capacity that the token engine found missing or spare.
pub fn recommend(analysis: &TokenAnalysis, states: &[VariantState]) -> Recommendation {
    let need = Need { required: analysis.required, spare: analysis.spare };
    let each = analysis.variants.iter().zip(states);
    let offers: Vec<Offer> = each.map(|(variant, state)| offer(state, variant.capacity, variant.cost)).collect();
    let reason = |offer: &Offer, target: i32| Reason::of(offer.current, target, need).to_string();
    let text = format!("demand of {:.0} tokens, capacity of {:.0} tokens", analysis.demand, analysis.supply);
    let mut signal = Explanation::new(FactorCode::TokenDemand, text);
    add_given_up(&mut signal, states);
    Recommendation {
        signal,
        need: format!("required {:.0} tokens, spare {:.0} tokens", need.required, need.spare),
        targets: targets(&offers, states, need, analysis.short, Some(MAX_ADDED_REPLICAS), reason),
        spare: 1.0 - analysis.utilization,
        transition: None,
        scale_down_block: None,
        flip: FlipPoints::default(),
    }
}

/// Why a variant gets its number, in the Go operator's wording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Reason {
    Up { required: f64 },
    Down { spare: f64 },
    Steady,
}

impl Reason {
    pub fn of(current: i32, target: i32, need: Need) -> Self {
        match target.cmp(&current) {
            Ordering::Greater => Self::Up { required: need.required },
            Ordering::Less => Self::Down { spare: need.spare },
            Ordering::Equal => Self::Steady,
        }
    }

    pub const fn action(self) -> &'static str {
        match self {
            Self::Up { .. } => "scale-up",
            Self::Down { .. } => "scale-down",
            Self::Steady => "no-change",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { required } => write!(out, "V2 scale-up (optimizer: cost-aware, required: {required:.0})"),
            Self::Down { spare } => write!(out, "V2 scale-down (optimizer: cost-aware, spare: {spare:.0})"),
            Self::Steady => out.write_str("V2 steady state"),
        }
    }
}
