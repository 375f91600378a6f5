//! Decides all variants of one model together.

use std::collections::BTreeMap;

use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use super::gpu_limit::GpuHeadroom;
use super::recommendation::{Recommendation, ReplicaTarget, by_shares, by_tokens, in_transition};
use super::replicas::{self, Guessed};
use super::{Decision, DecisionKind, MetricsState};
use crate::variant::config::duration;
use crate::variant::config::thresholds::Analyzer;
use crate::variant::decision_trace::{DecidedBy, DecisionTrace};
use crate::variant::factor::{Explanation, Factor, FactorCode, FactorSubject};
use crate::variant::limits::enforce::{ScaleToZero, enforce};
use crate::variant::limits::fallback::HeldTarget;
use crate::variant::saturation::shares::{self, Spare};
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::saturation::{VariantState, tokens};
use crate::variant::snapshot::{
    FleetSnapshot, MetricsError, ModelMetrics, ObservedTarget, ObservedVariant, PodMetrics,
};

pub struct Group<'a> {
    pub seen: &'a FleetSnapshot,
    pub namespace: &'a str,
    pub model: &'a str,
    pub variants: &'a [&'a ObservedVariant],
    pub metrics: Option<&'a ModelMetrics>,
    /// A variant of the model is not decided on, but may serve requests.
    pub runs_apart: bool,
    /// `None` if GPUs are not limited.
    pub free: Option<&'a GpuHeadroom<'a>>,
}

impl<'a> Group<'a> {
    pub fn of(
        seen: &'a FleetSnapshot,
        model: &'a NamespacedName,
        variants: &'a [&'a ObservedVariant],
        runs_apart: bool,
        free: Option<&'a GpuHeadroom<'a>>,
    ) -> Self {
        let (namespace, model_name) = (&model.namespace, &model.name);
        Self { seen, namespace, model: model_name, variants, metrics: seen.models.get(model), runs_apart, free }
    }

    /// Pods of these variants, sorted.
    pub fn pods(&self) -> Result<Vec<(&'a ObservedVariant, &'a PodMetrics)>, MetricsError> {
        let pods =
            self.metrics.map_or(Err(&MetricsError::NotFound), |metrics| metrics.pods.as_ref()).map_err(Clone::clone)?;
        let mut pods: Vec<_> = pods.iter().filter_map(|pod| Some((self.owner(pod)?, pod))).collect();
        pods.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        Ok(pods)
    }

    pub fn owner(&self, pod: &PodMetrics) -> Option<&'a ObservedVariant> {
        let owns =
            |variant: &&&ObservedVariant| variant.spec.scale_target_ref.as_ref().is_some_and(|to| pod.target.is(to));
        self.variants.iter().find(owns).copied()
    }

    pub fn decide(&self, memory: &mut Memory) -> Vec<Decision> {
        replicas::learn(self, memory);
        let states = self.states_by_now(memory);
        let no_replicas = self.variants.iter().all(|variant| variant.current() == Some(0));
        let (metrics, recommendation) = match self.measured(no_replicas) {
            Ok(pods) => match self.ask(&pods, &states, memory) {
                Ok(recommendation) => (MetricsState::Available, Ok(recommendation)),
                Err(why) => (MetricsState::Incomplete(why.clone()), Err(why)),
            },
            Err(metrics) => {
                let why = unknown(&metrics, self.model);
                (metrics, Err(why))
            }
        };
        let scale_to_zero = self.scale_to_zero(&metrics, memory);
        let held: BTreeMap<String, HeldTarget> =
            self.variants.iter().map(|variant| (variant.key.name.clone(), variant.held(self.seen.now))).collect();
        let number =
            |name: &str| recommendation.as_ref().ok().and_then(|recommendation| recommendation.targets.get(name));
        let before =
            held.iter().map(|(name, held)| (name.clone(), number(name).map_or(held.replicas, |one| one.target)));
        let before: BTreeMap<String, i32> =
            before.map(|(name, replicas)| (name.clone(), self.clamp(&name, replicas))).collect();
        let mut after = before.clone();
        // A variant without a free GPU is started last.
        let cost = |state: &VariantState| if state.limits().allow(1) { state.cost } else { f64::INFINITY };
        let costs = states.iter().map(|state| (state.variant.clone(), cost(state)));
        // A variant that could not be observed may serve requests, so no other has to be started.
        if scale_to_zero != ScaleToZero::Disabled || !self.runs_apart {
            enforce(&mut after, &costs.collect(), &scale_to_zero);
        }
        let decide = |(variant, state): (&&ObservedVariant, &VariantState)| {
            let name = &variant.key.name;
            let kept = held.get(name).cloned().unwrap_or_default();
            let (before, after) = (before.get(name).copied(), after.get(name).copied().unwrap_or(kept.replicas));
            let enforced = (before != Some(after)).then_some(after);
            let decision =
                self.decision(variant, &metrics, &recommendation, number(name), kept, enforced, &scale_to_zero);
            Decision { ignored_target: state.ignored_target.is_some(), ..decision }
        };
        self.variants.iter().zip(&states).map(decide).collect()
    }

    fn clamp(&self, name: &str, replicas: i32) -> i32 {
        let bounds = self.variants.iter().find(|variant| variant.key.name == *name).map(|variant| variant.bounds());
        bounds.unwrap_or_default().clamp(replicas)
    }

    #[expect(clippy::too_many_arguments, reason = "the stages of a decision, one after the other")]
    fn decision(
        &self,
        variant: &ObservedVariant,
        metrics: &MetricsState,
        recommendation: &Result<Recommendation, Explanation>,
        number: Option<&ReplicaTarget>,
        kept: HeldTarget,
        enforced: Option<i32>,
        scale_to_zero: &ScaleToZero,
    ) -> Decision {
        let bounds = variant.bounds();
        let mut trace = DecisionTrace { signal: unknown(metrics, self.model), ..DecisionTrace::default() };
        let HeldTarget { mut replicas, mut reason, mut unclamped_reason, .. } = kept;
        trace.wanted = replicas;
        trace.decided_by = DecidedBy::Hold;
        match recommendation {
            Ok(recommendation) => {
                (trace.signal, trace.need) = (recommendation.signal.clone(), recommendation.need.clone());
                trace.hold = recommendation.waits.clone().or_else(|| recommendation.doubt.clone());
            }
            Err(why) => trace.hold = Some(why.clone()),
        }
        if number.is_none() && recommendation.is_ok() && variant.current() == Some(0) && replicas > 0 {
            let text = format!("the scale target has 0 replicas, {replicas} are desired");
            let awaited = Explanation::new(FactorCode::DecisionPending, text);
            trace.hold.get_or_insert_with(|| in_transition(vec![awaited]));
        }
        if let Some(number) = number {
            (replicas, trace.wanted, reason) = (number.target, number.unconstrained, number.reason.clone());
            unclamped_reason = None;
            trace.solver.clone_from(&number.reason);
            trace.decided_by = match recommendation {
                Ok(Recommendation { waits: Some(_), .. }) => DecidedBy::Hold,
                Ok(Recommendation { doubt: Some(_), .. }) if variant.current() == Some(number.target) => {
                    DecidedBy::Hold
                }
                _ if variant.current() == Some(number.target) => DecidedBy::Signal,
                _ => DecidedBy::Solver,
            };
        }
        let slowed = number.and_then(|number| number.limit.clone());
        if slowed.is_some() || number.is_some() && trace.wanted != replicas || bounds.clamp(replicas) != replicas {
            let (bound, words) = match slowed.or_else(|| bounds.binding(trace.wanted)) {
                Some(bound) => (bound.clone(), format!("wanted {}, limited by {bound}", trace.wanted)),
                None => {
                    // The variant replaces another one, whose decision reports the wanted number.
                    trace.wanted = replicas;
                    let others = "takes over from a variant that cannot grow";
                    let bound = Explanation::new(FactorCode::OtherVariantsLimited, others);
                    (bound, "takes over from a variant that cannot grow".to_owned())
                }
            };
            (reason, unclamped_reason) = (format!("{reason}; {words}"), None);
            trace.limits.push(bound);
            trace.decided_by = DecidedBy::Limits;
        }
        replicas = bounds.clamp(replicas);
        let previous = variant.previous();
        let follows = trace.limits.is_empty() && number.is_some() && Some(replicas) == variant.current();
        if follows && previous.at.is_some() && previous.replicas != replicas {
            reason =
                format!("{reason}; the scale target stayed at {replicas} replicas instead of {}", previous.replicas);
            unclamped_reason = None;
        }
        if let Some(target) = enforced {
            let first = previous.at.is_none() && variant.current() == Some(0);
            let (code, text) = match scale_to_zero {
                ScaleToZero::Idle => {
                    let text = format!("Scale to zero: no request for {}", duration::go(self.retention()));
                    (FactorCode::ScaledToZero, text)
                }
                _ if first => {
                    let text = "First run: bootstrapping with 1 replica for Prometheus discovery".to_owned();
                    (FactorCode::FirstReplica, text)
                }
                _ => {
                    let text = "Scale to zero disabled: the cheapest variant keeps 1 replica".to_owned();
                    (FactorCode::LastReplica, text)
                }
            };
            (reason, unclamped_reason) = (text.clone(), None);
            replicas = bounds.clamp(target);
            trace.limits.push(Explanation::new(code, text));
            trace.decided_by = DecidedBy::Limits;
        } else if let ScaleToZero::Unknown(why) | ScaleToZero::Blocked(why) = scale_to_zero {
            let blocked = || {
                let text = format!("scale to zero blocked: {why}");
                why.clone().as_cause_of(FactorCode::ScaleToZeroBlocked, text)
            };
            trace.hold.get_or_insert_with(blocked);
        }
        if let Some(why) = self.settling(variant, replicas) {
            replicas = bounds.clamp(previous.replicas);
            trace.hold = Some(why);
            trace.decided_by = DecidedBy::Hold;
        }
        trace.granted = replicas;
        let decided = number.is_some() || enforced.is_some();
        Decision {
            kind: if decided { DecisionKind::Decided } else { DecisionKind::Held },
            replicas: Some(replicas),
            reason,
            unclamped_reason,
            accelerator: variant.accelerator(),
            spare: recommendation.as_ref().map_or(1.0, |recommendation| recommendation.spare),
            metrics: metrics.clone(),
            ignored_target: false,
            conflict: None,
            trace,
            findings: variant
                .findings()
                .into_iter()
                .chain(self.prevents_scale_to_zero(variant, scale_to_zero))
                .collect(),
        }
    }

    /// Reports that `minReplicas` prevents the enabled scale to zero.
    fn prevents_scale_to_zero(&self, variant: &ObservedVariant, scale_to_zero: &ScaleToZero) -> Option<Finding> {
        (variant.spec.min_replicas > 0 && *scale_to_zero != ScaleToZero::Disabled).then(|| Finding {
            severity: Severity::Info,
            reason: "ScaleToZeroPrevented",
            message: format!(
                "Scale to zero is enabled for model {}, but spec.minReplicas={} prevents it for this variant.",
                self.model, variant.spec.min_replicas
            ),
            remedy: "Set spec.minReplicas to 0 to allow scale to zero.".to_owned(),
        })
    }

    /// Blocks a scale-down within the stabilization window.
    fn settling(&self, variant: &ObservedVariant, replicas: i32) -> Option<Explanation> {
        let previous = variant.previous();
        let age = self.seen.now.duration_since(previous.at?);
        let settle = self.seen.settings.settle;
        (replicas < previous.replicas && age < settle).then(|| {
            let text = format!(
                "scale-down blocked: the number changed within the stabilization window of {}",
                duration::go(settle)
            );
            Explanation::new(FactorCode::StabilizationWindow, text)
        })
    }

    /// The ready pods, if all of them have metrics. Partial metrics are not used: they could understate the load.
    fn measured(&self, no_replicas: bool) -> Result<Vec<(&'a ObservedVariant, &'a PodMetrics)>, MetricsState> {
        if no_replicas {
            return Err(MetricsState::NoReplicas);
        }
        for variant in self.variants {
            let pods_error = variant.target.known().and_then(|target| target.as_ref()?.pods_error.as_deref());
            if let Some(why) = pods_error {
                let factor = Factor::about(FactorCode::PodsNotFound, FactorSubject::Variant(variant.key.name.clone()));
                return Err(MetricsState::Incomplete(Explanation::of(factor, why)));
            }
        }
        let mut pods = match self.pods() {
            Err(MetricsError::NotFound) if self.ready() == 0 => {
                return Err(MetricsState::Incomplete(self.none_ready()));
            }
            pods => pods.map_err(MetricsState::Unavailable)?,
        };
        let any = !pods.is_empty();
        pods.retain(|(_, pod)| pod.ready);
        for (_, pod) in &pods {
            let missing = [
                (FactorCode::PodKvCacheUnknown, "KV cache usage", pod.kv),
                (FactorCode::PodQueueUnknown, "queue length", pod.queue),
            ];
            if let Some((code, what, _)) = missing.into_iter().find(|(.., value)| replicas::valid(*value).is_none()) {
                let factor = Factor::about(code, FactorSubject::Pod(pod.name.to_string()));
                return Err(MetricsState::Incomplete(Explanation::of(
                    factor,
                    format!("pod {} has no {what}", pod.name),
                )));
            }
        }
        for variant in self.variants {
            let target = variant.target.known().and_then(Option::as_ref);
            // `readyReplicas` of a StatefulSet includes pods that are being scaled down.
            let told = |target: &ObservedTarget| target.ready.min(variant.current().unwrap_or_default());
            let ready = target.map_or(0, |target| told(target).max(target.ready_pods));
            let known = pods.iter().filter(|(owner, _)| owner.key == variant.key).count();
            if i32::try_from(known).is_ok_and(|known| known < ready) {
                let name = &variant.key.name;
                let factor = Factor::about(FactorCode::ReplicasWithoutMetrics, FactorSubject::Variant(name.clone()));
                let text = format!("{known} of {ready} ready replicas of variant {name} have metrics");
                return Err(MetricsState::Incomplete(Explanation::of(factor, text)));
            }
        }
        match pods.is_empty() {
            true if any => Err(MetricsState::Incomplete(self.none_ready())),
            true => Err(MetricsState::Unavailable(MetricsError::NotFound)),
            false => Ok(pods),
        }
    }

    fn ready(&self) -> i32 {
        let targets = self.variants.iter().filter_map(|variant| variant.target.known()?.as_ref());
        targets.map(|target| target.ready.max(target.ready_pods).max(0)).fold(0, i32::saturating_add)
    }

    /// Reported instead of missing metrics, so that users do not look for a fault in the collection of metrics.
    fn none_ready(&self) -> Explanation {
        let (mut factors, mut asked) = (Vec::new(), Vec::new());
        for variant in self.variants {
            let (name, current) = (&variant.key.name, variant.current().unwrap_or_default());
            if current > 0 {
                factors.push(Factor::about(FactorCode::NoReplicaReady, FactorSubject::Variant(name.clone())));
                asked.push(format!("variant {name}: 0 of {current}"));
            }
        }
        let text = format!("no replica is ready ({}); check the pods", asked.join(", "));
        Explanation { factors, text }
    }

    /// Drops decisions below the number that would be held.
    fn lower_nothing(&self, recommendation: &mut Recommendation, why: Explanation) {
        for variant in self.variants {
            let kept = variant.held(self.seen.now).replicas;
            if recommendation.targets.get(&variant.key.name).is_some_and(|number| number.target < kept) {
                recommendation.targets.remove(&variant.key.name);
            }
        }
        let text = format!("scale-down blocked: {why}");
        recommendation.doubt = Some(why.reworded(text));
    }

    fn ask(
        &self,
        pods: &[(&ObservedVariant, &PodMetrics)],
        states: &[VariantState],
        memory: &mut Memory,
    ) -> Result<Recommendation, Explanation> {
        let thresholds = self.seen.config.thresholds(self.namespace, self.model);
        match thresholds.analyzer {
            Analyzer::Shares => {
                let (picker, unknown) = match self.metrics.map(|metrics| &metrics.queue) {
                    Some(Lookup::Known(queue)) => (queue.map(|queue| queue.requests), None),
                    Some(Lookup::Unknown(why)) => (None, Some(why)),
                    None => (None, None),
                };
                let mut replicas = replicas::by_share(pods);
                replicas::share_out(&mut replicas, picker.unwrap_or_default());
                let mut analysis = shares::analyze(&replicas, &thresholds, Spare::OfAll);
                // A starting variant has no metrics, but counts as in transition.
                for state in states.iter().filter(|state| state.current > 0) {
                    analysis.pods.entry(state.variant.clone()).or_default();
                }
                let mut recommendation = by_shares(&analysis, states, picker);
                if let Some(why) = unknown {
                    let text = format!(
                        "the queue of the endpoint picker is unknown ({why}); check that Prometheus scrapes its metrics"
                    );
                    let why = Explanation::new(FactorCode::EndpointPickerQueueUnknown, text);
                    self.lower_nothing(&mut recommendation, why);
                }
                Ok(recommendation)
            }
            Analyzer::Tokens => {
                let queue = match self.metrics.map(|metrics| &metrics.queue) {
                    Some(Lookup::Known(queue)) => *queue,
                    Some(Lookup::Unknown(why)) => return Err(queue_unknown(why)),
                    None => None,
                };
                let (replicas, guessed) = replicas::by_token(self, pods, memory)?;
                let model = tokens::Model {
                    namespace: self.namespace,
                    name: self.model,
                    now: self.seen.now,
                    thresholds: &thresholds,
                    queue,
                };
                let mut recommendation = by_tokens(&tokens::analyze(&model, &replicas, states, memory), states);
                if let Some(Guessed { variant }) = guessed {
                    let text = format!(
                        "a pod of variant {variant} has queued requests but none completed in the last 5 minutes, so their length is unknown"
                    );
                    let factor = Factor::about(FactorCode::RequestLengthUnknown, FactorSubject::Variant(variant));
                    self.lower_nothing(&mut recommendation, Explanation::of(factor, text));
                }
                Ok(recommendation)
            }
        }
    }
}

pub fn queue_unknown(why: &str) -> Explanation {
    Explanation::new(FactorCode::QueueUnknown, format!("the queue of the endpoint picker is unknown: {why}"))
}

pub fn unknown(metrics: &MetricsState, model: &str) -> Explanation {
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
