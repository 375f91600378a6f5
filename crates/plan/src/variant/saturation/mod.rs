//! Measures how saturated the running replicas are, and how many more or fewer are needed.

pub mod engine_args;
pub mod progress;
pub mod shares;
pub mod tokens;

use std::cmp::Ordering;

use serde::Serialize;

use super::factor::{Explanation, Factor, FactorCode};
use super::limits::Bounds;

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
    pub hangs: bool,
    /// More pods than `current` have been ready for more than 10 minutes, as in a paused rollout.
    pub over: bool,
    /// The number that the scale target was asked for and did not follow for 10 minutes. Others grow instead.
    pub ignored_target: Option<i32>,
    /// GPUs per replica.
    pub gpus: i32,
    pub accelerator: String,
    pub cost: f64,
    pub bounds: Bounds,
    /// If GPUs are limited: the replicas that there are GPUs for, and an explanation of the supply.
    pub room: Option<(i32, Explanation)>,
}

impl VariantState {
    pub fn ready(&self) -> i32 {
        self.current.saturating_sub(self.pending).max(0)
    }

    /// The bounds, reduced to the replicas that there are GPUs for.
    pub fn limits(&self) -> Bounds {
        self.room.as_ref().map_or(self.bounds, |(most, _)| self.bounds.at_most(*most))
    }

    /// The missing GPUs, if they and not the bounds prevent `wish`.
    pub fn out_of_room(&self, wish: i32) -> Option<Explanation> {
        let (most, why) = self.room.as_ref()?;
        (*most < wish && self.bounds.allow(*most)).then(|| why.clone().reworded(format!("gpu-limiter: {why}")))
    }

    /// Explains that the scale target does not follow `number`, and what to check.
    pub fn unmoved(&self, number: i32) -> Explanation {
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
            Ordering::Greater => !self.over && !self.stuck,
            Ordering::Equal => false,
        }
    }

    /// A decision that the scale target has not followed yet. A decision of 0 is never awaited.
    pub fn awaited(&self) -> Option<i32> {
        self.desired.filter(|desired| *desired != 0 && *desired != self.current)
    }
}
