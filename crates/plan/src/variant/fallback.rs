//! Computes the number that a variant keeps while no engine has one for it.

use jiff::Timestamp;
use serde::Serialize;

use super::bounds::Bounds;

const NOTHING_RUNS: &str = "First run: no replica is running, waiting for requests";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FallbackInput {
    pub bounds: Bounds,
    pub current: i32,
    pub created: Timestamp,
    pub previous: Previous,
    /// Another variant of the model has replicas, or will have.
    pub others_run: bool,
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

impl Previous {
    /// The reason after bounds change the number to `to`, and the reason without that. Earlier bounds are dropped, so
    /// that the reason does not grow with every change of the bounds.
    pub fn clamped(&self, to: i32) -> (String, String) {
        let unclamped_reason = self.unclamped_reason.as_ref().unwrap_or(&self.reason);
        let reason = format!("{unclamped_reason} (clamped from {} to {to} for bounds)", self.replicas);
        (reason.trim_start().to_owned(), unclamped_reason.clone())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// There is an earlier decision.
    Fallback,
    /// There is none.
    LastResort,
}

/// A number that was kept, not decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldTarget {
    pub replicas: i32,
    pub reason: String,
    /// `reason` without what bounds changed; None if they changed nothing.
    pub unclamped_reason: Option<String>,
    /// Time of the decision; that of the last one if nothing changed.
    pub at: Timestamp,
}

/// At least the last decision and the current replicas, within bounds. Unknown data lowers nothing, however long it is
/// unknown.
pub fn hold(input: &FallbackInput, now: Timestamp) -> HeldTarget {
    let FallbackInput { bounds, current, previous, .. } = input;
    let current = *current;
    let held = |replicas: i32, reason: String, unclamped_reason: Option<String>| HeldTarget {
        replicas,
        reason,
        unclamped_reason,
        at: now,
    };
    if previous.at.is_none() && current == 0 && bounds.min <= 0 {
        return held(0, NOTHING_RUNS.to_owned(), None);
    }
    let kept = bounds.clamp(current);
    let was = previous.replicas;
    if previous.at.is_some() && was < kept.min(current) {
        let reason = format!(
            "Scale-down blocked, metrics are incomplete: keeping {current} replicas, the last decision was {was}"
        );
        if kept == current {
            return held(kept, reason, None);
        }
        let clamped = format!("{reason} (clamped from {current} to {kept} for bounds)");
        return held(kept, clamped, Some(reason));
    }
    let path = if previous.at.is_some() { Path::Fallback } else { Path::LastResort };
    let target = fall_back(path, input, now);
    HeldTarget { replicas: bounds.clamp(target.replicas), ..target }
}

pub fn fall_back(path: Path, input: &FallbackInput, now: Timestamp) -> HeldTarget {
    match path {
        Path::Fallback => keep_previous(input, now),
        Path::LastResort => last_resort(input, now),
    }
}

fn keep_previous(input: &FallbackInput, now: Timestamp) -> HeldTarget {
    let previous = &input.previous;
    let replicas = input.bounds.clamp(previous.replicas);
    if replicas != previous.replicas {
        let (reason, unclamped) = previous.clamped(replicas);
        return HeldTarget { replicas, reason, unclamped_reason: Some(unclamped), at: now };
    }
    if previous.reason.is_empty() {
        let reason = "Fallback: preserving previous allocation (no optimizer solution)".to_owned();
        return HeldTarget { replicas, reason, unclamped_reason: None, at: now };
    }
    let Previous { reason, unclamped_reason, at, .. } = previous.clone();
    HeldTarget { replicas, reason, unclamped_reason, at: at.unwrap_or(now) }
}

fn last_resort(input: &FallbackInput, now: Timestamp) -> HeldTarget {
    let FallbackInput { bounds, current, previous, created, others_run } = input;
    let (min, current, was) = (bounds.min, *current, previous.replicas);
    let nothing_runs = current == 0 && min <= 0;
    let (baseline, reason, at) = match previous.at {
        Some(_) if current > 0 && was < current => {
            (current, format!("Last resort: deployment discovered late, using current={current} (was {was})"), now)
        }
        Some(_) => {
            let intent = "Last resort: maintaining controller intent";
            (was, format!("{intent}: max(minReplicas={min}, previousOptimized={was})"), now)
        }
        None if nothing_runs && !previous.reason.is_empty() => {
            (was, format!("Last resort: preserving previous desired={was} (current temporarily 0)"), now)
        }
        None if nothing_runs && *others_run => {
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
    let replicas = baseline.max(min);
    let (replicas, reason) = match bounds.max {
        Some(max) if replicas > max => (max, format!("{reason} (clamped to maxReplicas={max})")),
        _ => (replicas, format!("{reason} = {replicas}")),
    };
    HeldTarget { replicas, reason, unclamped_reason: None, at }
}
