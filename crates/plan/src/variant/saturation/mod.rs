//! How full the running replicas are, and what that asks for.
//! Comes in: metrics per pod and the state of each variant of one model; goes out: what is spare and what is missing.

pub mod engine_args;
pub mod shares;
pub mod tokens;
pub mod waits;

use std::cmp::Ordering;

use serde::Serialize;

use super::factor::{Explanation, Factor, FactorCode};
use super::limits::Bounds;

/// One variant of the model as its workload is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    pub variant: String,
    /// Replicas that the workload has.
    pub current: i32,
    /// The last decision, unless nobody waits for it any more.
    pub desired: Option<i32>,
    /// Of `current`, those that are not ready.
    pub pending: i32,
    /// They have not become ready for so long that nobody waits for them: such a variant keeps its number, and others grow.
    pub stuck: bool,
    /// So it was a moment ago, too: a container that crashes again and again is ready in between, which is no news.
    pub hangs: bool,
    /// It has had more that are ready for so long that nobody waits for them to go: a rollout that pauses.
    pub over: bool,
    /// It was asked for this number for so long, and has stayed as it is, that others grow in its place.
    pub unfollowed: Option<i32>,
    /// Accelerators per replica.
    pub gpus: i32,
    pub accelerator: String,
    pub cost: f64,
    pub bounds: Bounds,
    /// Where accelerators are counted: how many replicas there are any for, and what there is.
    pub room: Option<(i32, Explanation)>,
}

impl State {
    pub fn ready(&self) -> i32 {
        self.current.saturating_sub(self.pending).max(0)
    }

    /// What it may have, by its own bounds and by what there is.
    pub fn limits(&self) -> Bounds {
        self.room.as_ref().map_or(self.bounds, |(most, _)| self.bounds.at_most(*most))
    }

    /// What keeps it from a wish, where that is neither of its bounds.
    pub fn out_of_room(&self, wish: i32) -> Option<Explanation> {
        let (most, why) = self.room.as_ref()?;
        (*most < wish && self.bounds.allow(*most)).then(|| why.clone().reworded(format!("gpu-limiter: {why}")))
    }

    /// What keeps it from a number that nothing here stands against, and what may be done about it.
    pub fn unmoved(&self, number: i32) -> Explanation {
        let current = self.current;
        let advice = match current {
            0 => {
                "an HPA does nothing at 0 replicas: scale the workload to 1, or use KEDA or the feature gate HPAScaleToZero"
            }
            _ => {
                "look at maxReplicas of its HPA or ScaledObject, or at a quota; or set spec.maxReplicas; an HPA also ignores \
                 differences of 10 % (its tolerance)"
            }
        };
        Explanation::of(
            Factor::replicas(FactorCode::WorkloadUnmoved, current),
            format!("its workload, which has stayed at {current} and does not follow {number}: {advice}"),
        )
    }

    /// Whether as many as it is to have will be measured if one waits.
    pub fn is_moving(&self, measured: i32) -> bool {
        match measured.cmp(&self.current) {
            Ordering::Less => !self.stuck,
            Ordering::Greater => !self.over && !self.stuck,
            Ordering::Equal => false,
        }
    }

    /// A decision that the workload has not followed yet. Nothing decided, or zero, is none.
    pub fn awaited(&self) -> Option<i32> {
        self.desired.filter(|desired| *desired != 0 && *desired != self.current)
    }
}
