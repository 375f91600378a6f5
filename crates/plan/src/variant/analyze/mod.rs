//! Measures the load of a model, and asks the selected engine how many replicas each variant should have.

pub mod demand;
pub mod engine_args;
pub mod measured_demand;
pub mod queueing;
pub mod saturation_percentage;
pub mod saturation_tokens;
pub mod service_levels;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steersman_reconcile::Finding;

use self::measured_demand::FlipPoints;
use self::service_levels::{Lengths, Outlook, ServiceLevels, SizeCache};
use super::config::thresholds::{Analyzer, Thresholds};
use super::memory::Memory;
use super::progress::{VariantState, in_transition};
use super::snapshot::{MetricsError, ObservedModel, ObservedVariant, PodMetrics};
use super::trace::{DecidedBy, DecisionTrace, Explanation, Factor, FactorCode, FactorSubject, Proposal};

/// Availability of the model's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum MetricsState {
    NotQueried,
    Available,
    Unavailable(MetricsError),
    /// Some metrics are missing; the explanation names them. Nothing is decided.
    Incomplete(Explanation),
    /// Some pods have no metrics; the explanation names them. Numbers are decided from the other pods.
    Partial(Explanation),
    /// No replica runs, so there are no metrics.
    NoReplicas,
}

/// A pod with metrics and its variant.
pub type MeasuredPod<'a> = (&'a ObservedVariant, &'a PodMetrics);

pub struct ModelAnalysis {
    pub metrics: MetricsState,
    /// Or why there is none.
    pub recommendation: Result<Recommendation, Explanation>,
    /// Inputs of the predicted latency, if the queueing engine decides.
    pub outlook: Option<Outlook>,
    /// Why variants without a recommended number keep theirs.
    pub held: BTreeMap<String, Explanation>,
    /// Variants that miss their latency targets even without load.
    pub unreachable: BTreeSet<String>,
    /// Findings about the profiles and classes, by variant.
    pub findings: BTreeMap<String, Vec<Finding>>,
}

/// An engine's recommendation for a model.
pub struct Recommendation {
    pub signal: Explanation,
    pub need: String,
    /// By variant. A variant that is not here keeps its number.
    pub targets: BTreeMap<String, ReplicaTarget>,
    /// Free share of the capacity.
    pub spare: f64,
    /// An earlier decision is still being carried out.
    pub transition: Option<Explanation>,
    /// Why no number is lowered.
    pub scale_down_block: Option<Explanation>,
    /// The request rates at which the engine decides otherwise.
    pub flip: FlipPoints,
}

pub struct ReplicaTarget {
    pub target: i32,
    pub unconstrained: i32,
    pub reason: String,
    /// The obstacle between `target` and `unconstrained`, other than the bounds.
    pub obstacle: Option<Explanation>,
}

pub fn analyze(
    model: &ObservedModel<'_>,
    states: &[VariantState],
    memory: &mut Memory,
    cache: &mut SizeCache,
) -> ModelAnalysis {
    let thresholds = model.snapshot.config.thresholds(model.namespace, model.name);
    let levels = service_levels::of_model(model);
    let is_queueing = service_levels::decides(thresholds.analyzer, &levels);
    let decided = if is_queueing {
        by_service_levels(model, &levels, &thresholds, states, memory, cache)
    } else {
        by_saturation(model, &thresholds, states, memory)
    };
    let mut analysis = decided.unwrap_or_else(|metrics| {
        let why = missing_metrics(&metrics, model.name);
        ModelAnalysis::new(metrics, Err(why))
    });
    for variant in model.variants {
        let is_unreachable = analysis.unreachable.contains(&variant.key.name);
        let findings = service_levels::findings(variant, model, &levels, is_queueing, is_unreachable);
        analysis.findings.insert(variant.key.name.clone(), findings);
    }
    analysis
}

fn by_service_levels(
    model: &ObservedModel<'_>,
    levels: &ServiceLevels<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
    cache: &mut SizeCache,
) -> Result<ModelAnalysis, MetricsState> {
    let pods = ready_pods(model)?;
    let load = demand::measure(model, thresholds, states, memory);
    let is_recent = pods.iter().any(|(_, pod)| valid(pod.input).is_some_and(|input| input > 0.0));
    let usual = saturation_tokens::usual_lengths(model, &pods, memory);
    let lengths = usual.map(|usual| Lengths { input: usual.input, output: usual.output, is_recent });
    let sized = service_levels::recommend(model, levels, &load, lengths, (&pods, states), cache);
    let sized = sized.map_err(MetricsState::Incomplete)?;
    let without_metrics = demand::pods_without_metrics(&load.without_metrics);
    Ok(ModelAnalysis {
        metrics: without_metrics.map_or(MetricsState::Available, MetricsState::Partial),
        recommendation: Ok(sized.recommendation),
        outlook: Some(sized.outlook),
        held: sized.held,
        unreachable: sized.unreachable,
        findings: BTreeMap::new(),
    })
}

fn by_saturation(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
) -> Result<ModelAnalysis, MetricsState> {
    let pods = ready_pods(model)?;
    let recommendation = match thresholds.analyzer {
        Analyzer::Demand if demand::has_request_counters(&pods) => {
            let (metrics, recommendation) = demand::recommend(model, thresholds, states, memory);
            return Ok(ModelAnalysis::new(metrics, Ok(recommendation)));
        }
        Analyzer::Demand => {
            // Counters that were there a moment ago are missing because of a fault, not because of the server.
            if demand::was_measured(model, memory) {
                return Err(MetricsState::Incomplete(demand::counters_missing()));
            }
            require_all(model, &pods)?;
            let mut recommendation = saturation_percentage::recommend(model, thresholds, &pods, states);
            let why = demand::counters_missing();
            recommendation.signal.text += &format!("; {why}, so the percentage engine decides");
            recommendation.signal.factors.extend(why.factors);
            recommendation
        }
        Analyzer::Percentage | Analyzer::Queueing => {
            require_all(model, &pods)?;
            saturation_percentage::recommend(model, thresholds, &pods, states)
        }
        Analyzer::Tokens => {
            require_all(model, &pods)?;
            let tokens = saturation_tokens::recommend(model, thresholds, &pods, states, memory);
            tokens.map_err(MetricsState::Incomplete)?
        }
    };
    Ok(ModelAnalysis::new(MetricsState::Available, Ok(recommendation)))
}

impl ModelAnalysis {
    fn new(metrics: MetricsState, recommendation: Result<Recommendation, Explanation>) -> Self {
        Self {
            metrics,
            recommendation,
            outlook: None,
            held: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            findings: BTreeMap::new(),
        }
    }

    /// The recommended number of a variant. Without a recommendation it keeps its number.
    pub fn propose<'a>(&self, model: &ObservedModel<'_>, variant: &'a ObservedVariant) -> Proposal<'a> {
        let held = variant.held(model.snapshot.now);
        let mut trace =
            DecisionTrace { decided_by: DecidedBy::Hold, wanted: held.replicas, ..DecisionTrace::default() };
        match &self.recommendation {
            Ok(recommendation) => {
                (trace.signal, trace.need) = (recommendation.signal.clone(), recommendation.need.clone());
                trace.flip = recommendation.flip;
                trace.hold = recommendation.transition.clone().or_else(|| recommendation.scale_down_block.clone());
            }
            Err(why) => (trace.signal, trace.hold) = (missing_metrics(&self.metrics, model.name), Some(why.clone())),
        }
        let mut proposal = Proposal {
            variant,
            replicas: held.replicas,
            reason: held.reason,
            unclamped_reason: held.unclamped_reason,
            is_decided: false,
            obstacle: None,
            trace,
        };
        if let Ok(recommendation) = &self.recommendation {
            match recommendation.targets.get(&variant.key.name) {
                Some(number) => take_over(&mut proposal, recommendation, number),
                None => {
                    if let Some(why) = self.held.get(&variant.key.name) {
                        proposal.trace.hold = Some(why.clone());
                    }
                    report_pending_start(&mut proposal);
                }
            }
        }
        proposal
    }
}

fn take_over(proposal: &mut Proposal<'_>, recommendation: &Recommendation, number: &ReplicaTarget) {
    let is_unchanged = proposal.variant.current() == Some(number.target);
    proposal.replicas = number.target;
    proposal.is_decided = true;
    proposal.obstacle.clone_from(&number.obstacle);
    proposal.set_reason(number.reason.clone());
    let trace = &mut proposal.trace;
    trace.wanted = number.unconstrained;
    trace.solver.clone_from(&number.reason);
    trace.decided_by = if recommendation.transition.is_some() {
        DecidedBy::Hold
    } else if !is_unchanged {
        DecidedBy::Solver
    } else if recommendation.scale_down_block.is_some() {
        DecidedBy::Hold
    } else {
        DecidedBy::Signal
    };
}

fn report_pending_start(proposal: &mut Proposal<'_>) {
    let replicas = proposal.replicas;
    if proposal.variant.current() == Some(0) && replicas > 0 {
        let text = format!("the scale target has 0 replicas, {replicas} are desired");
        let awaited = Explanation::new(FactorCode::DecisionPending, text);
        proposal.trace.hold.get_or_insert_with(|| in_transition(vec![awaited]));
    }
}

impl Recommendation {
    /// Drops targets below the number that would be held.
    fn block_scale_down(&mut self, model: &ObservedModel<'_>, why: Explanation) {
        for variant in model.variants {
            let held = variant.held(model.snapshot.now).replicas;
            if self.targets.get(&variant.key.name).is_some_and(|number| number.target < held) {
                self.targets.remove(&variant.key.name);
            }
        }
        let text = format!("scale-down blocked: {why}");
        self.scale_down_block = Some(why.reworded(text));
    }
}

/// The ready pods that have metrics, at least one.
fn ready_pods<'a>(model: &ObservedModel<'a>) -> Result<Vec<MeasuredPod<'a>>, MetricsState> {
    if model.variants.iter().all(|variant| variant.current() == Some(0)) {
        return Err(MetricsState::NoReplicas);
    }
    for variant in model.variants {
        if let Some(why) = variant.scale_target().and_then(|target| target.pods_error.as_deref()) {
            return Err(incomplete(FactorCode::PodsNotFound, FactorSubject::of(variant), why.to_owned()));
        }
    }
    let is_ready = |variant: &&ObservedVariant| {
        variant.scale_target().is_some_and(|target| target.ready.max(target.ready_pods) > 0)
    };
    let mut pods = match model.pods() {
        Err(MetricsError::NotFound) if !model.variants.iter().any(is_ready) => {
            return Err(MetricsState::Incomplete(none_ready(model)));
        }
        pods => pods.map_err(MetricsState::Unavailable)?,
    };
    let has_pods = !pods.is_empty();
    pods.retain(|(_, pod)| pod.ready);
    match (pods.is_empty(), has_pods) {
        (false, _) => Ok(pods),
        (true, _) if model.variants.iter().any(|variant| variant.ready_replicas() > 0) => {
            require_all(model, &pods)?;
            Err(MetricsState::Unavailable(MetricsError::NotFound))
        }
        (true, true) => Err(MetricsState::Incomplete(none_ready(model))),
        (true, false) => Err(MetricsState::Unavailable(MetricsError::NotFound)),
    }
}

fn incomplete(code: FactorCode, about: FactorSubject, text: String) -> MetricsState {
    MetricsState::Incomplete(Explanation::of(Factor::about(code, about), text))
}

/// Fails unless all ready pods have KV cache and queue. The saturation engines use no partial metrics: they could
/// understate the load.
fn require_all(model: &ObservedModel<'_>, pods: &[MeasuredPod<'_>]) -> Result<(), MetricsState> {
    for (_, pod) in pods {
        let values = [
            (FactorCode::PodKvCacheUnknown, "KV cache usage", pod.kv),
            (FactorCode::PodQueueUnknown, "queue length", pod.queue),
        ];
        if let Some((code, what, _)) = values.into_iter().find(|(.., value)| valid(*value).is_none()) {
            let text = format!("pod {} has no {what}", pod.name);
            return Err(incomplete(code, FactorSubject::Pod(pod.name.to_string()), text));
        }
    }
    for variant in model.variants {
        let ready = variant.ready_replicas();
        let known = pods.iter().filter(|(owner, _)| owner.key == variant.key).count();
        if i32::try_from(known).is_ok_and(|known| known < ready) {
            let text = format!("{known} of {ready} ready replicas of variant {} have metrics", variant.key.name);
            return Err(incomplete(FactorCode::ReplicasWithoutMetrics, FactorSubject::of(variant), text));
        }
    }
    Ok(())
}

/// Reported instead of missing metrics, so that users do not look for a fault in the collection of metrics.
fn none_ready(model: &ObservedModel<'_>) -> Explanation {
    let (mut factors, mut texts) = (Vec::new(), Vec::new());
    for variant in model.variants {
        let (name, current) = (&variant.key.name, variant.current().unwrap_or_default());
        if current > 0 {
            factors.push(Factor::about(FactorCode::NoReplicaReady, FactorSubject::Variant(name.clone())));
            texts.push(format!("variant {name}: 0 of {current}"));
        }
    }
    Explanation { factors, text: format!("no replica is ready ({}); check the pods", texts.join(", ")) }
}

pub fn missing_metrics(metrics: &MetricsState, model: &str) -> Explanation {
    match metrics {
        MetricsState::NotQueried => Explanation::new(FactorCode::MetricsNotRequested, "metrics were not queried"),
        MetricsState::Available => Explanation::new(FactorCode::MetricsAvailable, "metrics are available"),
        MetricsState::Unavailable(MetricsError::NotFound | MetricsError::ModelNameMismatch(_)) => {
            Explanation::new(FactorCode::MetricsMissing, "no metrics found")
        }
        MetricsState::Unavailable(MetricsError::Stale(age)) => {
            let factor = Factor::about(FactorCode::MetricsStale, FactorSubject::Model(model.to_owned()));
            Explanation::of(factor, format!("the newest metrics are {age} old"))
        }
        MetricsState::Unavailable(MetricsError::QueryFailed(why)) => {
            Explanation::new(FactorCode::MetricsQueryFailed, format!("the query of Prometheus failed: {why}"))
        }
        MetricsState::Unavailable(MetricsError::NotConfigured(_)) => {
            Explanation::new(FactorCode::PrometheusNotConfigured, "Prometheus is not configured")
        }
        MetricsState::Incomplete(what) | MetricsState::Partial(what) => what.clone(),
        MetricsState::NoReplicas => Explanation::new(FactorCode::NoReplicas, "no replica is running"),
    }
}

pub fn queue_unknown(why: &str) -> Explanation {
    Explanation::new(FactorCode::QueueUnknown, format!("the queue of the endpoint picker is unknown: {why}"))
}

/// The value, if it can be a count or a share.
fn valid(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

/// Adds the variants that are no longer waited for.
pub fn add_given_up(signal: &mut Explanation, states: &[VariantState]) {
    for VariantState { variant, current, pending, recently_unready, surplus_pods, .. } in states {
        let (code, text) = if *recently_unready {
            let pending = pending.max(&1);
            let text = format!(
                "not ready for more than 10 minutes and ignored: {pending} of variant {variant}, check the pods"
            );
            (FactorCode::ReplicasNotReady, text)
        } else if *surplus_pods {
            let text = format!(
                "variant {variant} has more ready pods than its {current} replicas, check whether a rollout is paused"
            );
            (FactorCode::MorePodsThanReplicas, text)
        } else {
            continue;
        };
        signal.factors.push(Factor::about(code, FactorSubject::Variant(variant.clone())));
        signal.text += &format!("; {text}");
    }
}
