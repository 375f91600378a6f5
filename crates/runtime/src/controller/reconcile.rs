//! Reconciles one object: observe, plan, apply, publish events, write the status. The order of the steps is defined
//! here and nowhere else.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;
use steersman_reconcile::{DecodeError, Event, Failure, NamespacedName, ObjectId, Outcome, Plan, Requeue};
use tokio_util::sync::CancellationToken;

use super::expectations::Expectations;
use super::invalid_objects::InvalidObjects;
use super::requeue::ReconcileQueue;
use crate::apply::{self, Live, Owner, Recorder, StatusWrite, Stored};
use crate::client::{CallError, Server};
use crate::cpu_bound;
use crate::resource::CustomResource;
use crate::store::Scope;
use crate::store::cache::{Cache, Watched};

/// The part of a reconcile that differs between custom resources.
pub trait Reconciler {
    /// Everything that the plan may depend on.
    type Snapshot;

    /// Values resolved while planning, from which the status is rendered.
    type Resolution: Send + Sync;

    fn resource(&self) -> CustomResource;

    fn field_manager(&self) -> &str;

    /// The kinds of its children.
    fn children(&self) -> Vec<Watched>;

    /// Whether a reconcile of the object would only update the status of what runs already. While many objects start, such
    /// an object goes after the others.
    fn is_deferrable(&self, _context: &ReconcileContext, _object: &DynamicObject) -> bool {
        false
    }

    /// Reads only.
    fn observe(
        &self,
        context: &ReconcileContext,
        object: &DynamicObject,
    ) -> impl Future<Output = Result<Observed<Self::Snapshot>, ReconcileError>> + Send;

    /// Pure.
    fn plan(&self, snapshot: &Self::Snapshot) -> Plan<Self::Resolution>;

    /// The events to publish after the writes were tried. Pure.
    fn events(&self, snapshot: &Self::Snapshot, plan: &Plan<Self::Resolution>, outcome: &Outcome) -> Vec<Event>;

    /// Whether [`Reconciler::events`] covers failed writes. If not, each new failure is published as `WriteFailed`.
    fn publishes_failures(&self) -> bool {
        false
    }

    /// Pure.
    fn status(
        &self,
        snapshot: &Self::Snapshot,
        plan: &Plan<Self::Resolution>,
        outcome: &Outcome,
    ) -> Result<Value, ReconcileError>;

    /// Follows what objects refer to, until `stop`. It enqueues objects in `context.queue`; a reconcile never waits for it.
    fn run_watches(
        &self,
        _context: &ReconcileContext,
        _scope: &Scope,
        _stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// A reconcile of the object starts: a hook for metrics of this resource alone.
    fn on_start(&self, _object: &DynamicObject) {}

    /// The reconcile has ended, after this time.
    fn on_end(&self, _object: &DynamicObject, _result: &Result<ReconcileOutcome, ReconcileError>, _time: Duration) {}

    /// The object is gone, and state that is kept for it can be dropped.
    fn forget(&self, _object: &NamespacedName) {}

    /// The controller has stopped: another replica leads from now on.
    fn on_stop(&self) {}
}

/// The machinery that one reconcile works with.
pub struct ReconcileContext {
    pub server: Server,
    pub cache: Arc<Cache>,
    pub recorder: Recorder,
    pub queue: ReconcileQueue,
    pub expectations: Expectations,
    pub invalid_objects: InvalidObjects,
}

impl ReconcileContext {
    pub fn new(reconciler: &impl Reconciler, server: Server, instance: &str) -> Self {
        let recorder = Recorder::new(server.clone(), reconciler.field_manager(), instance);
        Self {
            server,
            cache: Arc::new(Cache::new(reconciler.children())),
            recorder,
            queue: ReconcileQueue::default(),
            expectations: Expectations::default(),
            invalid_objects: InvalidObjects::default(),
        }
    }
}

/// The observed state of one object.
pub struct Observed<S> {
    pub owner: Owner,
    pub snapshot: S,
    /// The children as apply compares them.
    pub live: Live,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ReconcileOutcome {
    /// The object is being deleted; its children go with it.
    Deleting,
    /// The object has changed since it was observed. Its watch triggers the next reconcile.
    Conflict,
    /// All writes succeeded.
    Reconciled { written: usize, requeue: Requeue },
}

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// Reported in the object's status. Retried only if the failure is transient.
    #[error("{0}")]
    Write(Failure),
    /// Reported as an event on the object. Only a change of the object helps.
    #[error("cannot decode {object}: {error}")]
    Invalid { object: ObjectId, error: DecodeError },
    #[error("cannot serialize the status of {object}: {cause}")]
    Status { object: NamespacedName, cause: String },
    /// A defect of the operator. Reported as an event on the object; a retry may meet other data.
    #[error("the reconcile of {object} panicked")]
    Panicked { object: ObjectId },
}

impl ReconcileError {
    pub fn invalid(resource: &CustomResource, object: &DynamicObject, error: DecodeError) -> Self {
        let object = ObjectId::new(resource.kind, object.namespace().unwrap_or_default(), object.name_any());
        Self::Invalid { object, error }
    }

    /// Whether a retry may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Call(_) | Self::Panicked { .. } => true,
            Self::Write(failure) => failure.transient,
            Self::Invalid { .. } | Self::Status { .. } => false,
        }
    }
}

/// A status as it is written.
pub fn serialize_status(status: &impl Serialize, namespace: &str, name: &str) -> Result<Value, ReconcileError> {
    serde_json::to_value(status).map_err(|cause| ReconcileError::Status {
        object: NamespacedName::new(namespace, name),
        cause: cause.to_string(),
    })
}

/// Reconciles one object, as far as that is possible now.
pub async fn reconcile<R: Reconciler>(
    reconciler: &R,
    context: &ReconcileContext,
    object: &DynamicObject,
) -> Result<ReconcileOutcome, ReconcileError> {
    let ReconcileContext { server, cache, recorder, .. } = context;
    let name = NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any());
    let version = object.resource_version().unwrap_or_default();
    let observed = reconciler.observe(context, object).await;
    match &observed {
        Err(ReconcileError::Invalid { error, .. }) => {
            let resource = reconciler.resource();
            let owner = Owner::of(resource.gvk(), object);
            context.invalid_objects.report(recorder, &resource, &owner, &version, error).await;
        }
        Ok(_) => context.invalid_objects.forget(&name),
        Err(_) => {}
    }
    let Observed { owner, snapshot, live } = observed?;
    let plan = cpu_bound::run(|| reconciler.plan(&snapshot));
    let live = live.of_owner(object.resource_version());
    let applied = apply::apply(server, reconciler.field_manager(), &owner, &plan, &live).await;
    applied.children.iter().for_each(|child| cache.wrote(child));
    let outcome = applied.outcome;
    // After a patch of the object, its status is written to the patched version.
    let current = applied.owner_version.unwrap_or_else(|| version.clone());
    if current != version {
        context.expectations.expect_newer_than(name.clone(), vec![version.clone()]);
    }
    // Conflict: another writer changed the object first. Requeue; report nothing.
    if let Some(failure) = outcome.failure.clone().filter(|failure| failure.conflict) {
        return Err(ReconcileError::Write(failure));
    }
    // Even after a failed write: the status is where users read about it.
    let status = cpu_bound::run(|| reconciler.status(&snapshot, &plan, &outcome))?;
    // Before the status, which records that they were published: a crash in between publishes them twice, never not at all.
    for event in reconciler.events(&snapshot, &plan, &outcome) {
        recorder.publish(&owner, &event).await;
    }
    let stored = Stored { resource_version: &current, status: object.data.get("status") };
    let status = apply::write_status(server, reconciler.field_manager(), &owner, stored, &status).await;
    let status_written = matches!(status, Ok(StatusWrite::Written(_)));
    if status_written {
        context.expectations.expect_newer_than(name, vec![version, current]);
    }
    if let Some(failure) = outcome.failure {
        // The status changes with the first failure of its kind. That failure gets an event, its repetition does not.
        if status_written && !reconciler.publishes_failures() {
            recorder.publish(&owner, &Event::warning("WriteFailed", failure.to_string())).await;
        }
        return Err(ReconcileError::Write(failure));
    }
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(ReconcileOutcome::Deleting);
    }
    match status.map_err(ReconcileError::Write)? {
        StatusWrite::Conflict => Ok(ReconcileOutcome::Conflict),
        StatusWrite::Unchanged | StatusWrite::Written(_) => {
            let written = outcome.written + usize::from(status_written);
            Ok(ReconcileOutcome::Reconciled { written, requeue: plan.requeue })
        }
    }
}
