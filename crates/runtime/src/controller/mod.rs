//! Reconciles the objects of one custom resource, one object at a time.

mod expectations;
mod fair_queue;
mod invalid_objects;
mod object_cache;
mod priority;
mod reconcile;
mod requeue;
mod runner;

pub use invalid_objects::{InvalidObjects, RECHECK_INTERVAL};
pub use reconcile::{
    Observed, ReconcileContext, ReconcileError, ReconcileOutcome, Reconciler, reconcile, serialize_status,
};
pub use requeue::ReconcileQueue;
pub use runner::{ControllerContext, retry_delay, run};
