//! The progress of a rollout of the live Deployment.

use super::build::scaling;
use super::snapshot::{ObservedDeployment, Snapshot};

/// Whether all wanted pods are ready and of the newest template. The Deployment counts ready and updated pods
/// separately: the ready ones are the updated ones only once no other pod is left.
pub fn complete(snapshot: &Snapshot, live: &ObservedDeployment) -> bool {
    let wanted = wanted_replicas(snapshot, live);
    let current = live.observed_generation >= live.generation;
    current && live.ready == wanted && live.updated >= wanted && live.pods <= live.updated
}

pub fn wanted_replicas(snapshot: &Snapshot, live: &ObservedDeployment) -> i32 {
    scaling::replicas(snapshot).or(live.replicas).unwrap_or(1)
}
