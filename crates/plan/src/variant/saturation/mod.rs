//! How full the running replicas are, and what that asks for.
//! Comes in: metrics per pod and the state of each variant of one model; goes out: what is spare and what is missing.

pub mod engine_args;
pub mod shares;
pub mod tokens;

use serde::Serialize;

use super::limits::Bounds;

/// One variant of the model as its workload is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    pub variant: String,
    /// Replicas that the workload has.
    pub current: i32,
    /// The last decision.
    pub desired: Option<i32>,
    /// Of `current`, those that are not ready.
    pub pending: i32,
    /// They have not become ready for so long that nobody waits for them: such a variant keeps its number, and others grow.
    pub stuck: bool,
    /// Accelerators per replica.
    pub gpus: i32,
    pub accelerator: String,
    pub cost: f64,
    pub bounds: Bounds,
}

impl State {
    pub fn ready(&self) -> i32 {
        self.current.saturating_sub(self.pending).max(0)
    }

    /// A decision that the workload has not followed yet. Nothing decided, or zero, is none.
    pub fn awaited(&self) -> Option<i32> {
        self.desired.filter(|desired| *desired != 0 && *desired != self.current)
    }
}
