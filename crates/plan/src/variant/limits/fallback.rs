//! Computes the number of a variant for which no engine has one.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Bounds;
use crate::variant::config::duration;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FallbackInput {
    pub variant_id: String,
    /// Per replica.
    pub accelerators: i64,
    pub bounds: Bounds,
    pub current: i32,
    pub created: Timestamp,
    pub previous: Previous,
}

/// The last decision. There is none if `at` is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Previous {
    pub replicas: i32,
    pub reason: String,
    /// `reason` without what bounds changed afterwards; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    pub at: Option<Timestamp>,
}

/// Another variant of the same model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    pub variant_id: String,
    pub accelerators: i64,
    pub min: i32,
    pub current: i32,
    pub desired: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// There is an earlier decision.
    Fallback,
    /// There is none.
    LastResort,
}

/// When a model without a number counts as abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Never: unknown data lowers nothing.
    Endless,
    /// After `period`. `zero`: the model may then be scaled to zero.
    Retention { period: SignedDuration, zero: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackTarget {
    pub replicas: i32,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    /// Time of the decision; that of the last one if nothing changed.
    pub at: Timestamp,
}

pub fn fall_back(
    path: Path,
    variant: &FallbackInput,
    others: &[Other],
    patience: Patience,
    now: Timestamp,
) -> FallbackTarget {
    if let Patience::Retention { period, zero } = patience
        && variant.previous.at.is_some_and(|at| now.duration_since(at) > period)
    {
        return abandoned(path, variant, others, period, zero, now);
    }
    match path {
        Path::Fallback => kept(variant, now),
        Path::LastResort => last_resort(variant, others, now),
    }
}

fn abandoned(
    path: Path,
    variant: &FallbackInput,
    others: &[Other],
    period: SignedDuration,
    zero: bool,
    now: Timestamp,
) -> FallbackTarget {
    let label = if path == Path::Fallback { "Fallback" } else { "Last resort" };
    let exceeded = format!("{label}: retention period exceeded (>{})", duration::go(period));
    let all_may_sleep = variant.bounds.min <= 0 && others.iter().all(|other| other.min <= 0);
    let own = (variant.accelerators, variant.variant_id.as_str());
    let cheapest = others.iter().all(|other| own <= (other.accelerators, other.variant_id.as_str()));
    let (replicas, reason) = match (all_may_sleep, zero, cheapest) {
        (true, true, _) => (0, format!("{exceeded}, scale-to-zero enabled, scaling to 0")),
        (true, false, true) => (1, format!("{exceeded}, scale-to-zero disabled, cheapest variant set to 1")),
        (true, false, false) => (0, format!("{exceeded}, scale-to-zero disabled, non-cheapest variant set to 0")),
        (false, ..) => (variant.bounds.min, format!("{exceeded}, using minReplicas={}", variant.bounds.min)),
    };
    let (replicas, reason, _) = below_max(variant.bounds, replicas, reason);
    FallbackTarget { replicas, reason, unclamped_reason: None, at: now }
}

fn below_max(bounds: Bounds, replicas: i32, reason: String) -> (i32, String, bool) {
    match bounds.max {
        Some(max) if replicas > max => (max, format!("{reason} (clamped to maxReplicas={max})"), true),
        _ => (replicas, reason, false),
    }
}

fn kept(variant: &FallbackInput, now: Timestamp) -> FallbackTarget {
    let previous = &variant.previous;
    let replicas = variant.bounds.clamp(previous.replicas);
    if replicas != previous.replicas {
        let (reason, unclamped) = previous.clamped(replicas);
        return FallbackTarget { replicas, reason, unclamped_reason: Some(unclamped), at: now };
    }
    if previous.reason.is_empty() {
        let reason = "Fallback: preserving previous allocation (no optimizer solution)".to_owned();
        return FallbackTarget { replicas, reason, unclamped_reason: None, at: now };
    }
    let Previous { reason, unclamped_reason, at, .. } = previous.clone();
    FallbackTarget { replicas, reason, unclamped_reason, at: at.unwrap_or(now) }
}

impl Previous {
    /// The reason after bounds change the number to `to`, and the reason without that. Earlier bounds are dropped, so
    /// that the reason does not grow with every change of the bounds.
    pub fn clamped(&self, to: i32) -> (String, String) {
        let unclamped_reason = self.unclamped_reason.as_ref().unwrap_or(&self.reason);
        let reason = format!("{unclamped_reason} (clamped from {} to {to} for bounds)", self.replicas);
        (reason.trim_start().to_owned(), unclamped_reason.clone())
    }
}

fn last_resort(variant: &FallbackInput, others: &[Other], now: Timestamp) -> FallbackTarget {
    let FallbackInput { bounds, current, previous, created, .. } = variant;
    let (min, current) = (bounds.min, *current);
    let nothing_runs = current == 0 && min <= 0;
    let others_run = others.iter().any(|other| other.current > 0 || other.desired > 0);
    let (baseline, reason, at) = match previous.at {
        Some(_) if current > 0 && previous.replicas < current => {
            let was = previous.replicas;
            (current, format!("Last resort: deployment discovered late, using current={current} (was {was})"), now)
        }
        Some(_) => {
            let was = previous.replicas;
            let intent = "Last resort: maintaining controller intent";
            (was, format!("{intent}: max(minReplicas={min}, previousOptimized={was})"), now)
        }
        None if nothing_runs && !previous.reason.is_empty() => {
            let was = previous.replicas;
            (was, format!("Last resort: preserving previous desired={was} (current temporarily 0)"), now)
        }
        None if nothing_runs && others_run => {
            let reason = "Last resort: first run, other variants handling load, starting at 0";
            (0, reason.to_owned(), *created)
        }
        None if nothing_runs => {
            let reason =
                "Last resort: first run with current=0, using safe default of 1 (waiting for deployment discovery)";
            (1, reason.to_owned(), now)
        }
        None => (current, format!("Last resort: first run, using max(minReplicas={min}, current={current})"), now),
    };
    let (replicas, reason, clamped) = below_max(*bounds, baseline.max(min), reason);
    let reason = if clamped { reason } else { format!("{reason} = {replicas}") };
    FallbackTarget { replicas, reason, unclamped_reason: None, at }
}
