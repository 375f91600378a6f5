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
    /// Some metrics are missing; the explanation names them.
    Incomplete(Explanation),
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
    let mut analysis = if is_queueing {
        by_service_levels(model, &levels, &thresholds, states, memory, cache)
    } else {
        by_saturation(model, &thresholds, states, memory)
    };
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
) -> ModelAnalysis {
    let pods = match ready_pods(model) {
        Ok(pods) => pods,
        Err(metrics) => return ModelAnalysis::without_metrics(metrics, model),
    };
    let demand = demand::measure(model, thresholds, states, memory);
    let is_recent = pods.iter().any(|(_, pod)| valid(pod.input).is_some_and(|input| input > 0.0));
    let usual = saturation_tokens::usual_lengths(model, &pods, memory);
    let lengths = usual.map(|usual| Lengths { input: usual.input, output: usual.output, is_recent });
    match service_levels::recommend(model, levels, &demand, lengths, (&pods, states), cache) {
        Ok(sized) => ModelAnalysis {
            metrics: demand.silent.first().map_or(MetricsState::Available, |pod| without_metrics(pod, &demand)),
            recommendation: Ok(sized.recommendation),
            outlook: Some(sized.outlook),
            held: sized.held,
            unreachable: sized.unreachable,
            findings: BTreeMap::new(),
        },
        Err(why) => ModelAnalysis::new(MetricsState::Incomplete(why.clone()), Err(why)),
    }
}

/// The first pod is named, because a list would change the status whenever a pod comes or goes.
fn without_metrics(pod: &str, demand: &measured_demand::Analysis) -> MetricsState {
    let factor = Factor::about(FactorCode::ReplicasWithoutMetrics, FactorSubject::Pod(pod.to_owned()));
    incomplete(factor, format!("{} ready pods have no metrics, such as {pod}", demand.silent.len()))
}

fn by_saturation(
    model: &ObservedModel<'_>,
    thresholds: &Thresholds,
    states: &[VariantState],
    memory: &mut Memory,
) -> ModelAnalysis {
    let pods = match measured_pods(model) {
        Ok(pods) => pods,
        Err(metrics) => return ModelAnalysis::without_metrics(metrics, model),
    };
    let recommendation = match thresholds.analyzer {
        Analyzer::Percentage | Analyzer::Automatic | Analyzer::Queueing => {
            Ok(saturation_percentage::recommend(model, thresholds, &pods, states))
        }
        Analyzer::Tokens => saturation_tokens::recommend(model, thresholds, &pods, states, memory),
    };
    let metrics = match &recommendation {
        Ok(_) => MetricsState::Available,
        Err(why) => MetricsState::Incomplete(why.clone()),
    };
    ModelAnalysis::new(metrics, recommendation)
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

    fn without_metrics(metrics: MetricsState, model: &ObservedModel<'_>) -> Self {
        let why = missing_metrics(&metrics, model.name);
        Self::new(metrics, Err(why))
    }

    /// The recommended number of a variant. Without a recommendation it keeps its number.
    pub fn propose<'a>(&self, model: &ObservedModel<'_>, variant: &'a ObservedVariant) -> Proposal<'a> {
        let held = variant.held(model.snapshot.now);
        let mut trace =
            DecisionTrace { decided_by: DecidedBy::Hold, wanted: held.replicas, ..DecisionTrace::default() };
        match &self.recommendation {
            Ok(recommendation) => {
                (trace.signal, trace.need) = (recommendation.signal.clone(), recommendation.need.clone());
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

/// The ready pods, with or without all metrics.
fn ready_pods<'a>(model: &ObservedModel<'a>) -> Result<Vec<MeasuredPod<'a>>, MetricsState> {
    let mut pods = listed_pods(model)?;
    let has_pods = !pods.is_empty();
    pods.retain(|(_, pod)| pod.ready);
    if pods.is_empty() { Err(no_ready_pods(model, has_pods)) } else { Ok(pods) }
}

/// The pods with metrics, ready or not.
fn listed_pods<'a>(model: &ObservedModel<'a>) -> Result<Vec<MeasuredPod<'a>>, MetricsState> {
    if model.variants.iter().all(|variant| variant.current() == Some(0)) {
        return Err(MetricsState::NoReplicas);
    }
    for variant in model.variants {
        if let Some(why) = variant.scale_target().and_then(|target| target.pods_error.as_deref()) {
            return Err(incomplete(about(FactorCode::PodsNotFound, variant), why.to_owned()));
        }
    }
    let is_ready = |variant: &&ObservedVariant| {
        variant.scale_target().is_some_and(|target| target.ready.max(target.ready_pods) > 0)
    };
    match model.pods() {
        Err(MetricsError::NotFound) if !model.variants.iter().any(is_ready) => {
            Err(MetricsState::Incomplete(none_ready(model)))
        }
        pods => pods.map_err(MetricsState::Unavailable),
    }
}

fn no_ready_pods(model: &ObservedModel<'_>, has_pods: bool) -> MetricsState {
    if has_pods {
        MetricsState::Incomplete(none_ready(model))
    } else {
        MetricsState::Unavailable(MetricsError::NotFound)
    }
}

fn incomplete(factor: Factor, text: String) -> MetricsState {
    MetricsState::Incomplete(Explanation::of(factor, text))
}

fn about(code: FactorCode, variant: &ObservedVariant) -> Factor {
    Factor::about(code, FactorSubject::Variant(variant.key.name.clone()))
}

/// The ready pods, if all of them have metrics. Partial metrics are not used: they could understate the load.
fn measured_pods<'a>(model: &ObservedModel<'a>) -> Result<Vec<MeasuredPod<'a>>, MetricsState> {
    let mut pods = listed_pods(model)?;
    let has_pods = !pods.is_empty();
    pods.retain(|(_, pod)| pod.ready);
    for (_, pod) in &pods {
        let values = [
            (FactorCode::PodKvCacheUnknown, "KV cache usage", pod.kv),
            (FactorCode::PodQueueUnknown, "queue length", pod.queue),
        ];
        if let Some((code, what, _)) = values.into_iter().find(|(.., value)| valid(*value).is_none()) {
            let factor = Factor::about(code, FactorSubject::Pod(pod.name.to_string()));
            return Err(incomplete(factor, format!("pod {} has no {what}", pod.name)));
        }
    }
    for variant in model.variants {
        let ready = variant.ready_replicas();
        let known = pods.iter().filter(|(owner, _)| owner.key == variant.key).count();
        if i32::try_from(known).is_ok_and(|known| known < ready) {
            let text = format!("{known} of {ready} ready replicas of variant {} have metrics", variant.key.name);
            return Err(incomplete(about(FactorCode::ReplicasWithoutMetrics, variant), text));
        }
    }
    if pods.is_empty() { Err(no_ready_pods(model, has_pods)) } else { Ok(pods) }
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
        MetricsState::Incomplete(what) => what.clone(),
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
