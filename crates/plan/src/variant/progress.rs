//! Follows how scale targets carry out decisions: the state of each variant, and since when it deviates from its last
//! decision.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::bounds::Bounds;
use super::config::costs::Costs;
use super::decision_status::is_unmoved_at;
use super::gpu_limit::GpuHeadroom;
use super::memory::{IgnoredTarget, Memory, ScaleProgress};
use super::snapshot::{ObservedModel, ObservedVariant};
use super::trace::{Explanation, Factor, FactorCode, Proposal};

/// Time that a scale target has to follow a decision, and replicas have to become ready or terminate.
pub const FOLLOW_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// Time after the last attempt during which a scale target that did not follow is not asked first.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// Time that all replicas have to be ready before their unready time is forgotten: a crash-looping container is ready
/// for moments.
const RECOVERY_TIME: SignedDuration = SignedDuration::from_mins(3);

/// The scale target of one variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VariantState {
    pub variant: String,
    pub current: i32,
    /// The last decision. `None` if it is no longer waited for.
    pub desired: Option<i32>,
    /// Replicas of `current` that are not ready.
    pub pending: i32,
    /// Replicas have been unready for more than 10 minutes. The variant keeps its number, and others grow.
    pub stuck: bool,
    /// Stays true until all replicas have been ready for 3 minutes, so that a crash loop does not flap.
    pub recently_unready: bool,
    /// More pods than `current` have been ready for more than 10 minutes, as in a paused rollout.
    pub surplus_pods: bool,
    /// The number that the scale target was asked for and did not follow for 10 minutes. Others grow instead.
    pub ignored_target: Option<i32>,
    /// GPUs per replica.
    pub gpus: i32,
    pub accelerator: String,
    pub cost: f64,
    pub bounds: Bounds,
    /// If GPUs are limited: the replicas that there are GPUs for, and an explanation of the supply.
    pub gpu_room: Option<(i32, Explanation)>,
}

impl VariantState {
    fn of(variant: &ObservedVariant, costs: &Costs) -> Self {
        let current = variant.current().unwrap_or_default();
        let ready = variant.scale_target().map_or(0, |target| target.ready);
        let previous = variant.previous();
        Self {
            variant: variant.key.name.clone(),
            current,
            desired: previous.at.map(|_| previous.replicas),
            pending: current.saturating_sub(ready).clamp(0, current),
            gpus: variant.gpus(),
            accelerator: variant.accelerator(),
            cost: variant.cost(costs),
            bounds: variant.bounds(),
            ..Self::default()
        }
    }

    pub fn ready(&self) -> i32 {
        self.current.saturating_sub(self.pending).max(0)
    }

    /// The bounds, reduced to the replicas that there are GPUs for.
    pub fn limits(&self) -> Bounds {
        self.gpu_room.as_ref().map_or(self.bounds, |(most, _)| self.bounds.at_most(*most))
    }

    /// The missing GPUs, if they and not the bounds prevent `wanted`.
    pub fn gpu_shortage(&self, wanted: i32) -> Option<Explanation> {
        let (most, why) = self.gpu_room.as_ref()?;
        (*most < wanted && self.bounds.allow(*most)).then(|| why.clone().reworded(format!("gpu-limiter: {why}")))
    }

    /// The obstacle to growing to `wanted`, other than the bounds.
    pub fn obstacle(&self, wanted: i32) -> Option<Explanation> {
        if self.stuck {
            return Some(Explanation::new(FactorCode::ReplicasNotReady, "replicas that do not become ready"));
        }
        self.gpu_shortage(wanted)
    }

    /// The number to request again from a scale target that did not follow `requested`, and what keeps it from that
    /// number. It is requested while capacity is missing, even if other variants grow in the meantime: the scale target
    /// may follow at any time.
    pub fn repeated_request(&self, requested: i32) -> (i32, Option<Explanation>) {
        let target = self.limits().clamp(requested).max(self.current);
        let limit = if target > self.current { Some(self.unmoved(target)) } else { self.gpu_shortage(requested) };
        (target, limit)
    }

    /// Explains that the scale target does not follow `number`, and what to check.
    fn unmoved(&self, number: i32) -> Explanation {
        let current = self.current;
        let advice = match current {
            0 => {
                "an HPA does not scale up from 0; scale the workload to 1, use KEDA, or enable the feature gate HPAScaleToZero"
            }
            _ => {
                "check maxReplicas of its HPA or ScaledObject and resource quotas, or set spec.maxReplicas; an HPA also ignores \
                 differences of up to 10 % (its tolerance)"
            }
        };
        Explanation::of(
            Factor::replicas(FactorCode::WorkloadUnmoved, current),
            format!("the scale target, which stays at {current} replicas instead of {number}: {advice}"),
        )
    }

    /// Whether the number of measured pods is expected to reach `current`.
    pub fn is_moving(&self, measured: i32) -> bool {
        match measured.cmp(&self.current) {
            Ordering::Less => !self.stuck,
            Ordering::Greater => !self.surplus_pods && !self.stuck,
            Ordering::Equal => false,
        }
    }

    /// A decision that the scale target has not followed yet. A decision of 0 is never awaited.
    pub fn awaited(&self) -> Option<i32> {
        self.desired.filter(|desired| *desired != 0 && *desired != self.current)
    }
}

/// The states of the variants by their scale targets. Expired waits are cleared. This runs in every reconcile, even if
/// nothing can be decided, so that timers do not survive an outage or a scale to zero.
pub fn track(model: &ObservedModel<'_>, headroom: Option<&GpuHeadroom<'_>>, memory: &mut Memory) -> Vec<VariantState> {
    let state = |variant: &&ObservedVariant| {
        let mut state = VariantState::of(variant, &model.snapshot.config.costs);
        state.gpu_room = headroom.map(|headroom| headroom.room(variant, state.current));
        follow(&mut state, variant, memory, model.snapshot.now);
        state
    };
    model.variants.iter().map(state).collect()
}

fn follow(state: &mut VariantState, variant: &ObservedVariant, memory: &mut Memory, now: Timestamp) {
    let current = state.current;
    let observed = ObservedScale {
        current,
        is_unready: state.pending > 0,
        has_surplus_pods: variant.scale_target().map_or(0, |target| target.ready_pods) > current,
        desired: state.awaited(),
    };
    let key = variant.memory_key();
    let mut progress = advance(memory.progress.remove(&key).unwrap_or_default(), observed, now);
    let is_expired = |since: Option<Timestamp>| since.is_some_and(|since| now.duration_since(since) > FOLLOW_TIMEOUT);
    state.recently_unready = is_expired(progress.unready.map(|(_, since)| since));
    state.stuck = state.recently_unready && state.pending > 0;
    state.surplus_pods = is_expired(progress.surplus_pods.map(|(_, since)| since));
    if progress == ScaleProgress::default() {
        return;
    }
    let requested = state.awaited().filter(|desired| *desired > current);
    // After a restart the stored decision shows that the scale target does not follow, so another ten minutes of waiting
    // are not needed.
    let is_in_vain = is_expired(progress.scale_up.map(|(_, since)| since))
        || variant.status.as_deref().is_some_and(|status| is_unmoved_at(status, current));
    progress.ignored_target = ignored_target(progress.ignored_target, current, requested, is_in_vain, now);
    state.ignored_target = progress.ignored_target.map(|ignored| ignored.requested);
    let is_kept = is_expired(progress.scale_down.map(|(_, since)| since));
    if is_kept || requested.is_some() && state.ignored_target.is_some() {
        state.desired = None;
    }
    memory.progress.insert(key, progress);
}

/// The deviations of a scale target.
#[derive(Clone, Copy, Debug)]
struct ObservedScale {
    /// `spec.replicas`.
    current: i32,
    /// Some replicas are not ready.
    is_unready: bool,
    /// More pods are ready than there are replicas.
    has_surplus_pods: bool,
    /// The decided number, if it is another one.
    desired: Option<i32>,
}

/// Updates the timers. A timer restarts when its value changes.
fn advance(mut before: ScaleProgress, observed: ObservedScale, now: Timestamp) -> ScaleProgress {
    if before.recovered.is_some_and(|since| now.duration_since(since) >= RECOVERY_TIME) {
        (before.unready, before.recovered) = (None, None);
    }
    let current = observed.current;
    // A changed number means other replicas, so the timer does not carry over.
    let recovering = before.unready.filter(|(count, _)| !observed.is_unready && *count == current);
    let scale_up = observed.desired.filter(|desired| *desired > current);
    let scale_down = observed.desired.filter(|desired| *desired < current);
    ScaleProgress {
        unready: recovering.or_else(|| timer(before.unready, observed.is_unready.then_some(current), now)),
        recovered: recovering.map(|_| before.recovered.unwrap_or(now)),
        surplus_pods: timer(before.surplus_pods, observed.has_surplus_pods.then_some(current), now),
        scale_up: timer(before.scale_up, scale_up.map(|_| current), now),
        scale_down: timer(before.scale_down, scale_down.map(|desired| (desired, current)), now),
        ignored_target: before
            .ignored_target
            .filter(|ignored| now.duration_since(ignored.last_request) <= RETRY_INTERVAL),
    }
}

fn timer<T: PartialEq>(before: Option<(T, Timestamp)>, value: Option<T>, now: Timestamp) -> Option<(T, Timestamp)> {
    let value = value?;
    Some(before.filter(|(known, _)| *known == value).unwrap_or((value, now)))
}

/// The request that the scale target did not follow, until it moves. `requested`: the decided number above `current`;
/// `is_in_vain`: a larger number has been decided for too long.
fn ignored_target(
    known: Option<IgnoredTarget>,
    current: i32,
    requested: Option<i32>,
    is_in_vain: bool,
    now: Timestamp,
) -> Option<IgnoredTarget> {
    match (known.filter(|known| known.current == current), requested) {
        (Some(known), Some(_)) => Some(IgnoredTarget { last_request: now, ..known }),
        (None, Some(requested)) if is_in_vain => Some(IgnoredTarget { requested, current, last_request: now }),
        (known, _) => known,
    }
}

/// Explains which variants are still carrying out an earlier decision.
pub fn in_transition(awaited: Vec<Explanation>) -> Explanation {
    let texts: Vec<&str> = awaited.iter().map(|one| one.text.as_str()).collect();
    let text = format!("waiting for an earlier decision to be carried out: {}", texts.join(", "));
    let mut factors = vec![Factor::new(FactorCode::InTransition)];
    factors.extend(awaited.into_iter().flat_map(|one| one.factors));
    Explanation { factors, text }
}

/// Adds to the reason that the scale target did not follow the last decision, and its number is decided now.
pub fn report_unfollowed(proposal: &mut Proposal<'_>) {
    let (replicas, previous) = (proposal.replicas, proposal.variant.previous());
    let stays = proposal.trace.limits.is_empty() && Some(replicas) == proposal.variant.current();
    if proposal.is_decided && stays && previous.at.is_some() && previous.replicas != replicas {
        proposal
            .extend_reason(&format!("the scale target stayed at {replicas} replicas instead of {}", previous.replicas));
    }
}
