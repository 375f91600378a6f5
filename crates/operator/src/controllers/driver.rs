//! One pass over one object: observe, plan, apply, report. This is the only place where the order of the steps is written
//! down.
//! Comes in: an object as it was last seen; goes out: when to look again, or why the pass did not get to its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde::Serialize;
use serde_json::Value;
use steersman_api::Family as Api;
use steersman_reconcile::{DecodeError, Event, Failure, Outcome, Plan, Requeue, WriteOp};
use tokio_util::sync::CancellationToken;

use super::outdated::Outdated;
use super::unreadable::LeftAlone;
use super::wakes::{Place, Wakes};
use crate::apply::{self, Live, Owner, Recorder, Stored, Told};
use crate::client::{CallError, Server};
use crate::observe::cache::{Cache, Scope, Watched};
use crate::rbac::Rule;

/// What a family does in the steps of a pass.
pub trait Family {
    /// Everything that its plan may look at.
    type Seen;

    /// What its plan resolves on the way to its writes, for the status.
    type Resolution: Send + Sync;

    /// Which API it is.
    fn api(&self) -> Api;

    /// Its field manager.
    fn manager(&self) -> &str;

    /// The kinds of its children.
    fn children(&self) -> Vec<Watched>;

    /// Whether a pass over the object only brings news of what runs already. While many objects begin, it comes after them.
    fn can_wait(&self, _tools: &Tools, _object: &DynamicObject) -> bool {
        false
    }

    /// Reads only.
    fn observe(
        &self,
        tools: &Tools,
        object: &DynamicObject,
    ) -> impl Future<Output = Result<Observed<Self::Seen>, PassError>> + Send;

    /// Pure.
    fn plan(&self, seen: &Self::Seen) -> Plan<Self::Resolution>;

    /// What to tell once the writes were tried. Pure.
    fn notes(&self, seen: &Self::Seen, plan: &Plan<Self::Resolution>, outcome: &Outcome) -> Vec<Event>;

    /// Whether [`Family::notes`] has a word on a failed write. If not, each new one is told as `WriteFailed`.
    fn notes_failures(&self) -> bool {
        false
    }

    /// Pure.
    fn report(&self, seen: &Self::Seen, plan: &Plan<Self::Resolution>, outcome: &Outcome) -> Result<Value, PassError>;

    /// What runs beside the passes until `stop`, such as looking after what objects refer to. It asks for passes by
    /// `tools.wakes`, and passes never wait for it.
    fn beside(&self, _tools: &Tools, _scope: &Scope, _stop: CancellationToken) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// A pass over the object begins: for what a family measures besides what is measured of all.
    fn began(&self, _object: &DynamicObject) {}

    /// It has ended, after this time.
    fn ended(&self, _object: &DynamicObject, _passed: &Result<Passed, PassError>, _time: Duration) {}

    /// The object is gone: nothing needs to be kept for it.
    fn forget(&self, _place: &Place) {}

    /// No more passes are made here: another replica leads from now on.
    fn stopped(&self) {}
}

/// The kind of a family's objects, in the version that its controller reads: the stored one, which needs no conversion.
pub fn stored_kind(api: Api) -> GroupVersionKind {
    GroupVersionKind::gvk(api.group(), api.storage_version(), api.kind())
}

/// What a controller does with its objects, next to what it does with their children.
pub fn rules_for(api: Api, status: &'static str, finalizers: &'static str) -> Vec<Rule> {
    let rule = |resource, verbs, why| Rule::namespaced(api.group(), resource, verbs, why);
    vec![
        rule(api.plural(), &["get", "list", "watch"], "follow the objects that it acts on"),
        rule(status, &["update"], "say in its objects' status what it did"),
        // Where the cluster checks who may hold up a deletion, as OpenShift does.
        rule(finalizers, &["update"], "make its objects the owners of their children"),
    ]
}

/// What the steps of a pass work with.
pub struct Tools {
    pub server: Server,
    pub cache: Arc<Cache>,
    pub recorder: Recorder,
    pub wakes: Wakes,
    pub outdated: Outdated,
    pub left_alone: LeftAlone,
}

/// What was observed of one object.
pub struct Observed<S> {
    pub owner: Owner,
    pub seen: S,
    /// The children as the applier compares them.
    pub live: Live,
}

/// How a pass ended that got to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// The object is on its way out; its children go with it.
    Leaving,
    /// The object has changed since it was seen. Its watch brings the next pass.
    Overtaken,
    /// All was written that had to be.
    Done { written: usize, next: Requeue },
}

#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// Told in the object's status; tried again only if it may help.
    #[error("{0}")]
    Write(Failure),
    /// Told as an event on the object; nothing helps but a change of it.
    #[error("{object} cannot be read: {unreadable}")]
    Unreadable { object: String, unreadable: DecodeError },
    #[error("the status of {object} cannot be written as JSON: {cause}")]
    Status { object: String, cause: String },
}

impl PassError {
    pub fn unreadable(api: Api, object: &DynamicObject, unreadable: DecodeError) -> Self {
        let object = format!("{} {}/{}", api.kind(), object.namespace().unwrap_or_default(), object.name_any());
        Self::Unreadable { object, unreadable }
    }

    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Call(_) => true,
            Self::Write(failure) => failure.transient,
            Self::Unreadable { .. } | Self::Status { .. } => false,
        }
    }
}

/// A status as it is written.
pub fn as_status(status: &impl Serialize, namespace: &str, name: &str) -> Result<Value, PassError> {
    serde_json::to_value(status)
        .map_err(|cause| PassError::Status { object: format!("{namespace}/{name}"), cause: cause.to_string() })
}

/// Brings one object to where its spec wants it, as far as that is possible now.
pub async fn pass<F: Family>(family: &F, tools: &Tools, object: &DynamicObject) -> Result<Passed, PassError> {
    let Tools { server, cache, recorder, .. } = tools;
    let observed = family.observe(tools, object).await;
    match &observed {
        Err(PassError::Unreadable { unreadable, .. }) => {
            let owner = Owner::of(stored_kind(family.api()), object);
            let version = object.resource_version().unwrap_or_default();
            tools.left_alone.tell(recorder, family.api(), &owner, &version, unreadable).await;
        }
        Ok(_) => tools.left_alone.forget(&(object.namespace().unwrap_or_default(), object.name_any())),
        Err(_) => {}
    }
    let Observed { owner, seen, live } = observed?;
    let plan = family.plan(&seen);
    let live = live.of_owner(object.resource_version());
    let applied = apply::apply(server, family.manager(), &owner, &plan, &live).await;
    applied.children.iter().for_each(|child| cache.wrote(child));
    let outcome = applied.outcome;
    // Somebody was quicker; the next pass sees what they did, and nobody needs to read of it.
    if let Some(failure) = outcome.failure.clone().filter(|failure| failure.conflict) {
        return Err(PassError::Write(failure));
    }
    // Also after a failed write: the status is where its user reads of it.
    let status = family.report(&seen, &plan, &outcome)?;
    // Before the status, which says that they were told: a crash in between tells them twice, never not at all.
    for note in family.notes(&seen, &plan, &outcome) {
        recorder.tell(&owner, &note).await;
    }
    let version = object.resource_version().unwrap_or_default();
    let stored = Stored { resource_version: &version, status: object.data.get("status") };
    let told = apply::write_status(server, family.manager(), &owner, stored, &status).await;
    let patched = outcome.failure.is_none() && plan.writes.iter().any(|op| matches!(op, WriteOp::PatchOwner(_)));
    let now = matches!(told, Ok(Told::Now(_)));
    if patched || now {
        tools.outdated.note((owner.namespace.clone(), owner.name.clone()), version.clone());
    }
    if let Some(failure) = outcome.failure {
        // The status changes with the first failure of its kind; that is worth an event, its repetition is not.
        if now && !family.notes_failures() {
            recorder.tell(&owner, &failed(&failure)).await;
        }
        return Err(PassError::Write(failure));
    }
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Passed::Leaving);
    }
    match told.map_err(PassError::Write)? {
        Told::Overtaken => Ok(Passed::Overtaken),
        Told::Before | Told::Now(_) => {
            Ok(Passed::Done { written: outcome.written + usize::from(now), next: plan.requeue })
        }
    }
}

fn failed(failure: &Failure) -> Event {
    Event::warning("WriteFailed", failure.to_string())
}
