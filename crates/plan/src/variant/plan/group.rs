//! Decides all variants of one model together.

use std::collections::BTreeMap;

use steersman_reconcile::{Finding, Lookup, NamespacedName, Severity};

use super::accelerators::Free;
use super::hold::{Held, hold};
use super::replicas::{self, Guessed};
use super::said::{Number, Said, by_shares, by_tokens, in_transition};
use super::{Decision, Metrics, Standing};
use crate::variant::Mode;
use crate::variant::config::duration;
use crate::variant::config::thresholds::Analyzer;
use crate::variant::factor::{Explanation, Factor, FactorCode, Reference};
use crate::variant::limits::enforce::{Sleep, enforce};
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::saturation::{State, shares, tokens};
use crate::variant::seen::{ModelSeen, PodSeen, Seen, Silence, TargetSeen, VariantSeen};
use crate::variant::story::{Binding, Story};

pub struct Group<'a> {
    pub seen: &'a Seen,
    pub namespace: &'a str,
    pub model: &'a str,
    pub variants: &'a [&'a VariantSeen],
    pub metrics: Option<&'a ModelSeen>,
    /// A variant of the model is not decided on, but may serve requests.
    pub runs_apart: bool,
    /// `None` if GPUs are not limited.
    pub free: Option<&'a Free<'a>>,
}

impl<'a> Group<'a> {
    pub fn of(
        seen: &'a Seen,
        model: &'a NamespacedName,
        variants: &'a [&'a VariantSeen],
        runs_apart: bool,
        free: Option<&'a Free<'a>>,
    ) -> Self {
        let (namespace, model_name) = (&model.namespace, &model.name);
        Self { seen, namespace, model: model_name, variants, metrics: seen.models.get(model), runs_apart, free }
    }

    /// Pods of these variants, sorted.
    pub fn pods(&self) -> Result<Vec<(&'a VariantSeen, &'a PodSeen)>, Silence> {
        let pods =
            self.metrics.map_or(Err(&Silence::Missing), |metrics| metrics.pods.as_ref()).map_err(Clone::clone)?;
        let mut pods: Vec<_> = pods.iter().filter_map(|pod| Some((self.owner(pod)?, pod))).collect();
        if self.seen.settings.mode == Mode::Steersman {
            pods.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        }
        Ok(pods)
    }

    pub fn owner(&self, pod: &PodSeen) -> Option<&'a VariantSeen> {
        let owns = |variant: &&&VariantSeen| variant.spec.scale_target_ref.as_ref().is_some_and(|to| pod.target.is(to));
        self.variants.iter().find(owns).copied()
    }

    pub fn decide(&self, memory: &mut Memory) -> Vec<Decision> {
        replicas::learn(self, memory);
        let states = self.states_by_now(memory);
        let asleep = self.variants.iter().all(|variant| variant.current() == Some(0));
        let (metrics, said) = match self.measured(asleep) {
            Ok(pods) => match self.ask(&pods, &states, memory) {
                Ok(said) => (Metrics::Found, Ok(said)),
                Err(why) => (Metrics::Partial(why.clone()), Err(why)),
            },
            Err(metrics) => {
                let why = unknown(&metrics, self.model);
                (metrics, Err(why))
            }
        };
        let sleep = self.sleep(&metrics, memory);
        let held: BTreeMap<String, Held> =
            self.variants.iter().map(|variant| (variant.key.name.clone(), hold(variant, self.seen.now))).collect();
        let number = |name: &str| said.as_ref().ok().and_then(|said| said.numbers.get(name));
        let before =
            held.iter().map(|(name, held)| (name.clone(), number(name).map_or(held.replicas, |one| one.granted)));
        let before: BTreeMap<String, i32> =
            before.map(|(name, replicas)| (name.clone(), self.clamp(&name, replicas))).collect();
        let mut after = before.clone();
        // A variant without a free GPU is started last.
        let cost = |state: &State| if state.limits().allow(1) { state.cost } else { f64::INFINITY };
        let costs = states.iter().map(|state| (state.variant.clone(), cost(state)));
        // A variant that could not be observed may serve requests, so no other has to be started.
        if sleep != Sleep::Forbidden || !self.runs_apart {
            enforce(&mut after, &costs.collect(), &sleep);
        }
        let decide = |(variant, state): (&&VariantSeen, &State)| {
            let name = &variant.key.name;
            let kept = held.get(name).cloned().unwrap_or_default();
            let (before, after) = (before.get(name).copied(), after.get(name).copied().unwrap_or(kept.replicas));
            let enforced = (before != Some(after)).then_some(after);
            let decision = self.decision(variant, &metrics, &said, number(name), kept, enforced, &sleep);
            Decision { unfollowed: state.unfollowed.is_some(), ..decision }
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
        variant: &VariantSeen,
        metrics: &Metrics,
        said: &Result<Said, Explanation>,
        number: Option<&Number>,
        kept: Held,
        enforced: Option<i32>,
        sleep: &Sleep,
    ) -> Decision {
        let bounds = variant.bounds();
        let mut story = Story { signal: unknown(metrics, self.model), ..Story::default() };
        let Held { mut replicas, mut reason, mut unclamped_reason } = kept;
        story.wish = replicas;
        story.binding = Binding::Hold;
        match said {
            Ok(said) => {
                (story.signal, story.need) = (said.signal.clone(), said.need.clone());
                story.hold = said.waits.clone().or_else(|| said.doubt.clone());
            }
            Err(why) => story.hold = Some(why.clone()),
        }
        if number.is_none() && said.is_ok() && variant.current() == Some(0) && replicas > 0 {
            let text = format!("it is to have {replicas} replicas and has 0");
            let awaited = Explanation::new(FactorCode::DecisionPending, text);
            story.hold.get_or_insert_with(|| in_transition(vec![awaited]));
        }
        if let Some(number) = number {
            (replicas, story.wish, reason) = (number.granted, number.wish, number.reason.clone());
            unclamped_reason = None;
            story.solver.clone_from(&number.reason);
            story.binding = match said {
                Ok(Said { waits: Some(_), .. }) => Binding::Hold,
                Ok(Said { doubt: Some(_), .. }) if variant.current() == Some(number.granted) => Binding::Hold,
                _ if variant.current() == Some(number.granted) => Binding::Signal,
                _ => Binding::Solver,
            };
        }
        let slowed = number.and_then(|number| number.limit.clone());
        if slowed.is_some() || number.is_some() && story.wish != replicas || bounds.clamp(replicas) != replicas {
            let (bound, words) = match slowed.or_else(|| bounds.binding(story.wish)) {
                Some(bound) => (bound.clone(), format!("wanted {}, limited by {bound}", story.wish)),
                None => {
                    // The variant replaces another one, whose decision reports the wanted number.
                    story.wish = replicas;
                    let others = "what other variants cannot have";
                    let bound = Explanation::new(FactorCode::OtherVariantsLimited, others);
                    (bound, "in place of a variant that cannot grow".to_owned())
                }
            };
            (reason, unclamped_reason) = (format!("{reason}; {words}"), None);
            story.limits.push(bound);
            story.binding = Binding::Limits;
        }
        replicas = bounds.clamp(replicas);
        let previous = variant.previous();
        let follows = story.limits.is_empty() && number.is_some() && Some(replicas) == variant.current();
        if follows && previous.at.is_some() && previous.replicas != replicas {
            reason =
                format!("{reason}; the workload has {replicas} replicas and has not followed {}", previous.replicas);
            unclamped_reason = None;
        }
        if let Some(target) = enforced {
            let first = previous.at.is_none() && variant.current() == Some(0);
            let (code, text) = match sleep {
                Sleep::Idle => {
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
            story.limits.push(Explanation::new(code, text));
            story.binding = Binding::Limits;
        } else if let Sleep::Unknown(why) | Sleep::Kept(why) = sleep {
            let blocked = || {
                let text = format!("no scale to zero, as {why}");
                why.clone().as_cause_of(FactorCode::ScaleToZeroBlocked, text)
            };
            story.hold.get_or_insert_with(blocked);
        }
        if let Some(why) = self.settling(variant, replicas) {
            replicas = bounds.clamp(previous.replicas);
            story.hold = Some(why);
            story.binding = Binding::Hold;
        }
        story.granted = replicas;
        let decided = number.is_some() || enforced.is_some();
        Decision {
            standing: if decided { Standing::Decided } else { Standing::Held },
            replicas: Some(replicas),
            reason,
            unclamped_reason,
            accelerator: variant.accelerator(),
            spare: said.as_ref().map_or(1.0, |said| said.spare),
            metrics: metrics.clone(),
            unfollowed: false,
            conflict: None,
            story,
            findings: variant.findings().into_iter().chain(self.never_sleeps(variant, sleep)).collect(),
        }
    }

    /// Reports that `minReplicas` prevents the enabled scale to zero.
    fn never_sleeps(&self, variant: &VariantSeen, sleep: &Sleep) -> Option<Finding> {
        (variant.spec.min_replicas > 0 && *sleep != Sleep::Forbidden).then(|| Finding {
            severity: Severity::Info,
            reason: "ScaleToZeroPrevented",
            message: format!(
                "Scale to zero is enabled for model {}, and spec.minReplicas={} keeps this variant from it.",
                self.model, variant.spec.min_replicas
            ),
            remedy: "Set spec.minReplicas to 0 if the model shall be able to sleep.".to_owned(),
        })
    }

    /// Blocks a scale-down within the stabilization window.
    fn settling(&self, variant: &VariantSeen, replicas: i32) -> Option<Explanation> {
        let previous = variant.previous();
        let age = self.seen.now.duration_since(previous.at?);
        let settle = self.seen.settings.settle;
        (replicas < previous.replicas && age < settle).then(|| {
            let text = format!("a number is lowered {} after its last change", duration::go(settle));
            Explanation::new(FactorCode::StabilizationWindow, text)
        })
    }

    /// The ready pods, if all of them have metrics. Partial metrics are not used: they could understate the load.
    fn measured(&self, asleep: bool) -> Result<Vec<(&'a VariantSeen, &'a PodSeen)>, Metrics> {
        if asleep {
            return Err(Metrics::Asleep);
        }
        for variant in self.variants {
            let unfound = variant.target.known().and_then(|target| target.as_ref()?.unfound.as_deref());
            if let Some(why) = unfound {
                let factor = Factor::about(FactorCode::PodsNotFound, Reference::Variant(variant.key.name.clone()));
                return Err(Metrics::Partial(Explanation::of(factor, why)));
            }
        }
        let mut pods = match self.pods() {
            Err(Silence::Missing) if self.ready() == 0 => return Err(Metrics::Partial(self.none_ready())),
            pods => pods.map_err(Metrics::Silent)?,
        };
        let any = !pods.is_empty();
        pods.retain(|(_, pod)| pod.ready);
        for (_, pod) in &pods {
            let missing = [
                (FactorCode::PodKvCacheUnknown, "KV cache usage", pod.kv),
                (FactorCode::PodQueueUnknown, "queue length", pod.queue),
            ];
            if let Some((code, what, _)) = missing.into_iter().find(|(.., value)| replicas::valid(*value).is_none()) {
                let factor = Factor::about(code, Reference::Pod(pod.name.to_string()));
                return Err(Metrics::Partial(Explanation::of(factor, format!("pod {} has no {what}", pod.name))));
            }
        }
        for variant in self.variants {
            let target = variant.target.known().and_then(Option::as_ref);
            // `readyReplicas` of a StatefulSet includes pods that are being scaled down.
            let told = |target: &TargetSeen| target.ready.min(variant.current().unwrap_or_default());
            let ready = target.map_or(0, |target| told(target).max(target.ready_pods));
            let known = pods.iter().filter(|(owner, _)| owner.key == variant.key).count();
            if i32::try_from(known).is_ok_and(|known| known < ready) {
                let name = &variant.key.name;
                let factor = Factor::about(FactorCode::ReplicasWithoutMetrics, Reference::Variant(name.clone()));
                let text = format!("{known} of {ready} ready replicas of {name} have metrics");
                return Err(Metrics::Partial(Explanation::of(factor, text)));
            }
        }
        match pods.is_empty() {
            true if any => Err(Metrics::Partial(self.none_ready())),
            true => Err(Metrics::Silent(Silence::Missing)),
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
                factors.push(Factor::about(FactorCode::NoReplicaReady, Reference::Variant(name.clone())));
                asked.push(format!("{current} of {name}"));
            }
        }
        let text = format!("none of the replicas is ready ({}); look at their pods", asked.join(", "));
        Explanation { factors, text }
    }

    /// Drops decisions below the number that would be held.
    fn lower_nothing(&self, said: &mut Said, why: Explanation) {
        for variant in self.variants {
            let kept = hold(variant, self.seen.now).replicas;
            if said.numbers.get(&variant.key.name).is_some_and(|number| number.granted < kept) {
                said.numbers.remove(&variant.key.name);
            }
        }
        let text = format!("{why}: nothing is lowered");
        said.doubt = Some(why.reworded(text));
    }

    fn ask(
        &self,
        pods: &[(&VariantSeen, &PodSeen)],
        states: &[State],
        memory: &mut Memory,
    ) -> Result<Said, Explanation> {
        let thresholds = self.seen.config.thresholds(self.namespace, self.model, Mode::Steersman).unwrap_or_default();
        match thresholds.analyzer {
            Analyzer::Shares => {
                let (picker, unknown) = match self.metrics.map(|metrics| &metrics.queue) {
                    Some(Lookup::Known(queue)) => (queue.map(|queue| queue.requests), None),
                    Some(Lookup::Unknown(why)) => (None, Some(why)),
                    None => (None, None),
                };
                let mut replicas = replicas::by_share(pods, Mode::Steersman);
                replicas::share_out(&mut replicas, picker.unwrap_or_default());
                let mut analysis = shares::analyze(&replicas, &thresholds, Mode::Steersman);
                // A starting variant has no metrics, but counts as in transition.
                for state in states.iter().filter(|state| state.current > 0) {
                    analysis.pods.entry(state.variant.clone()).or_default();
                }
                let mut said = by_shares(&analysis, states, picker);
                if let Some(why) = unknown {
                    let text = format!(
                        "how many requests wait at the endpoint picker is unknown ({why}), look whether its metrics can be read"
                    );
                    let why = Explanation::new(FactorCode::EndpointPickerQueueUnknown, text);
                    self.lower_nothing(&mut said, why);
                }
                Ok(said)
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
                    mode: Mode::Steersman,
                    thresholds: &thresholds,
                    queue,
                };
                let mut said = by_tokens(&tokens::analyze(&model, &replicas, states, memory), states);
                if let Some(Guessed { variant }) = guessed {
                    let text = format!("a pod of {variant} has a queue, and nobody knows how long its requests are");
                    let factor = Factor::about(FactorCode::RequestLengthUnknown, Reference::Variant(variant));
                    self.lower_nothing(&mut said, Explanation::of(factor, text));
                }
                Ok(said)
            }
        }
    }
}

pub fn queue_unknown(why: &str) -> Explanation {
    Explanation::new(FactorCode::QueueUnknown, format!("the queue before the replicas is unknown: {why}"))
}

pub fn unknown(metrics: &Metrics, model: &str) -> Explanation {
    match metrics {
        Metrics::NotAsked => Explanation::new(FactorCode::MetricsNotRequested, "metrics were not asked for"),
        Metrics::Found => Explanation::new(FactorCode::MetricsAvailable, "metrics are there"),
        Metrics::Silent(Silence::Missing | Silence::Misnamed(_)) => {
            Explanation::new(FactorCode::MetricsMissing, "there are no metrics")
        }
        Metrics::Silent(Silence::Stale(age)) => {
            let factor = Factor::about(FactorCode::MetricsStale, Reference::Model(model.to_owned()));
            Explanation::of(factor, format!("the metrics are {age} old"))
        }
        Metrics::Silent(Silence::Failed(why)) => {
            Explanation::new(FactorCode::MetricsQueryFailed, format!("the metrics could not be read: {why}"))
        }
        Metrics::Silent(Silence::Unasked(_)) => {
            Explanation::new(FactorCode::PrometheusNotConfigured, "nobody can be asked for metrics")
        }
        Metrics::Partial(what) => what.clone(),
        Metrics::Asleep => Explanation::new(FactorCode::NoReplicas, "no replica runs"),
    }
}
