//! The queueing engine: distributes the arrival rate of a model over its variants at least cost, so that each replica
//! meets the latency targets of its service class.
//!
//! A constant load keeps the numbers: they shrink only to a size that serves the load with a headroom, and a number
//! that grew never exceeds that size.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steersman_reconcile::{Finding, Severity};

use super::demand::pods_without_metrics;
use super::measured_demand::{Analysis, FlipPoints, ScaleDownBlock};
use super::queueing::{
    LatencyTargets, ModelServer, Profile, ProfileError, QueueingError, RequestShape, ServiceTimes, Sizing,
};
use super::{MeasuredPod, Recommendation, ReplicaTarget, add_given_up, valid};
use crate::variant::config::classes::{ClassTarget, NoTarget};
use crate::variant::config::thresholds::Analyzer;
use crate::variant::names;
use crate::variant::optimize::split::{Split, SplitOptions, VariantSupply, split_demand};
use crate::variant::progress::VariantState;
use crate::variant::snapshot::{ObservedModel, ObservedVariant};
use crate::variant::trace::{Explanation, Factor, FactorCode, FactorSubject};

/// A smaller size has to serve this multiple of the load.
const HEADROOM: f64 = 1.1;

/// Share of the smallest rate that is used in place of no load, so that one replica stays.
const LEAST_LOAD: f64 = 1e-6;

/// Relative tolerance of a comparison of rates.
const ROUNDING: f64 = 1e-9;

/// Steps of the search for the rate below which a replica is removed, and the corrections of its result.
const FLIP_STEPS: u32 = 12;
const FLIP_CORRECTIONS: u32 = 8;

/// A variant at most doubles in one reconcile, or gets this many more replicas, because its profile may be wrong.
const MAX_ADDED: i32 = 4;

/// The reason of all numbers, in the Go operator's wording.
const REASON: &str = "Optimizer solution: cost and latency optimized allocation";

/// Profile and latency targets of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLevel<'a> {
    pub profile: Profile,
    pub target: ClassTarget<'a>,
}

/// Why a variant cannot be sized by the queueing model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceLevelError {
    ProfileMissing,
    ProfileInvalid(ProfileError),
    TargetMissing(NoTarget),
}

impl<'a> ServiceLevel<'a> {
    pub fn of(model: &ObservedModel<'a>, variant: &ObservedVariant) -> Result<Self, ServiceLevelError> {
        let profile = variant.spec.variant_profile.as_ref().ok_or(ServiceLevelError::ProfileMissing)?;
        let profile = Profile::read(profile).map_err(ServiceLevelError::ProfileInvalid)?;
        let key = variant.spec.slo_class_ref.as_ref().map(|class| class.key.as_str());
        let target = model.snapshot.config.classes.find(model.namespace, model.name, key);
        Ok(Self { profile, target: target.map_err(ServiceLevelError::TargetMissing)? })
    }

    fn targets(&self) -> LatencyTargets {
        LatencyTargets { ttft_ms: Some(self.target.target.ttft), itl_ms: Some(self.target.target.tpot), tps: None }
    }
}

impl ServiceLevelError {
    fn explanation(&self, variant: &str) -> Explanation {
        let (code, text) = match self {
            Self::ProfileMissing => (FactorCode::VariantProfileMissing, "spec.variantProfile is missing".to_owned()),
            Self::ProfileInvalid(ProfileError { field, why }) => {
                (FactorCode::VariantProfileInvalid, format!("spec.variantProfile.{field}: {why}"))
            }
            Self::TargetMissing(error) => (FactorCode::ServiceClassMissing, error.to_string()),
        };
        let factor = Factor::about(code, FactorSubject::Variant(variant.to_owned()));
        Explanation::of(factor, format!("variant {variant}: {text}"))
    }
}

/// By variant, in the order of the model.
pub type ServiceLevels<'a> = Vec<Result<ServiceLevel<'a>, ServiceLevelError>>;

pub fn of_model<'a>(model: &ObservedModel<'a>) -> ServiceLevels<'a> {
    model.variants.iter().map(|variant| ServiceLevel::of(model, variant)).collect()
}

/// Whether the queueing engine decides for the model.
pub fn decides(analyzer: Analyzer, levels: &ServiceLevels<'_>) -> bool {
    match analyzer {
        Analyzer::Demand => levels.iter().all(Result::is_ok),
        Analyzer::Queueing => true,
        Analyzer::Percentage | Analyzer::Tokens => false,
    }
}

/// Average tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    pub input: f64,
    pub output: f64,
    /// `false` if no request completed recently and these are earlier values.
    pub is_recent: bool,
}

impl Lengths {
    fn shape(self) -> RequestShape {
        RequestShape { input: self.input, output: self.output.max(1.0) }
    }
}

/// Results of the queueing model within one reconcile. Variants with equal profiles and targets share them.
#[derive(Debug, Default)]
pub struct SizeCache {
    sizes: BTreeMap<[u64; 9], Result<(ModelServer, Sizing), QueueingError>>,
}

impl SizeCache {
    fn size(
        &mut self,
        profile: &Profile,
        shape: RequestShape,
        targets: LatencyTargets,
    ) -> Result<(ModelServer, Sizing), QueueingError> {
        let times = match profile.times {
            ServiceTimes::PrefillDecode { alpha, beta, gamma, delta } => [alpha, beta, gamma, delta],
            ServiceTimes::Iteration { alpha, beta, gamma } => [alpha, beta, gamma, f64::NAN],
        };
        let [alpha, beta, gamma, delta] = times.map(f64::to_bits);
        let [input, output] = [shape.input, shape.output].map(f64::to_bits);
        let [ttft, itl] = [targets.ttft_ms, targets.itl_ms].map(|target| target.unwrap_or_default().to_bits());
        let key = [alpha, beta, gamma, delta, u64::from(profile.max_batch), input, output, ttft, itl];
        let sized = || profile.server(shape).and_then(|server| Ok((server, server.size(&targets)?)));
        *self.sizes.entry(key).or_insert_with(sized)
    }
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub ttft: Option<f64>,
    pub itl: Option<f64>,
}

/// The latency that is expected of a variant, and what it depends on.
#[derive(Clone, Debug, PartialEq)]
struct Expectation {
    class: String,
    targets: Latency,
    measured: Latency,
    /// `None` if the lengths of the requests are unknown.
    server: Option<ModelServer>,
    /// Requests per second that a replica serves within the targets.
    rate: f64,
}

/// Inputs of the predictions of a model, which depend on the numbers that are finally granted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    arrival_rate: f64,
    grows_above: Option<f64>,
    shrinks_below: Option<f64>,
    expectations: BTreeMap<String, Expectation>,
}

/// The service level of a variant at its decided number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceLevelDecision {
    /// Key of the service class.
    pub class: String,
    pub targets: Latency,
    pub predicted: Latency,
    pub measured: Latency,
    /// Requests per second of the model.
    pub arrival_rate: f64,
    /// Arrival rates beyond which the numbers of the model change.
    pub grows_above: Option<f64>,
    pub shrinks_below: Option<f64>,
}

impl Outlook {
    /// `replicas`: the number of each variant of the model.
    pub fn at(&self, variant: &str, replicas: &BTreeMap<&str, i32>) -> Option<ServiceLevelDecision> {
        let expectation = self.expectations.get(variant)?;
        let count = |name: &str| replicas.get(name).copied().unwrap_or_default().max(0);
        let capacity: f64 = self.expectations.iter().map(|(name, one)| f64::from(count(name)) * one.rate).sum();
        let load = if capacity > 0.0 { self.arrival_rate * expectation.rate / capacity } else { 0.0 };
        let server = expectation.server.filter(|_| count(variant) > 0);
        // Above the maximum rate there is no steady state, so that no latency can be predicted.
        let predicted = server.and_then(|server| server.predict(load).ok());
        Some(ServiceLevelDecision {
            class: expectation.class.clone(),
            targets: expectation.targets,
            predicted: Latency { ttft: predicted.map(|at| at.ttft), itl: predicted.map(|at| at.itl) },
            measured: expectation.measured,
            arrival_rate: self.arrival_rate,
            grows_above: self.grows_above,
            shrinks_below: self.shrinks_below,
        })
    }
}

pub struct Sized {
    pub recommendation: Recommendation,
    pub outlook: Outlook,
    /// Why variants without a number keep theirs.
    pub held: BTreeMap<String, Explanation>,
    /// Variants whose targets are missed even without load.
    pub unreachable: BTreeSet<String>,
}

/// Rate of a replica, as far as it is known.
enum Capacity {
    /// Requests per second within the targets.
    Serves {
        server: Option<ModelServer>,
        rate: f64,
    },
    /// The targets are missed even without load. `max`: requests per second without targets.
    Unreachable {
        server: ModelServer,
        max: f64,
        error: QueueingError,
    },
    Unknown(Explanation),
}

/// The variants that can be sized, as the solver sees them.
struct Problem {
    supplies: Vec<VariantSupply>,
    /// Accelerators that the model can use by type, if they are limited.
    available: Option<BTreeMap<String, i32>>,
    /// Requests per second that replicas serve whose number is not decided.
    fixed: f64,
}

impl Problem {
    fn split(&self, demand: f64) -> Split {
        // A demand from metrics is finite and not negative.
        split_demand(&self.supplies, demand.max(self.least()), self.available.as_ref(), SplitOptions::default())
            .unwrap_or_default()
    }

    /// The numbers for this load if the accelerators and `maxReplicas` did not limit it.
    fn unlimited(&self, demand: f64) -> Split {
        let free = |supply: &VariantSupply| VariantSupply { max: None, ..supply.clone() };
        let supplies: Vec<VariantSupply> = self.supplies.iter().map(free).collect();
        split_demand(&supplies, demand, None, SplitOptions::default()).unwrap_or_default()
    }

    fn least(&self) -> f64 {
        let smallest = self.supplies.iter().filter_map(|supply| supply.rate_per_replica).fold(f64::INFINITY, f64::min);
        if smallest.is_finite() { smallest * LEAST_LOAD } else { 0.0 }
    }

    /// The current replicas within their bounds.
    fn current(&self) -> BTreeMap<String, i32> {
        let kept = |supply: &VariantSupply| {
            let max = supply.max.unwrap_or(i32::MAX).max(0);
            (supply.name.clone(), supply.current.clamp(supply.min.max(0).min(max), max))
        };
        self.supplies.iter().map(kept).collect()
    }

    fn capacity(&self, replicas: &BTreeMap<String, i32>) -> f64 {
        let of = |supply: &VariantSupply| {
            f64::from(replicas.get(&supply.name).copied().unwrap_or_default())
                * supply.rate_per_replica.unwrap_or_default()
        };
        self.supplies.iter().map(of).sum()
    }

    /// The load that the numbers have to serve: a load above the capacity itself, and a smaller one with the headroom,
    /// as far as the current replicas have it. It never falls when the load rises, and a number that was decided
    /// for a load stays the answer for it.
    fn need(&self, demand: f64, peak: f64) -> f64 {
        let capacity = self.capacity(&self.current());
        if demand > capacity * (1.0 + ROUNDING) { demand } else { (peak.max(demand) * HEADROOM).min(capacity) }
    }

    /// The rates beyond which the numbers change once `replicas` are reached.
    fn flip_points(&self, replicas: &BTreeMap<String, i32>) -> (Option<f64>, Option<f64>) {
        let reached = |supply: &VariantSupply| {
            let current = replicas.get(&supply.name).copied().unwrap_or_default();
            VariantSupply { current, ..supply.clone() }
        };
        let supplies = self.supplies.iter().map(reached).collect();
        let then = Self { supplies, available: self.available.clone(), fixed: self.fixed };
        let capacity = then.capacity(replicas);
        let grows = then.split(capacity * (1.0 + 1e-6)).replicas != *replicas;
        let answer = |demand: f64| then.split(demand * HEADROOM);
        let at = |split: &Split| split.capacity / HEADROOM;
        let mut below = answer(0.0);
        if below.replicas == *replicas {
            return (grows.then_some(capacity + self.fixed), None);
        }
        let (mut low, mut high) = (at(&below), capacity / HEADROOM);
        for _ in 0..FLIP_STEPS {
            let middle = f64::midpoint(low, high);
            let split = answer(middle);
            if split.replicas == *replicas {
                high = middle;
            } else {
                (low, below) = (middle, split);
            }
        }
        // Each answer holds up to its own capacity.
        for _ in 0..FLIP_CORRECTIONS {
            let next = answer(at(&below) * (1.0 + 1e-6));
            if next.replicas == *replicas || next.capacity <= below.capacity {
                break;
            }
            below = next;
        }
        let shrinks = Some(at(&below)).filter(|rate| *rate > 0.0);
        (grows.then_some(capacity + self.fixed), shrinks.map(|rate| rate + self.fixed))
    }
}

/// Fails if a value is unknown without which nothing can be decided.
pub fn recommend(
    model: &ObservedModel<'_>,
    levels: &ServiceLevels<'_>,
    demand: &Analysis,
    lengths: Option<Lengths>,
    (pods, states): (&[MeasuredPod<'_>], &[VariantState]),
    cache: &mut SizeCache,
) -> Result<Sized, Explanation> {
    let is_idle = demand.demand <= 0.0 && demand.peak <= 0.0;
    if lengths.is_none() && !is_idle {
        let factor = Factor::about(FactorCode::RequestLengthUnknown, FactorSubject::Model(model.name.to_owned()));
        let text = "no request completed in the last 5 minutes, so the length of the requests is unknown";
        return Err(Explanation::of(factor, text));
    }
    let shape = lengths.map(Lengths::shape);
    let capacities: Vec<Capacity> =
        states.iter().zip(levels).map(|(state, level)| capacity(state, level, shape, cache)).collect();
    let unreachable = unreachable(states, &capacities);
    let problem = problem(states, &capacities);
    let (load, peak) = ((demand.demand - problem.fixed).max(0.0), (demand.peak - problem.fixed).max(0.0));
    let current = problem.current();
    let capacity = problem.capacity(&current);
    let is_short = load > capacity * (1.0 + ROUNDING);
    let answer = problem.split(problem.need(load, peak));
    let wanted = if answer.unserved > 0.0 { problem.unlimited(problem.need(load, peak)) } else { answer.clone() };
    let is_lowered = |state: &VariantState| {
        let now = state.awaited().unwrap_or(state.current);
        answer.replicas.get(&state.variant).is_some_and(|count| *count < now)
    };
    let shrinks = states.iter().any(is_lowered);
    let expectations = expectations(levels, pods, states, &capacities);
    let contradicted = || contradiction(&expectations, &capacities, answer.unserved).filter(|_| !is_idle);
    let block = if shrinks { block(demand, lengths, is_idle).or_else(contradicted) } else { None };
    // Without need, no variant grows to replace one that cannot shrink yet.
    let numbers = if is_short || block.is_none() { &answer.replicas } else { &current };
    let block = block.or_else(|| awaited(&problem, states, numbers, load).filter(|_| shrinks));
    let (grows_above, shrinks_below) = problem.flip_points(numbers);

    let mut targets = BTreeMap::new();
    for (state, capacity) in states.iter().zip(&capacities) {
        if matches!(capacity, Capacity::Unknown(_)) {
            continue;
        }
        let target = numbers.get(&state.variant).copied().unwrap_or(state.current);
        let most = state.current.saturating_mul(2).max(state.current.saturating_add(MAX_ADDED));
        let unconstrained = wanted.replicas.get(&state.variant).copied().unwrap_or(target);
        let unconstrained = if answer.unserved > 0.0 { unconstrained } else { target };
        let mut number = replica_target(state, target.min(most), unconstrained, is_short);
        if target > most {
            let text = format!("growth per reconcile: at most {most} replicas");
            number.unconstrained = number.unconstrained.max(target);
            number.obstacle = Some(Explanation::new(FactorCode::GrowthPerReconcile, text));
        }
        targets.insert(state.variant.clone(), number);
    }
    let mut signal = signal(demand, lengths, capacity + problem.fixed, (grows_above, shrinks_below));
    for (state, capacity) in states.iter().zip(&capacities) {
        if let Capacity::Unreachable { error, .. } = capacity {
            add_unreachable(&mut signal, state, error);
        }
    }
    add_given_up(&mut signal, states);
    let mut recommendation = Recommendation {
        signal,
        need: need(load, answer.capacity, capacity, is_short),
        targets,
        spare: if capacity > 0.0 { 1.0 - load / capacity } else { 0.0 },
        transition: None,
        scale_down_block: None,
        flip: FlipPoints {
            scales_up_above: grows_above,
            scales_down_below: None,
            scales_down_below_in_time: shrinks_below,
        },
    };
    if let Some(why) = block {
        recommendation.block_scale_down(model, why);
    }
    let held = states.iter().zip(&capacities).filter_map(|(state, capacity)| match capacity {
        Capacity::Unknown(why) => Some((state.variant.clone(), why.clone())),
        _ => None,
    });
    let held = held.collect();
    let outlook = Outlook { arrival_rate: demand.demand, grows_above, shrinks_below, expectations };
    Ok(Sized { recommendation, outlook, held, unreachable })
}

fn capacity(
    state: &VariantState,
    level: &Result<ServiceLevel<'_>, ServiceLevelError>,
    shape: Option<RequestShape>,
    cache: &mut SizeCache,
) -> Capacity {
    let level = match level {
        Ok(level) => level,
        Err(error) => return Capacity::Unknown(error.explanation(&state.variant)),
    };
    // Without load, each replica serves enough.
    let Some(shape) = shape else { return Capacity::Serves { server: None, rate: 1.0 } };
    match cache.size(&level.profile, shape, level.targets()) {
        Ok((server, sizing)) => Capacity::Serves { server: Some(server), rate: sizing.throughput },
        Err(error) => match level.profile.server(shape) {
            Ok(server) => Capacity::Unreachable { server, max: server.rate_range().max, error },
            Err(error) => {
                let why = ProfileError { field: "perfParms", why: error.to_string() };
                Capacity::Unknown(ServiceLevelError::ProfileInvalid(why).explanation(&state.variant))
            }
        },
    }
}

/// The variants that miss their targets without load. They get no load, unless all variants do: then they are sized
/// without targets.
fn unreachable(states: &[VariantState], capacities: &[Capacity]) -> BTreeSet<String> {
    let is_unreachable = |capacity: &Capacity| matches!(capacity, Capacity::Unreachable { .. });
    let named = states.iter().zip(capacities).filter(|(_, capacity)| is_unreachable(capacity));
    named.map(|(state, _)| state.variant.clone()).collect()
}

fn problem(states: &[VariantState], capacities: &[Capacity]) -> Problem {
    let any_serves = capacities.iter().any(|capacity| matches!(capacity, Capacity::Serves { .. }));
    let mut fixed = 0.0;
    let supply = |(state, capacity): (&VariantState, &Capacity)| {
        let limits = state.limits();
        let supply = VariantSupply {
            name: state.variant.clone(),
            accelerator_type: state.accelerator.clone(),
            units_per_replica: state.gpus,
            rate_per_replica: None,
            cost_per_replica: state.cost,
            min: limits.min,
            max: limits.max,
            current: state.awaited().unwrap_or(state.current),
        };
        let rate = match capacity {
            Capacity::Serves { rate, .. } => *rate,
            Capacity::Unreachable { max, .. } if !any_serves => *max,
            Capacity::Unreachable { .. } => return VariantSupply { current: limits.clamp(0), ..supply },
            Capacity::Unknown(_) => return supply,
        };
        if state.stuck {
            fixed += f64::from(state.ready()) * rate;
            return VariantSupply { current: state.current, ..supply };
        }
        if state.ignored_target.is_some() {
            let max = limits.at_most(state.current).max;
            return VariantSupply { rate_per_replica: Some(rate), max, current: state.current, ..supply };
        }
        VariantSupply { rate_per_replica: Some(rate), ..supply }
    };
    let supplies: Vec<VariantSupply> = states.iter().zip(capacities).map(supply).collect();
    Problem { supplies, available: available(states), fixed }
}

/// Accelerators that the model can use, including those that it has. `None` if they are not limited.
fn available(states: &[VariantState]) -> Option<BTreeMap<String, i32>> {
    let mut used: BTreeMap<String, i32> = BTreeMap::new();
    let mut free: BTreeMap<String, i32> = BTreeMap::new();
    for state in states {
        let (room, _) = state.gpu_room.as_ref()?;
        let own = used.entry(state.accelerator.clone()).or_default();
        *own = own.saturating_add(state.current.saturating_mul(state.gpus));
        let more = room.saturating_sub(state.current).max(0).saturating_mul(state.gpus);
        let most = free.entry(state.accelerator.clone()).or_default();
        *most = (*most).max(more);
    }
    for (accelerator, units) in &mut used {
        *units = units.saturating_add(free.get(accelerator).copied().unwrap_or_default());
    }
    Some(used)
}

/// Why no number may be lowered.
fn block(demand: &Analysis, lengths: Option<Lengths>, is_idle: bool) -> Option<Explanation> {
    if !is_idle && lengths.is_some_and(|lengths| !lengths.is_recent) {
        let text = "no request completed in the last 5 minutes, so the length of the requests is unknown";
        return Some(Explanation::new(FactorCode::RequestLengthUnknown, text));
    }
    if let Some(why) = pods_without_metrics(&demand.without_metrics) {
        return Some(why);
    }
    // The capacity is known from the profile.
    let block = demand.blocks.iter().find(|block| **block != ScaleDownBlock::CapacityUnknown)?;
    let (code, text) = match block {
        ScaleDownBlock::RequestsWaiting => (FactorCode::RequestsQueued, "requests are waiting"),
        ScaleDownBlock::PodsWithoutMetrics => (FactorCode::ReplicasWithoutMetrics, "some ready pods have no metrics"),
        ScaleDownBlock::PickerQueueUnknown => {
            (FactorCode::EndpointPickerQueueUnknown, "the queue of the endpoint picker is unknown")
        }
        ScaleDownBlock::ReplicasStarting => (FactorCode::ReplicasStarting, "replicas are starting"),
        ScaleDownBlock::DemandUnknown => {
            (FactorCode::ArrivalRateUnknown, "the arrival rate is unknown until metrics of one minute are known")
        }
        ScaleDownBlock::CapacityUnknown | ScaleDownBlock::StabilizationWindow => {
            (FactorCode::StabilizationWindow, "the load was higher or unknown within the stabilization window")
        }
    };
    Some(Explanation::new(code, text))
}

/// What shows that the profile is wrong, or that fewer replicas cannot serve the load. A profile may be copied from another
/// server, so that it alone lowers no number while measurements speak against it.
fn contradiction(
    expectations: &BTreeMap<String, Expectation>,
    capacities: &[Capacity],
    unserved: f64,
) -> Option<Explanation> {
    let is_missed = |(_, expectation): &(&String, &Expectation)| {
        let Expectation { measured, targets, .. } = expectation;
        let exceeds = |measured: Option<f64>, target: Option<f64>| measured.zip(target).is_some_and(|(m, t)| m > t);
        exceeds(measured.ttft, targets.ttft) || exceeds(measured.itl, targets.itl)
    };
    if let Some((variant, _)) = expectations.iter().find(is_missed) {
        let factor = Factor::about(FactorCode::LatencyTargetMissed, FactorSubject::Variant(variant.clone()));
        let text =
            format!("the measured latency of variant {variant} is above its targets, whatever its profile predicts");
        return Some(Explanation::of(factor, text));
    }
    let any_unreachable = capacities.iter().any(|capacity| matches!(capacity, Capacity::Unreachable { .. }));
    let all_unreachable = !capacities.iter().any(|capacity| matches!(capacity, Capacity::Serves { .. }));
    (any_unreachable && (all_unreachable || unserved > 0.0)).then(|| {
        let text = "by the profiles, the latency targets cannot be met for the whole load; correct spec.variantProfile or \
                    the targets of the service class";
        Explanation::new(FactorCode::LatencyTargetUnreachable, text)
    })
}

/// The replicas that take over the load, if they are not ready yet.
fn awaited(
    problem: &Problem,
    states: &[VariantState],
    numbers: &BTreeMap<String, i32>,
    load: f64,
) -> Option<Explanation> {
    let ready = |(state, supply): (&VariantState, &VariantSupply)| {
        let number = numbers.get(&state.variant).copied().unwrap_or_default();
        f64::from(state.ready().min(number)) * supply.rate_per_replica.unwrap_or_default()
    };
    let ready: f64 = states.iter().zip(&problem.supplies).map(ready).sum();
    // Without load, one ready replica stays.
    let least = load.max(problem.least()).min(problem.capacity(numbers)) * (1.0 - ROUNDING);
    (ready < least).then(|| {
        let text = "the replicas that take over the load are not ready yet";
        Explanation::new(FactorCode::ReplicasStarting, text)
    })
}

fn replica_target(state: &VariantState, target: i32, unconstrained: i32, is_short: bool) -> ReplicaTarget {
    let (target, unconstrained, obstacle) = match state.ignored_target.filter(|_| is_short) {
        Some(requested) => {
            let (target, obstacle) = state.repeated_request(requested);
            (target, unconstrained.max(requested), obstacle)
        }
        None => (target, unconstrained, state.obstacle(unconstrained).filter(|_| unconstrained > target)),
    };
    ReplicaTarget { target, unconstrained, reason: REASON.to_owned(), obstacle }
}

fn signal(
    demand: &Analysis,
    lengths: Option<Lengths>,
    capacity: f64,
    (grows_above, shrinks_below): (Option<f64>, Option<f64>),
) -> Explanation {
    let mut text = format!("{:.2} requests/s arrive", demand.demand);
    if let Some(Lengths { input, output, .. }) = lengths {
        text += &format!(", on average {input:.0} tokens in and {output:.0} out");
    }
    text += &format!("; the replicas serve {capacity:.2} requests/s within the latency targets");
    if let Some(rate) = grows_above {
        text += &format!("; more replicas above {rate:.2}");
    }
    if let Some(rate) = shrinks_below {
        text += &format!("; fewer or cheaper ones below {rate:.2}");
    }
    Explanation::new(FactorCode::ArrivalRate, text)
}

fn add_unreachable(signal: &mut Explanation, state: &VariantState, error: &QueueingError) {
    let about = FactorSubject::Variant(state.variant.clone());
    signal.factors.push(Factor::about(FactorCode::LatencyTargetUnreachable, about));
    signal.text += &format!("; variant {}: {error}", state.variant);
}

fn need(load: f64, answer: f64, capacity: f64, is_short: bool) -> String {
    if is_short {
        return format!("{:.2} requests/s more than the capacity", load - capacity);
    }
    let less = capacity - answer;
    if less > capacity * ROUNDING {
        format!("{less:.2} requests/s of the capacity are spare")
    } else {
        "no change".to_owned()
    }
}

fn expectations(
    levels: &ServiceLevels<'_>,
    pods: &[MeasuredPod<'_>],
    states: &[VariantState],
    capacities: &[Capacity],
) -> BTreeMap<String, Expectation> {
    let any_serves = capacities.iter().any(|capacity| matches!(capacity, Capacity::Serves { .. }));
    let mut expectations = BTreeMap::new();
    for ((state, level), capacity) in states.iter().zip(levels).zip(capacities) {
        let Ok(level) = level else { continue };
        let (server, rate) = match capacity {
            Capacity::Serves { server, rate } => (*server, *rate),
            Capacity::Unreachable { server, max, .. } => (Some(*server), if any_serves { 0.0 } else { *max }),
            Capacity::Unknown(_) => continue,
        };
        let own = || pods.iter().filter(|(owner, _)| owner.key.name == state.variant).map(|(_, pod)| *pod);
        let weight = |pod: &super::PodMetrics| valid(pod.completed_per_second).filter(|rate| *rate > 0.0);
        let target = |target: f64| Some(target).filter(|target| *target > 0.0);
        let expectation = Expectation {
            class: level.target.key.to_owned(),
            targets: Latency { ttft: target(level.target.target.ttft), itl: target(level.target.target.tpot) },
            measured: Latency {
                ttft: weighted(own().filter_map(|pod| Some((valid(pod.ttft_seconds)? * 1e3, weight(pod)?)))),
                itl: weighted(own().filter_map(|pod| Some((valid(pod.itl_seconds)? * 1e3, weight(pod)?)))),
            },
            server,
            rate,
        };
        expectations.insert(state.variant.clone(), expectation);
    }
    expectations
}

fn weighted(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, total), (value, weight)| (sum + value * weight, total + weight));
    (weight > 0.0).then(|| sum / weight)
}

/// Reports profiles and classes that have no effect. `is_used`: the queueing engine decides for the model.
pub fn findings(
    variant: &ObservedVariant,
    model: &ObservedModel<'_>,
    levels: &ServiceLevels<'_>,
    is_used: bool,
    is_unreachable: bool,
) -> Vec<Finding> {
    let warning = |reason: &'static str, message: String, remedy: &str| Finding {
        severity: Severity::Warning,
        reason,
        message,
        remedy: remedy.to_owned(),
    };
    let (profile, class) = (&variant.spec.variant_profile, &variant.spec.slo_class_ref);
    let mut findings = Vec::new();
    let own = model.variants.iter().zip(levels).find(|(one, _)| one.key == variant.key).map(|(_, level)| level);
    let Some(own) = own.filter(|_| is_used || profile.is_some() || class.is_some()) else { return findings };
    let effect =
        if is_used { "replicas stay as they are" } else { "replicas are decided by the load of the running ones" };
    match own {
        Err(ServiceLevelError::ProfileInvalid(ProfileError { field, why })) => findings.push(warning(
            "VariantProfileInvalid",
            format!("spec.variantProfile.{field}: {why}. The profile is not used and {effect}."),
            "Correct the value: alpha and beta in decodeParms, gamma and delta in prefillParms, each a decimal number of \
             milliseconds.",
        )),
        Err(ServiceLevelError::TargetMissing(error)) => findings.push(warning(
            "ServiceClassMissing",
            format!("spec.variantProfile is not used and {effect}: {error}."),
            "Add an entry for the model, or for default/default, to a class in ConfigMap service-classes-config.",
        )),
        Err(ServiceLevelError::ProfileMissing) if is_used => findings.push(warning(
            "VariantProfileMissing",
            format!("analyzerName is queueing, and spec.variantProfile is missing: {effect}."),
            "Set spec.variantProfile, or remove analyzerName from the saturation settings.",
        )),
        Err(ServiceLevelError::ProfileMissing) => findings.push(Finding {
            severity: Severity::Info,
            reason: "VariantProfileIgnored",
            message: format!("spec.sloClassRef has no latency effect without spec.variantProfile: {effect}."),
            remedy: "Set spec.variantProfile to decide by latency targets.".to_owned(),
        }),
        Ok(level) if is_used && is_unreachable => findings.push(warning(
            "LatencyTargetUnreachable",
            format!(
                "With spec.variantProfile even an idle replica misses the targets of class {} (slo-ttft {} ms, slo-tpot {} ms). \
                 The variant gets no load while another one meets its targets.",
                level.target.key, level.target.target.ttft, level.target.target.tpot
            ),
            "Raise the targets in ConfigMap service-classes-config, correct spec.variantProfile, or use a faster accelerator.",
        )),
        Ok(_) if is_used => {}
        Ok(_) => {
            let other = model.variants.iter().zip(levels).find(|(_, level)| level.is_err());
            let (why, remedy) = match other {
                Some((other, _)) => (
                    format!("variant {} of the model has no valid profile or no latency targets", other.key.name),
                    "Give each variant of the model a variantProfile, or set analyzerName to queueing.",
                ),
                None => (
                    "analyzerName selects another engine for all models".to_owned(),
                    "Remove analyzerName from the saturation settings, or set it to queueing.",
                ),
            };
            findings.push(Finding {
                severity: Severity::Info,
                reason: "VariantProfileIgnored",
                message: format!("spec.variantProfile is not used and {effect}: {why}."),
                remedy: remedy.to_owned(),
            });
        }
    }
    let config = &model.snapshot.config.classes;
    if let Some(class) =
        class.as_ref().filter(|class| class.name != names::CLASSES || !config.by_key.contains_key(&class.key))
    {
        findings.push(warning(
            "ServiceClassNotFound",
            format!(
                "spec.sloClassRef names key {} of ConfigMap {}, which is not a service class. The class is looked up by the \
                 model.",
                class.key, class.name
            ),
            "Name a key of ConfigMap service-classes-config in Steersman's namespace.",
        ));
    }
    findings
}
