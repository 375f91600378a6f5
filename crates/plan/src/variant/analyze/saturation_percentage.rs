//! The percentage engine: compares KV cache and queue of the pods with thresholds, and changes one replica at a time.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;
use steersman_reconcile::Lookup;

use super::measured_demand::FlipPoints;
use super::{MeasuredPod, Recommendation, ReplicaTarget, add_given_up};
use crate::variant::config::thresholds::Thresholds;
use crate::variant::progress::{VariantState, in_transition};
use crate::variant::snapshot::ObservedModel;
use crate::variant::trace::{Explanation, Factor, FactorCode, FactorSubject};

/// Prevents replicas from flapping when a projection misses a threshold by rounding.
const MARGIN: f64 = 1e-9;

const NO_CHANGE: &str = "saturation-only mode: no-change";

/// A measured pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodSaturation {
    pub pod: String,
    pub variant: String,
    /// Share of the KV cache in use.
    pub kv: f64,
    /// Waiting requests.
    pub queue: f64,
    pub cost: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SaturationAnalysis {
    pub replicas: usize,
    pub non_saturated: usize,
    /// Average over replicas that are not saturated.
    pub spare_kv: f64,
    pub spare_queue: f64,
    /// Why a replica is missing.
    pub missing: Option<String>,
    /// The other replicas can carry the load of one.
    pub has_spare_replica: bool,
    /// Pods with metrics, by variant.
    pub pods: BTreeMap<String, i32>,
    /// By variant.
    pub costs: BTreeMap<String, f64>,
}

/// The replicas whose load has to fit into one replica fewer before one is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spare {
    /// The load of saturated replicas has to be carried too.
    #[default]
    OfAll,
    /// The Go operator's rule: saturated replicas are left out.
    OfUnsaturated,
}

pub fn analyze(replicas: &[PodSaturation], thresholds: &Thresholds, spare: Spare) -> SaturationAnalysis {
    let mut analysis = SaturationAnalysis { replicas: replicas.len(), ..SaturationAnalysis::default() };
    for replica in replicas {
        *analysis.pods.entry(replica.variant.clone()).or_default() += 1;
        analysis.costs.insert(replica.variant.clone(), replica.cost);
    }
    if replicas.is_empty() {
        return analysis;
    }
    let free = |replica: &&PodSaturation| replica.kv < thresholds.kv_cache && replica.queue < thresholds.queue_length;
    let free: Vec<&PodSaturation> = replicas.iter().filter(free).collect();
    analysis.non_saturated = free.len();
    if !free.is_empty() {
        analysis.spare_kv = mean(free.iter().map(|replica| thresholds.kv_cache - replica.kv));
        analysis.spare_queue = mean(free.iter().map(|replica| thresholds.queue_length - replica.queue));
    }
    analysis.missing = missing(&analysis, thresholds);
    let carried = match spare {
        Spare::OfAll => replicas.iter().collect(),
        Spare::OfUnsaturated => free,
    };
    analysis.has_spare_replica = fits_without_one(&carried, thresholds);
    analysis
}

#[expect(clippy::cast_precision_loss, reason = "no fleet has so many pods")]
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn missing(analysis: &SaturationAnalysis, thresholds: &Thresholds) -> Option<String> {
    let SaturationAnalysis { spare_kv, spare_queue, .. } = analysis;
    let Thresholds { kv_spare, queue_spare, .. } = thresholds;
    match (spare_kv < kv_spare, spare_queue < queue_spare) {
        (true, true) => Some(format!(
            "both KV spare ({spare_kv:.3} < {kv_spare:.3}) and queue spare ({spare_queue:.1} < {queue_spare:.1})"
        )),
        (true, false) => Some(format!("KV spare Saturation low ({spare_kv:.3} < {kv_spare:.3})")),
        (false, true) => Some(format!("queue spare Saturation low ({spare_queue:.1} < {queue_spare:.1})")),
        // A trigger of 0 never fires, even if all replicas are saturated.
        (false, false) if analysis.non_saturated == 0 => Some("every replica is saturated".to_owned()),
        (false, false) => None,
    }
}

/// Whether one replica fewer can carry the load of these replicas.
#[expect(clippy::cast_precision_loss, reason = "no fleet has so many pods")]
fn fits_without_one(replicas: &[&PodSaturation], thresholds: &Thresholds) -> bool {
    let count = replicas.len();
    if count < 2 {
        return false;
    }
    let more = count as f64 / (count - 1) as f64;
    let kv = mean(replicas.iter().map(|replica| replica.kv)) * more;
    let queue = mean(replicas.iter().map(|replica| replica.queue)) * more;
    thresholds.kv_cache - kv >= thresholds.kv_spare + MARGIN
        && thresholds.queue_length - queue >= thresholds.queue_spare + MARGIN
}

/// Replica targets by variant. A variant that is not here keeps its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Targets {
    pub replicas: BTreeMap<String, i32>,
    /// An earlier decision is still being carried out, so nothing new is decided.
    pub transition: bool,
}

/// `bounded`: targets stay within the bounds.
pub fn targets(analysis: &SaturationAnalysis, states: &[VariantState], bounded: bool) -> Targets {
    if analysis.replicas == 0 {
        let replicas = states.iter().map(|state| (state.variant.clone(), state.current)).collect();
        return Targets { replicas, transition: false };
    }
    let state = |variant: &str| states.iter().find(|state| state.variant == variant);
    let moving = |state: &VariantState, pods: i32| state.awaited().is_some() || state.is_moving(pods);
    let transition =
        analysis.pods.iter().any(|(variant, pods)| state(variant).is_some_and(|state| moving(state, *pods)));
    if transition {
        let replicas = analysis.pods.keys().filter_map(|variant| {
            let state = state(variant)?;
            Some((variant.clone(), state.awaited().unwrap_or(state.current)))
        });
        return Targets { replicas: replicas.collect(), transition };
    }
    let mut replicas = analysis.pods.clone();
    for state in states.iter().filter(|state| state.stuck || state.surplus_pods) {
        replicas.insert(state.variant.clone(), state.current);
    }
    let bounds = |variant: &str| state(variant).filter(|_| bounded).map(VariantState::limits).unwrap_or_default();
    let cost_of_state = |variant: &str| state(variant).map_or(0.0, |state| state.cost);
    let cost = |variant: &str| analysis.costs.get(variant).copied().unwrap_or_else(|| cost_of_state(variant));
    // Whether changed bounds already cause such a change in this reconcile.
    let changes = |direction: Ordering| {
        let by_bounds = |(variant, count): (&String, &i32)| {
            let kept = bounds(variant).clamp(*count);
            kept.cmp(count) == direction
                && state(variant).and_then(|state| state.desired).is_some_and(|desired| desired != kept)
        };
        replicas.iter().any(by_bounds)
    };
    if analysis.missing.is_some() {
        // The unbounded target ignores that a scale target cannot follow.
        let ready = |state: &VariantState| state.pending == 0 || state.stuck && !bounded;
        let follows = |state: &VariantState| state.ignored_target.is_none() || !bounded;
        let settled = |variant: &str| state(variant).is_none_or(|state| ready(state) && follows(state));
        let open = replicas
            .iter()
            .filter(|(variant, count)| settled(variant) && bounds(variant).allow(count.saturating_add(1)));
        let cheapest = open.min_by(|(a, _), (b, _)| cost(a).total_cmp(&cost(b)).then(a.cmp(b)));
        let cheapest = cheapest.map(|(variant, count)| (variant.clone(), *count));
        // If no running variant may grow and none is about to, a variant without replicas is started.
        let comes = states.iter().any(|state| state.pending > 0 && !state.stuck);
        let begins = || {
            let idle = states.iter().filter(|state| bounded && !comes && !replicas.contains_key(&state.variant));
            let open =
                idle.filter(|state| state.current == 0 && state.ignored_target.is_none() && state.limits().allow(1));
            let cheapest = open.min_by(|a, b| a.cost.total_cmp(&b.cost).then(a.variant.cmp(&b.variant)));
            cheapest.map(|state| (state.variant.clone(), 0))
        };
        if let Some((variant, count)) = cheapest.or_else(begins).filter(|_| !changes(Ordering::Greater)) {
            replicas.insert(variant, count.saturating_add(1));
        }
    } else if analysis.has_spare_replica && !changes(Ordering::Less) {
        let open = replicas.iter().filter(|(variant, count)| **count > 1 && bounds(variant).allow(**count - 1));
        let dearest = open.max_by(|(a, _), (b, _)| cost(a).total_cmp(&cost(b)).then(a.cmp(b)));
        if let Some((variant, count)) = dearest.map(|(variant, count)| (variant.clone(), *count)) {
            replicas.insert(variant, count - 1);
        }
    }
    Targets { replicas, transition: false }
}

pub fn recommend(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    pods: &[MeasuredPod<'_>],
    states: &[VariantState],
) -> Recommendation {
    let (waiting, unknown) = match model.metrics.map(|metrics| &metrics.queue) {
        Some(Lookup::Known(queue)) => (queue.map(|queue| queue.requests), None),
        Some(Lookup::Unknown(why)) => (None, Some(why)),
        None => (None, None),
    };
    let replica = |(owner, pod): &MeasuredPod<'_>| PodSaturation {
        pod: pod.name.to_string(),
        variant: owner.key.name.clone(),
        kv: pod.kv.unwrap_or_default(),
        queue: pod.queue.unwrap_or_default(),
        cost: owner.cost(&model.snapshot.config.costs),
    };
    let mut replicas: Vec<PodSaturation> = pods.iter().map(replica).collect();
    distribute(&mut replicas, waiting.unwrap_or_default());
    let mut analysis = analyze(&replicas, thresholds, Spare::OfAll);
    // A starting variant has no metrics, but counts as in transition.
    for state in states.iter().filter(|state| state.current > 0) {
        analysis.pods.entry(state.variant.clone()).or_default();
    }
    let mut recommendation = recommendation(&analysis, states, waiting);
    if let Some(why) = unknown {
        let text =
            format!("the queue of the endpoint picker is unknown ({why}); check that Prometheus scrapes its metrics");
        recommendation.block_scale_down(model, Explanation::new(FactorCode::EndpointPickerQueueUnknown, text));
    }
    recommendation
}

/// Distributes requests that wait at the endpoint picker over the replicas, where they would wait otherwise.
#[expect(clippy::cast_precision_loss, reason = "no fleet has so many pods")]
fn distribute(replicas: &mut [PodSaturation], waiting: f64) {
    if waiting.is_finite() && waiting > 0.0 {
        let share = waiting / replicas.len() as f64;
        replicas.iter_mut().for_each(|replica| replica.queue += share);
    }
}

/// `waiting`: requests that wait at the endpoint picker, if there is one.
fn recommendation(analysis: &SaturationAnalysis, states: &[VariantState], waiting: Option<f64>) -> Recommendation {
    let bounded = targets(analysis, states, true);
    let free = targets(analysis, states, false);
    let current = |name: &str| states.iter().find(|state| state.variant == *name).map_or(0, |state| state.current);
    let number = |(name, target): (&String, &i32)| {
        // A pending scale-down stops while a replica is missing.
        let kept = bounded.transition && analysis.missing.is_some() && *target < current(name);
        let least = if kept { current(name) } else { *target };
        let unconstrained = free.replicas.get(name).copied().filter(|_| !kept).unwrap_or(least);
        let state = states.iter().find(|state| state.variant == *name);
        let obstacle = state.filter(|_| unconstrained > least).and_then(|state| state.obstacle(unconstrained));
        let is_cancelled = kept && state.is_some_and(|state| can_cancel(state, *target));
        let reason = match (least.cmp(&current(name)), &analysis.missing) {
            (_, Some(why)) if is_cancelled => format!("saturation-only mode: scale-down cancelled: {why}"),
            _ if bounded.transition => NO_CHANGE.to_owned(),
            (Ordering::Greater, Some(why)) => format!("saturation-only mode: scale-up: {why}"),
            (Ordering::Greater, None) => "saturation-only mode: scale-up".to_owned(),
            (Ordering::Less, _) => "saturation-only mode: scale-down".to_owned(),
            (Ordering::Equal, _) => NO_CHANGE.to_owned(),
        };
        (name.clone(), ReplicaTarget { target: least, unconstrained, reason, obstacle })
    };
    let mut targets: BTreeMap<String, ReplicaTarget> = bounded.replicas.iter().map(number).collect();
    for (state, requested) in states.iter().filter_map(|state| Some((state, state.ignored_target?))) {
        let own = targets.remove(&state.variant);
        let unconstrained = own.as_ref().map_or(0, |number| number.unconstrained);
        let number = match (&analysis.missing, own) {
            (Some(why), _) => {
                let (target, obstacle) = state.repeated_request(requested);
                let grows = target > state.current;
                let reason =
                    if grows { format!("saturation-only mode: scale-up: {why}") } else { NO_CHANGE.to_owned() };
                ReplicaTarget { target, unconstrained: unconstrained.max(requested), reason, obstacle }
            }
            (None, Some(own)) => own,
            (None, None) => {
                let current = state.current;
                ReplicaTarget { target: current, unconstrained: current, reason: NO_CHANGE.to_owned(), obstacle: None }
            }
        };
        targets.insert(state.variant.clone(), number);
    }
    let need = match (&analysis.missing, analysis.has_spare_replica) {
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
    if let Some(waiting) = waiting {
        signal.factors.push(Factor::new(FactorCode::RequestsAtEndpointPicker));
        signal.text += &format!(", {waiting:.0} requests queued at the endpoint picker");
    }
    add_given_up(&mut signal, states);
    Recommendation {
        signal,
        need,
        targets,
        spare: analysis.spare_kv,
        transition: bounded.transition.then(|| in_transition(awaited(analysis, states))),
        scale_down_block: None,
        flip: FlipPoints::default(),
    }
}

/// Whether a pending scale-down to `number` can be cancelled. One that the bounds require cannot.
fn can_cancel(state: &VariantState, number: i32) -> bool {
    state.ignored_target.is_none() && state.bounds.clamp(state.current) > number
}

/// The variants that are in transition.
fn awaited(analysis: &SaturationAnalysis, states: &[VariantState]) -> Vec<Explanation> {
    let explanation = |state: &VariantState| {
        let VariantState { variant, current, .. } = state;
        let pods = *analysis.pods.get(variant)?;
        let (code, text) = match state.awaited() {
            Some(desired) if analysis.missing.is_some() && can_cancel(state, desired) => {
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
    states.iter().filter_map(explanation).collect()
}
