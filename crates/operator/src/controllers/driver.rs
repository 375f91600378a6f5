//! One pass over one object: observe, plan, apply, report. This is the only place where the order of the steps is written
//! down.
//! Comes in: the name of an object; goes out: when to look again, or why the pass did not get to its end.

use std::future::Future;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;
use steersman_plan::{Failure, Next, Outcome, Plan};

use crate::apply::{self, Live, Owner, Stored};
use crate::client::{CallError, Server};

/// What a family does in the steps of a pass.
pub trait Family {
    /// Everything that its plan may look at.
    type Seen;

    /// The kind of its objects, in the version that the controller reads.
    fn kind(&self) -> GroupVersionKind;

    /// Its field manager.
    fn manager(&self) -> &str;

    /// Reads only.
    fn observe(
        &self,
        server: &Server,
        object: &DynamicObject,
    ) -> impl Future<Output = Result<Observed<Self::Seen>, PassError>> + Send;

    /// Pure.
    fn plan(&self, seen: &Self::Seen) -> Plan;

    /// Pure.
    fn report(&self, seen: &Self::Seen, plan: &Plan, outcome: &Outcome) -> Result<Value, PassError>;
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
    /// There is no such object any more; its children go with it.
    Gone,
    /// All was written that had to be.
    Done { written: usize, next: Next },
}

#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// Told in the object's status; tried again only if it may help.
    #[error("{}: {}", .0.object, .0.message)]
    Write(Failure),
    #[error("{object} cannot be read: {cause}")]
    Unreadable { object: String, cause: serde_json::Error },
    #[error("the status of {object} cannot be written as JSON: {cause}")]
    Status { object: String, cause: serde_json::Error },
}

impl PassError {
    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Call(_) => true,
            Self::Write(failure) => failure.transient,
            Self::Unreadable { .. } | Self::Status { .. } => false,
        }
    }
}

/// Brings one object to where its spec wants it, as far as that is possible now.
pub async fn pass<F: Family>(family: &F, server: &Server, namespace: &str, name: &str) -> Result<Passed, PassError> {
    let resource = ApiResource::from_gvk(&family.kind());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), namespace, &resource);
    let Some(object) = server.call(api.get_opt(name)).await? else { return Ok(Passed::Gone) };
    // What is being deleted is left to the garbage collector: writing children now would only delay it.
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(Passed::Gone);
    }
    let Observed { owner, seen, live } = family.observe(server, &object).await?;
    let plan = family.plan(&seen);
    let outcome = apply::apply(server, family.manager(), &owner, &plan, &live).await;
    // Also after a failed write: the status is where its user reads of it.
    let status = family.report(&seen, &plan, &outcome)?;
    let stored = Stored {
        resource_version: object.metadata.resource_version.as_deref().unwrap_or_default(),
        status: object.data.get("status"),
    };
    let told = apply::write_status(server, family.manager(), &owner, stored, &status).await;
    if let Some(failure) = outcome.failure {
        return Err(PassError::Write(failure));
    }
    let told = told.map_err(PassError::Write)?;
    Ok(Passed::Done { written: outcome.written + usize::from(told), next: plan.next })
}
