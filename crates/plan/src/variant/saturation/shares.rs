//! The first saturation engine: compares KV cache and queue of the pods with thresholds, and changes one replica at a
//! time.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use super::VariantState;
use crate::variant::config::thresholds::Thresholds;

/// Prevents replicas from flapping when a projection misses a threshold by rounding.
const MARGIN: f64 = 1e-9;

/// A measured pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replica {
    pub pod: String,
    pub variant: String,
    /// Share of the KV cache in use.
    pub kv: f64,
    /// Waiting requests.
    pub queue: f64,
    pub cost: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Analysis {
    pub replicas: usize,
    pub non_saturated: usize,
    /// Average over replicas that are not saturated.
    pub spare_kv: f64,
    pub spare_queue: f64,
    /// Why a replica is missing.
    pub missing: Option<String>,
    /// The other replicas can carry the load of one.
    pub one_can_go: bool,
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

pub fn analyze(replicas: &[Replica], thresholds: &Thresholds, spare: Spare) -> Analysis {
    let mut analysis = Analysis { replicas: replicas.len(), ..Analysis::default() };
    for replica in replicas {
        *analysis.pods.entry(replica.variant.clone()).or_default() += 1;
        analysis.costs.insert(replica.variant.clone(), replica.cost);
    }
    if replicas.is_empty() {
        return analysis;
    }
    let free = |replica: &&Replica| replica.kv < thresholds.kv_cache && replica.queue < thresholds.queue_length;
    let free: Vec<&Replica> = replicas.iter().filter(free).collect();
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
    analysis.one_can_go = fits_without_one(&carried, thresholds);
    analysis
}

#[expect(clippy::cast_precision_loss, reason = "no fleet has so many pods")]
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn missing(analysis: &Analysis, thresholds: &Thresholds) -> Option<String> {
    let Analysis { spare_kv, spare_queue, .. } = analysis;
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
fn fits_without_one(replicas: &[&Replica], thresholds: &Thresholds) -> bool {
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
pub fn targets(analysis: &Analysis, states: &[VariantState], bounded: bool) -> Targets {
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
    for state in states.iter().filter(|state| state.stuck || state.over) {
        replicas.insert(state.variant.clone(), state.current);
    }
    let bounds = |variant: &str| state(variant).filter(|_| bounded).map(VariantState::limits).unwrap_or_default();
    let told = |variant: &str| state(variant).map_or(0.0, |state| state.cost);
    let cost = |variant: &str| analysis.costs.get(variant).copied().unwrap_or_else(|| told(variant));
    // Whether changed bounds already cause such a change in this reconcile.
    let changes = |way: Ordering| {
        let by_bounds = |(variant, count): (&String, &i32)| {
            let kept = bounds(variant).clamp(*count);
            kept.cmp(count) == way
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
    } else if analysis.one_can_go && !changes(Ordering::Less) {
        let open = replicas.iter().filter(|(variant, count)| **count > 1 && bounds(variant).allow(**count - 1));
        let dearest = open.max_by(|(a, _), (b, _)| cost(a).total_cmp(&cost(b)).then(a.cmp(b)));
        if let Some((variant, count)) = dearest.map(|(variant, count)| (variant.clone(), *count)) {
            replicas.insert(variant, count - 1);
        }
    }
    Targets { replicas, transition: false }
}
