//! How far the live Deployment has come.

use super::build::scaling;
use super::snapshot::{ObservedDeployment, Snapshot};

/// All pods that there should be are ready, and of the newest template. An updated pod need not be ready, and a ready one
/// need not be updated: only when no other is left, the ready ones are those of the newest template.
pub fn complete(snapshot: &Snapshot, live: &ObservedDeployment) -> bool {
    let wanted = wanted_replicas(snapshot, live);
    let current = live.observed_generation >= live.generation;
    current && live.ready == wanted && live.updated >= wanted && live.pods <= live.updated
}

pub fn wanted_replicas(snapshot: &Snapshot, live: &ObservedDeployment) -> i32 {
    scaling::replicas(snapshot).or(live.replicas).unwrap_or(1)
}
