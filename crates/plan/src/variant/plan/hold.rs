//! Computes the number that a variant keeps while nothing can be decided.

use jiff::Timestamp;

use crate::variant::limits::fallback::{FallbackInput, FallbackTarget, Path, Patience, fall_back};
use crate::variant::snapshot::ObservedVariant;

const NOTHING_RUNS: &str = "First run: no replica is running, waiting for requests";

/// A number that was kept, not decided.
#[derive(Clone, Debug, Default)]
pub struct HeldTarget {
    pub replicas: i32,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
}

/// At least the last decision and `spec.replicas`, within bounds.
pub fn hold(variant: &ObservedVariant, now: Timestamp) -> HeldTarget {
    let (bounds, previous) = (variant.bounds(), variant.previous());
    let current = variant.current().unwrap_or_default();
    if previous.at.is_none() && current == 0 && bounds.min <= 0 {
        return HeldTarget { replicas: bounds.clamp(0), reason: NOTHING_RUNS.to_owned(), unclamped_reason: None };
    }
    let kept = bounds.clamp(current);
    if previous.at.is_some() && previous.replicas < kept.min(current) {
        let was = previous.replicas;
        let reason = format!(
            "Scale-down blocked, metrics are incomplete: keeping {current} replicas, the last decision was {was}"
        );
        if kept == current {
            return HeldTarget { replicas: kept, reason, unclamped_reason: None };
        }
        let clamped = format!("{reason} (clamped from {current} to {kept} for bounds)");
        return HeldTarget { replicas: kept, reason: clamped, unclamped_reason: Some(reason) };
    }
    let path = if previous.at.is_some() { Path::Fallback } else { Path::LastResort };
    let own = FallbackInput {
        variant_id: variant.spec.variant_id.clone().unwrap_or_default(),
        accelerators: variant.spec.accelerator_count.unwrap_or(1),
        bounds,
        current,
        created: variant.created,
        previous,
    };
    let fallen = fall_back(path, &own, &[], Patience::Endless, now);
    let FallbackTarget { replicas, reason, unclamped_reason, .. } = fallen;
    HeldTarget { replicas: bounds.clamp(replicas), reason, unclamped_reason }
}
