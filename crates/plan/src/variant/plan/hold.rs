//! What a variant keeps while nothing can be decided.
//! Comes in: one variant with its last decision; goes out: a number that is no lower than what runs, and its reason.

use jiff::Timestamp;

use super::super::limits::fallback::{Path, Patience, Variant, fall_back};
use super::super::seen::VariantSeen;

const NOTHING_RUNS: &str = "First run: nothing runs yet, waiting for requests";

/// No lower than the last decision and what the workload is asked to have, and within bounds.
pub fn hold(variant: &VariantSeen, now: Timestamp) -> (i32, String) {
    let (bounds, previous) = (variant.bounds(), variant.previous());
    let current = variant.current().unwrap_or_default();
    if previous.at.is_none() && current == 0 && bounds.min <= 0 {
        return (bounds.clamp(0), NOTHING_RUNS.to_owned());
    }
    let kept = bounds.clamp(current);
    if previous.at.is_some() && previous.replicas < kept.min(current) {
        let was = previous.replicas;
        let clamped =
            if kept == current { String::new() } else { format!(" (clamped from {current} to {kept} for bounds)") };
        return (
            kept,
            format!("Not enough is known to have fewer: the {current} that run are kept, {was} were decided{clamped}"),
        );
    }
    let path = if previous.at.is_some() { Path::Fallback } else { Path::LastResort };
    let own = Variant {
        variant_id: variant.spec.variant_id.clone().unwrap_or_default(),
        accelerators: variant.spec.accelerator_count.unwrap_or(1),
        bounds,
        current,
        created: variant.created,
        previous,
    };
    let fallen = fall_back(path, &own, &[], Patience::Endless, now);
    (bounds.clamp(fallen.replicas), fallen.reason)
}
