//! Builds the state of each variant of a model from its scale target. Expired waits are cleared.

use jiff::{SignedDuration, Timestamp};

use super::group::Group;
use crate::variant::decision_status::is_unmoved_at;
use crate::variant::limits::enforce::DEFAULT_COST;
use crate::variant::saturation::VariantState;
use crate::variant::saturation::progress::ObservedScale;
use crate::variant::saturation::tokens::capacity::Memory;
use crate::variant::snapshot::ObservedVariant;

/// Time that a scale target has to follow a decision, and replicas have to become ready or terminate.
pub const FOLLOW: SignedDuration = SignedDuration::from_mins(10);

impl Group<'_> {
    pub fn states(&self) -> Vec<VariantState> {
        let state = |variant: &&ObservedVariant| {
            let target = variant.target.known().and_then(Option::as_ref);
            let current = variant.current().unwrap_or_default();
            let previous = variant.previous();
            VariantState {
                variant: variant.key.name.clone(),
                current,
                desired: previous.at.map(|_| previous.replicas),
                pending: current.saturating_sub(target.map_or(0, |target| target.ready)).clamp(0, current),
                stuck: false,
                hangs: false,
                over: false,
                ignored_target: None,
                gpus: variant.gpus(),
                accelerator: variant.accelerator(),
                cost: variant.cost().unwrap_or(DEFAULT_COST),
                bounds: variant.bounds(),
                room: None,
            }
        };
        self.variants.iter().map(state).collect()
    }

    /// Runs in every reconcile, even if nothing can be decided, so that timers do not survive an outage or a scale to
    /// zero.
    pub fn states_by_now(&self, memory: &mut Memory) -> Vec<VariantState> {
        let now = self.seen.now;
        let too_long = |since: Timestamp| now.duration_since(since) > FOLLOW;
        let mut states = self.states();
        for (state, variant) in states.iter_mut().zip(self.variants) {
            let current = state.current;
            state.room = self.free.map(|free| free.room(variant, current));
            let ready = variant.target.known().and_then(Option::as_ref).map_or(0, |target| target.ready_pods);
            let asked = state.awaited().filter(|desired| *desired > current);
            let awaited =
                ObservedScale { current, short: state.pending > 0, over: ready > current, desired: state.awaited() };
            let key = variant.memory_key();
            let waits = memory.wait(&key, awaited, now);
            state.hangs = waits.short.is_some_and(|(_, since)| too_long(since));
            state.stuck = state.hangs && state.pending > 0;
            state.over = waits.over.is_some_and(|(_, since)| too_long(since));
            let in_vain = waits.above.is_some_and(|(_, since)| too_long(since)) || is_stored_unmoved(variant, current);
            state.ignored_target = memory.ignored_target(&key, current, asked, in_vain, now);
            let kept = waits.below.is_some_and(|(_, since)| too_long(since));
            if kept || asked.is_some() && state.ignored_target.is_some() {
                state.desired = None;
            }
        }
        states
    }
}

/// After a restart the stored decision shows that the scale target does not follow, so another ten minutes of waiting
/// are not needed.
fn is_stored_unmoved(variant: &ObservedVariant, current: i32) -> bool {
    variant.status.as_deref().is_some_and(|status| is_unmoved_at(status, current))
}
