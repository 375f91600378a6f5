//! What is shown of each object to those who scale.
//! Comes in: an object with its decision, or with what is stored of an earlier one; goes out: the values of its gauges.

use std::collections::BTreeMap;

use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::{Conflict, Decision, VariantSeen, suppressed};

use super::Variants;
use crate::variant::metrics::{Resolution, Shown};
use crate::variant::observe::News;

/// Of an object that was just decided on.
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

/// Of an object as it is stored. None: it has not been decided on yet, not for this workload, or another one decides.
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
    /// What was decided before this process was: an HPA never loses its series, however long the first pass takes.
    pub fn republish(&self) {
        let mut all = BTreeMap::new();
        self.fleet.each(|_, _, variant| {
            if let Ok(seen) = &variant.seen {
                all.extend(stored(seen).map(|shown| (seen.key.clone(), shown)));
            }
        });
        self.gauges.publish(all);
    }

    /// What an object says of itself has changed before anybody decides on it anew.
    pub fn reshow(&self, news: &News) {
        match news {
            News::Variant(key) => {
                match self.fleet.acted_on(key, |variant| variant.seen.as_ref().map(stored).ok()) {
                    Some(Some(shown)) => self.gauges.show(key.clone(), shown),
                    // What it says now cannot be read; what it said still holds.
                    Some(None) => {}
                    None => self.gauges.forget(key),
                }
            }
            // Those of one that is no longer excluded come back.
            News::Namespace(_) => self.republish(),
            News::Gone(_) | News::Map(_) | News::Target(_) => {}
        }
    }
}
