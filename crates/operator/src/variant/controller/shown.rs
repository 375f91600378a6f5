//! Computes the gauge values of an object from its decision, or from its stored status before the first reconcile.

use std::collections::BTreeMap;

use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::{Conflict, Decision, VariantSeen, suppressed};

use super::Variants;
use crate::variant::metrics::{Resolution, Shown};
use crate::variant::observe::News;

/// Values after a decision.
pub fn decided(seen: &VariantSeen, decision: &Decision) -> Shown {
    let conflict = match &decision.conflict {
        None => None,
        Some(Conflict::Won { others }) => Some(Resolution::Winner(others.len() + 1)),
        Some(Conflict::Lost { .. }) => Some(Resolution::Suppressed),
    };
    let running = seen.target.known().and_then(Option::as_ref);
    let running = running.map(|target| target.status_replicas.or(target.replicas).unwrap_or(1).max(0));
    Shown {
        desired: decision.replicas,
        accelerator: decision.accelerator.clone(),
        current: running.unwrap_or_else(|| stored_current(seen)),
        reason: decision.story.binding.word(),
        conflict,
        ..named(seen)
    }
}

/// Values from the stored status. `None` if there is no decision for this scale target, or another object decides.
fn stored(seen: &VariantSeen) -> Option<Shown> {
    let ours = |status: &&VariantAutoscalingStatus| !seen.deleting && !seen.is_moved() && !suppressed(status);
    let status = seen.status.as_deref().filter(ours)?;
    let desired = status.desired_optimized_alloc.as_ref()?.num_replicas?;
    Some(Shown {
        desired: Some(desired),
        accelerator: seen.accelerator(),
        current: stored_current(seen),
        reason: "hold",
        ..named(seen)
    })
}

fn stored_current(seen: &VariantSeen) -> i32 {
    let current = seen.status.as_ref().and_then(|status| status.current_alloc.as_ref());
    current.map_or(0, |current| current.num_replicas)
}

fn named(seen: &VariantSeen) -> Shown {
    let target = seen.spec.scale_target_ref.as_ref();
    Shown {
        target_name: target.map(|target| target.name.clone()).unwrap_or_default(),
        target_kind: target.map(|target| target.kind.clone()).unwrap_or_default(),
        ..Shown::default()
    }
}

impl Variants {
    /// Publishes stored decisions, so that an HPA does not lose its series however long the first reconcile takes.
    pub fn republish(&self) {
        let mut all = BTreeMap::new();
        self.fleet.each(|_, _, variant| {
            if let Ok(seen) = &variant.seen {
                all.extend(stored(seen).map(|shown| (seen.key.clone(), shown)));
            }
        });
        self.gauges.publish(all);
    }

    /// Updates the gauges for a change before the first reconcile.
    pub fn reshow(&self, news: &News) {
        match news {
            News::Variant(key) => {
                match self.fleet.acted_on(key, |variant| variant.seen.as_ref().map(stored).ok()) {
                    Some(Some(shown)) => self.gauges.show(key.clone(), shown),
                    // The spec cannot be decoded; the stored decision still applies.
                    Some(None) => {}
                    None => self.gauges.forget(key),
                }
            }
            // Objects of a namespace that is no longer excluded are published again.
            News::Namespace(_) => self.republish(),
            News::Gone(_) | News::Map(_) | News::Target(_) => {}
        }
    }
}
