//! All variants of one model, decided together.
//! Comes in: the variants that can be decided, with the model's metrics; goes out: a decision for each.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::super::Mode;
use super::super::config::duration;
use super::super::config::thresholds::Analyzer;
use super::super::limits::enforce::{Sleep, USUAL_COST, enforce};
use super::super::saturation::tokens::capacity::Memory;
use super::super::saturation::{State, shares, tokens};
use super::super::seen::{Key, ModelSeen, PodSeen, Seen, Silence, VariantSeen};
use super::super::story::{Binding, Story};
use super::hold::hold;
use super::replicas;
use super::said::{Number, Said, by_shares, by_tokens};
use super::{Decision, Metrics, Standing};
use crate::preflight::Answer;
use crate::{Finding, Severity};

/// A workload that has not followed a decision for so long is taken as it is, and so are replicas that do not become ready.
const FOLLOW: SignedDuration = SignedDuration::from_mins(10);

pub struct Group<'a> {
    pub seen: &'a Seen,
    pub namespace: &'a str,
    pub model: &'a str,
    pub variants: &'a [&'a VariantSeen],
    pub metrics: Option<&'a ModelSeen>,
}

impl<'a> Group<'a> {
    pub fn of(seen: &'a Seen, model: &'a Key, variants: &'a [&'a VariantSeen]) -> Self {
        Self { seen, namespace: &model.namespace, model: &model.name, variants, metrics: seen.models.get(model) }
    }

    /// The pods of one of these variants, sorted.
    pub fn pods(&self) -> Result<Vec<(&'a VariantSeen, &'a PodSeen)>, Silence> {
        let pods =
            self.metrics.map_or(Err(&Silence::Missing), |metrics| metrics.pods.as_ref()).map_err(Clone::clone)?;
        let owner = |pod: &PodSeen| {
            let owns = |variant: &&&VariantSeen| {
                variant.spec.scale_target_ref.as_ref().is_some_and(|target| target.name == pod.target)
            };
            self.variants.iter().find(owns).copied()
        };
        let mut pods: Vec<_> = pods.iter().filter_map(|pod| Some((owner(pod)?, pod))).collect();
        if self.seen.settings.mode == Mode::Steersman {
            pods.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        }
        Ok(pods)
    }

    pub fn decide(&self, memory: &mut Memory) -> Vec<Decision> {
        replicas::learn(self, memory);
        let asleep = self.variants.iter().all(|variant| variant.current() == Some(0));
        let (metrics, said) = match self.measured(asleep) {
            Ok(pods) => match self.ask(&pods, memory) {
                Ok(said) => (Metrics::Found, Ok(said)),
                Err(why) => (Metrics::Partial(why.clone()), Err(why)),
            },
            Err(metrics) => {
                let why = unknown(&metrics);
                (metrics, Err(why))
            }
        };
        let sleep = self.sleep(&metrics);
        let held: BTreeMap<String, (i32, String)> =
            self.variants.iter().map(|variant| (variant.key.name.clone(), hold(variant, self.seen.now))).collect();
        let number = |name: &str| said.as_ref().ok().and_then(|said| said.numbers.get(name));
        let before = held.iter().map(|(name, (kept, _))| (name.clone(), number(name).map_or(*kept, |one| one.granted)));
        let before: BTreeMap<String, i32> =
            before.map(|(name, replicas)| (name.clone(), self.clamp(&name, replicas))).collect();
        let mut after = before.clone();
        let costs = self.variants.iter().map(|one| (one.key.name.clone(), one.cost().unwrap_or(USUAL_COST)));
        enforce(&mut after, &costs.collect(), &sleep);
        let decide = |variant: &&VariantSeen| {
            let name = &variant.key.name;
            let kept = held.get(name).cloned().unwrap_or_default();
            let (before, after) = (before.get(name).copied(), after.get(name).copied().unwrap_or(kept.0));
            let enforced = (before != Some(after)).then_some(after);
            self.decision(variant, &metrics, &said, number(name), kept, enforced, &sleep)
        };
        self.variants.iter().map(decide).collect()
    }

    fn clamp(&self, name: &str, replicas: i32) -> i32 {
        let bounds = self.variants.iter().find(|variant| variant.key.name == *name).map(|variant| variant.bounds());
        bounds.unwrap_or_default().clamp(replicas)
    }

    #[expect(clippy::too_many_arguments, reason = "one stage after the other, told in one place")]
    fn decision(
        &self,
        variant: &VariantSeen,
        metrics: &Metrics,
        said: &Result<Said, String>,
        number: Option<&Number>,
        kept: (i32, String),
        enforced: Option<i32>,
        sleep: &Sleep,
    ) -> Decision {
        let bounds = variant.bounds();
        let mut story = Story { signal: unknown(metrics), ..Story::default() };
        let (mut replicas, mut reason) = kept;
        story.wish = replicas;
        story.binding = Binding::Hold;
        match said {
            Ok(said) => {
                (story.signal, story.need) = (said.signal.clone(), said.need.clone());
                story.hold = said.waits.clone();
            }
            Err(why) => story.hold = Some(why.clone()),
        }
        if let Some(number) = number {
            (replicas, story.wish, reason) = (number.granted, number.wish, number.reason.clone());
            story.solver.clone_from(&number.reason);
            story.binding = match said {
                Ok(Said { waits: Some(_), .. }) => Binding::Hold,
                _ if variant.current() == Some(number.granted) => Binding::Signal,
                _ => Binding::Solver,
            };
        }
        if number.is_some() && story.wish != replicas || bounds.clamp(replicas) != replicas {
            let slowed = number.and_then(|number| number.limit.clone());
            let (bound, words) = match slowed.or_else(|| bounds.binding(story.wish)) {
                Some(bound) => (bound.clone(), format!("wanted {}, limited by {bound}", story.wish)),
                None => {
                    // It stands in for another, which tells the wish.
                    story.wish = replicas;
                    ("the bounds of other variants".to_owned(), "in place of a variant at its bounds".to_owned())
                }
            };
            reason = format!("{reason}; {words}");
            story.limits.push(bound);
            story.binding = Binding::Limits;
        }
        replicas = bounds.clamp(replicas);
        if let Some(target) = enforced {
            let first = variant.previous().at.is_none() && variant.current() == Some(0);
            reason = match sleep {
                Sleep::Idle => format!("Scale to zero: no request for {}", duration::go(self.retention())),
                _ if first => "First run: bootstrapping with 1 replica for Prometheus discovery".to_owned(),
                _ => "Scale to zero disabled: the cheapest variant keeps 1 replica".to_owned(),
            };
            replicas = bounds.clamp(target);
            story.limits.push(reason.clone());
            story.binding = Binding::Limits;
        } else if let Sleep::Unknown(why) = sleep {
            story.hold.get_or_insert_with(|| format!("no scale to zero, as {why}"));
        }
        if let Some(why) = self.settling(variant, replicas) {
            replicas = bounds.clamp(variant.previous().replicas);
            story.hold = Some(why);
            story.binding = Binding::Hold;
        }
        story.granted = replicas;
        let decided = number.is_some() || enforced.is_some();
        Decision {
            standing: if decided { Standing::Decided } else { Standing::Held },
            replicas: Some(replicas),
            reason,
            accelerator: variant.accelerator(),
            spare: said.as_ref().map_or(1.0, |said| said.spare),
            metrics: metrics.clone(),
            conflict: None,
            story,
            findings: variant.findings().into_iter().chain(self.never_sleeps(variant, sleep)).collect(),
        }
    }

    /// Two settings that work against each other.
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

    /// Why a lower number has to wait.
    fn settling(&self, variant: &VariantSeen, replicas: i32) -> Option<String> {
        let previous = variant.previous();
        let age = self.seen.now.duration_since(previous.at?);
        let settle = self.seen.settings.settle;
        (replicas < previous.replicas && age < settle)
            .then(|| format!("a number is lowered {} after its last change", duration::go(settle)))
    }

    fn retention(&self) -> SignedDuration {
        self.seen.config.zero(self.namespace).retention(self.namespace, self.model)
    }

    /// A model sleeps only if everything that could speak against it is known not to.
    fn sleep(&self, metrics: &Metrics) -> Sleep {
        if !self.seen.config.zero(self.namespace).enabled(self.namespace, self.model) {
            return Sleep::Forbidden;
        }
        if let Some(key) = self.seen.config.zero(self.namespace).unknown(self.model) {
            return Sleep::Unknown(format!("key {key} of the ConfigMap for scale to zero cannot be read"));
        }
        let Some(seen) = self.metrics else { return Sleep::Unknown("the model was not asked about".to_owned()) };
        match metrics {
            Metrics::Found | Metrics::Asleep => {}
            other => return Sleep::Unknown(unknown(other)),
        }
        let queued = match &seen.queue {
            Answer::Known(queue) => queue.is_some_and(|queue| queue.requests > 0.0),
            Answer::Unknown(why) => return Sleep::Unknown(format!("the queue before the replicas is unknown: {why}")),
        };
        let loaded = |pod: &PodSeen| pod.kv.is_none_or(|kv| kv > 0.0) || pod.queue.is_none_or(|queue| queue > 0.0);
        let loaded = seen.pods.as_ref().is_ok_and(|pods| pods.iter().any(loaded));
        // Falling asleep is no reason to be awake: whoever follows the number may take minutes.
        let changed = self.variants.iter().filter_map(|variant| {
            let previous = variant.previous();
            let at = previous.at.filter(|_| previous.replicas > 0);
            at.or_else(|| previous.at.is_none().then_some(variant.created))
        });
        let changed = changed.max();
        let rested = changed.is_none_or(|at| self.seen.now.duration_since(at) >= self.retention());
        match &seen.requests {
            Answer::Unknown(why) => Sleep::Unknown(format!("the requests are unknown: {why}")),
            Answer::Known(requests) if !requests.is_finite() => {
                Sleep::Unknown("the requests are not a number".to_owned())
            }
            Answer::Known(requests) if *requests > 0.0 || queued || loaded || !rested => Sleep::Awake,
            Answer::Known(_) => Sleep::Idle,
        }
    }

    /// The pods, if there is a figure of each: half of the truth is none.
    fn measured(&self, asleep: bool) -> Result<Vec<(&'a VariantSeen, &'a PodSeen)>, Metrics> {
        if asleep {
            return Err(Metrics::Asleep);
        }
        let pods = match self.pods() {
            Err(Silence::Missing) if self.seen.settings.mode == Mode::Steersman && self.ready() == 0 => {
                return Err(Metrics::Partial(self.none_ready()));
            }
            pods => pods.map_err(Metrics::Silent)?,
        };
        let usable = |value: Option<f64>| value.is_some_and(|value| value.is_finite() && value >= 0.0);
        for (_, pod) in &pods {
            let missing = [("KV cache usage", pod.kv), ("queue length", pod.queue)];
            if let Some((what, _)) = missing.into_iter().find(|(_, value)| !usable(*value)) {
                return Err(Metrics::Partial(format!("pod {} has no {what}", pod.name)));
            }
        }
        for variant in self.variants {
            let ready = variant.target.known().and_then(Option::as_ref).map_or(0, |target| target.ready);
            let known = pods.iter().filter(|(owner, _)| owner.key == variant.key).count();
            if i32::try_from(known).is_ok_and(|known| known < ready) {
                let name = &variant.key.name;
                return Err(Metrics::Partial(format!("{known} of {ready} ready replicas of {name} have metrics")));
            }
        }
        if pods.is_empty() {
            return Err(Metrics::Silent(Silence::Missing));
        }
        Ok(pods)
    }

    fn ready(&self) -> i32 {
        let targets = self.variants.iter().filter_map(|variant| variant.target.known()?.as_ref());
        targets.map(|target| target.ready.max(0)).fold(0, i32::saturating_add)
    }

    /// Then nobody has to look at how metrics are collected.
    fn none_ready(&self) -> String {
        let asked = self.variants.iter().filter(|variant| variant.current().is_some_and(|current| current > 0));
        let asked = asked.map(|variant| format!("{} of {}", variant.current().unwrap_or_default(), variant.key.name));
        let asked: Vec<String> = asked.collect();
        format!("none of the replicas is ready ({}); look at their pods", asked.join(", "))
    }

    /// Every variant as its workload is.
    pub fn states(&self) -> Vec<State> {
        let upstream = self.seen.settings.mode == Mode::Upstream;
        let state = |variant: &&VariantSeen| {
            let target = variant.target.known().and_then(Option::as_ref);
            let reported = target.and_then(|target| target.status_replicas).filter(|count| upstream && *count > 0);
            let current = reported.or(variant.current()).unwrap_or_default();
            let previous = variant.previous();
            let awaited = |at| upstream || self.seen.now.duration_since(at) <= FOLLOW;
            State {
                variant: variant.key.name.clone(),
                current,
                desired: previous.at.filter(|at| awaited(*at)).map(|_| previous.replicas),
                pending: (current - target.map_or(0, |target| target.ready)).max(0),
                stuck: false,
                gpus: variant.gpus(),
                accelerator: variant.accelerator(),
                cost: variant.cost().unwrap_or(USUAL_COST),
                bounds: variant.bounds(),
            }
        };
        self.variants.iter().map(state).collect()
    }

    fn ask(&self, pods: &[(&VariantSeen, &PodSeen)], memory: &mut Memory) -> Result<Said, String> {
        let thresholds = self.seen.config.thresholds(self.namespace, self.model, Mode::Steersman).unwrap_or_default();
        let mut states = self.states();
        for state in &mut states {
            let key = Memory::key(self.namespace, self.model, &state.variant);
            let since = memory.lag(key, state.current, state.pending, self.seen.now);
            state.stuck = since.is_some_and(|since| self.seen.now.duration_since(since) > FOLLOW);
        }
        match thresholds.analyzer {
            Analyzer::Shares => {
                let mut analysis =
                    shares::analyze(&replicas::by_share(pods, Mode::Steersman), &thresholds, Mode::Steersman);
                // A variant that is still starting has no metrics, and is in transition all the same.
                for state in states.iter().filter(|state| state.current > 0) {
                    analysis.pods.entry(state.variant.clone()).or_default();
                }
                Ok(by_shares(&analysis, &states))
            }
            Analyzer::Tokens => {
                let queue = match self.metrics.map(|metrics| &metrics.queue) {
                    Some(Answer::Known(queue)) => *queue,
                    Some(Answer::Unknown(why)) => {
                        return Err(format!("the queue before the replicas is unknown: {why}"));
                    }
                    None => None,
                };
                let replicas = replicas::by_token(self, pods, memory)?;
                let model = tokens::Model {
                    namespace: self.namespace,
                    name: self.model,
                    now: self.seen.now,
                    mode: Mode::Steersman,
                    thresholds: &thresholds,
                    queue,
                };
                Ok(by_tokens(&tokens::analyze(&model, &replicas, &states, memory), &states))
            }
        }
    }
}

fn unknown(metrics: &Metrics) -> String {
    match metrics {
        Metrics::NotAsked => "metrics were not asked for".to_owned(),
        Metrics::Found => "metrics are there".to_owned(),
        Metrics::Silent(Silence::Missing | Silence::Misnamed(_)) => "there are no metrics".to_owned(),
        Metrics::Silent(Silence::Stale(age)) => format!("the metrics are {age} old"),
        Metrics::Silent(Silence::Failed(why)) => format!("the metrics could not be read: {why}"),
        Metrics::Silent(Silence::Unasked(_)) => "nobody can be asked for metrics".to_owned(),
        Metrics::Partial(what) => what.clone(),
        Metrics::Asleep => "no replica runs".to_owned(),
    }
}
