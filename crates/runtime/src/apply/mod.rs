//! Carries out a plan: writes in their order, then prunes. It decides nothing, stops at the first failure, and sends nothing
//! for a child that is as wanted.

mod adopt;
mod diff;
mod events;
mod foreign_list_items;
mod live;
mod owner;
mod ownership;
mod status;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::core::response::reason;
use kube::{Client, ResourceExt};
use serde_json::Value;
use steersman_reconcile::{Failure, ObjectId, Outcome, Plan, Severity, Write, WriteOp};

use crate::client::{CallError, Server};
use ownership::Claim;

pub use diff::{Difference, diff};
pub use events::Recorder;
pub use live::Live;
pub use owner::{Legacy, Owner, controller};
pub use ownership::is_managed_by;
pub use status::{StatusWrite, Stored, write_status};

/// The result of applying a plan.
#[derive(Debug, Default)]
pub struct Applied {
    pub outcome: Outcome,
    /// The children as the server answered to our writes.
    pub children: Vec<DynamicObject>,
    /// The resourceVersion of the owner after a patch of it.
    pub owner_version: Option<String>,
}

/// Does what `plan` says for `owner`: the writes in their order, then the prune. `manager` is our field manager.
pub async fn apply<R>(server: &Server, manager: &str, owner: &Owner, plan: &Plan<R>, live: &Live) -> Applied {
    let applier = Applier { server, manager, owner, live };
    let mut applied = Applied::default();
    applied.outcome.failure = applier.run(plan, &mut applied).await.err();
    applied
}

struct Applier<'a> {
    server: &'a Server,
    manager: &'a str,
    owner: &'a Owner,
    live: &'a Live,
}

impl Applier<'_> {
    async fn run<R>(&self, plan: &Plan<R>, applied: &mut Applied) -> Result<(), Failure> {
        // Objects deleted by this plan. The cache may still hold them.
        let mut removed = Vec::new();
        for op in &plan.writes {
            let written = match op {
                WriteOp::Owned(write) => self.write(write, Ownership::Owned, &removed).await?,
                WriteOp::Unowned(write) => self.write(write, Ownership::Unowned, &removed).await?,
                WriteOp::PatchOwner(patch) => {
                    applied.owner_version = self.patch_owner(patch).await?;
                    applied.outcome.written += 1;
                    None
                }
                WriteOp::Delete { kind, name, uid, version } => {
                    applied.outcome.written +=
                        usize::from(self.remove(kind, name, Some(uid), version.as_deref()).await?);
                    removed.push((kind, name.as_str()));
                    None
                }
            };
            if let Some(child) = written {
                applied.outcome.written += 1;
                applied.children.push(child);
            }
        }
        // The plan leaves `prune` empty while a finding blocks. The check is repeated here because a deletion cannot be
        // undone.
        if plan.findings.iter().any(|finding| finding.severity == Severity::Blocker) {
            return Ok(());
        }
        for child in self.orphans(&plan.prune, &plan.writes) {
            let Some(kind) = kind_of(child) else { continue };
            let uid = child.metadata.uid.as_deref();
            applied.outcome.written += usize::from(self.remove(&kind, &child.name_any(), uid, None).await?);
        }
        Ok(())
    }

    /// The object, if something changed.
    async fn write(
        &self,
        write: &Write,
        ownership: Ownership,
        removed: &[(&GroupVersionKind, &str)],
    ) -> Result<Option<DynamicObject>, Failure> {
        let wanted = match ownership {
            Ownership::Owned => self.owner.complete(write.object()),
            Ownership::Unowned => self.owner.placed(write.object()),
        };
        let Some(kind) = kind_of(&wanted) else {
            return Err(refused(self.owner, &wanted, "the plan names no apiVersion and kind; this is a bug".into()));
        };
        let api = children(&self.server.client, self.owner, &kind);
        let name = wanted.name_any();
        let cached = self.live.get(&kind, &name).filter(|_| !removed.contains(&(&kind, name.as_str())));
        match write {
            Write::Apply(_) => self.apply(&api, &kind, ownership, wanted, cached).await,
            Write::CreateOnce(_) if cached.is_some() => Ok(None),
            Write::CreateOnce(_) => self.create_once(&api, &wanted).await,
        }
    }

    async fn apply(
        &self,
        api: &Api<DynamicObject>,
        kind: &GroupVersionKind,
        ownership: Ownership,
        mut wanted: DynamicObject,
        cached: Option<&DynamicObject>,
    ) -> Result<Option<DynamicObject>, Failure> {
        let name = wanted.name_any();
        let stopped = |error| failed(self.owner, &wanted, error);
        // A cache may lag, and a forced apply would take over any object that has our name by now. An object that seems absent
        // is therefore read first.
        let read = match cached {
            Some(_) => None,
            None => self.server.call(api.get_opt(&name)).await.map_err(stopped)?,
        };
        let mut current = cached.cloned().or(read);
        let mut adopted = false;
        if let Some(object) = &current {
            let claim = match ownership {
                Ownership::Owned => ownership::check(self.owner, self.manager, &wanted, object),
                Ownership::Unowned => ownership::check_unowned(self.owner, self.manager, &wanted, object),
            };
            match claim {
                Ok(Claim::Ours) => {}
                Ok(Claim::Legacy) => {
                    let folded = adopt::take_over(self.server, self.manager, self.owner, kind, &wanted, object);
                    current = Some(folded.await.map_err(stopped)?);
                    adopted = true;
                }
                Err(conflict) => return Err(conflict.into_failure(self.owner.child_id(&wanted))),
            }
        }
        if let Some(patch) = current
            .as_ref()
            .filter(|_| ownership == Ownership::Unowned)
            .and_then(|object| self.owner.release(&wanted, object))
        {
            let freed = adopt::send(self.server, self.owner, kind, &name, &patch).await;
            current = Some(freed.map_err(|error| failed(self.owner, &wanted, error))?);
            adopted = true;
        }
        if let Some(object) = &current {
            let Some(difference) = diff(&wanted, object, self.manager) else {
                return Ok(adopted.then(|| object.clone()));
            };
            tracing::info!(object = %self.owner.child_id(&wanted), %difference, "applying");
            // The UID restricts the apply to the object that was checked: a successor of the same name is rejected.
            wanted.metadata.uid.clone_from(&object.metadata.uid);
            // A plan that builds on what it has seen says which version that was. Our own adoption has moved it on.
            if adopted && wanted.metadata.resource_version.is_some() {
                wanted.metadata.resource_version.clone_from(&object.metadata.resource_version);
            }
        }
        let params = PatchParams::apply(self.manager).force();
        let mut answer = self.server.call(api.patch(&name, &params, &Patch::Apply(&wanted))).await;
        if let (Err(CallError::Answered { code: 422, fields, .. }), Some(object)) = (&answer, &current)
            && let Some(patch) = foreign_list_items::patch(self.manager, &wanted, object, fields)
        {
            tracing::info!(
                object = %self.owner.child_id(&wanted),
                "the API server rejected the object; removing list items of other field managers and retrying"
            );
            let taken = adopt::send(self.server, self.owner, kind, &name, &patch);
            taken.await.map_err(|error| failed(self.owner, &wanted, error))?;
            answer = self.server.call(api.patch(&name, &params, &Patch::Apply(&wanted))).await;
        }
        let written = match answer {
            Ok(written) => written,
            // Another object has taken the name: its UID differs from the one in the request.
            Err(CallError::Answered { code: 422, reason, fields, message })
                if fields.iter().any(|field| field == "metadata.uid") =>
            {
                return Err(failed(self.owner, &wanted, CallError::Answered { code: 409, reason, fields, message }));
            }
            Err(error) => return Err(failed(self.owner, &wanted, error)),
        };
        let before = current.and_then(|object| object.metadata.resource_version);
        Ok((adopted || written.metadata.resource_version != before).then_some(written))
    }

    async fn create_once(
        &self,
        api: &Api<DynamicObject>,
        wanted: &DynamicObject,
    ) -> Result<Option<DynamicObject>, Failure> {
        let params = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        match self.server.call(api.create(&params, wanted)).await {
            Ok(created) => Ok(Some(created)),
            // The reason is checked, because a conflict on a ResourceQuota is a 409, too.
            Err(CallError::Answered { code: 409, reason, .. }) if reason == reason::ALREADY_EXISTS => Ok(None),
            Err(error) => Err(failed(self.owner, wanted, error)),
        }
    }

    /// Patches nothing but the observed version, on which the plan was decided. Returns the new version.
    async fn patch_owner(&self, patch: &Value) -> Result<Option<String>, Failure> {
        let mut patch = patch.clone();
        if let Some(version) = self.live.owner_version() {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        let api = children(&self.server.client, self.owner, &self.owner.kind);
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let answer = self.server.call(api.patch(&self.owner.name, &params, &Patch::Merge(patch))).await;
        answer.map(|patched| patched.metadata.resource_version).map_err(|error| {
            // A deleted object counts as changed.
            let gone = matches!(error, CallError::Answered { code: 404, .. });
            let failure = failure(self.owner.id(), error);
            Failure { conflict: failure.conflict || gone, ..failure }
        })
    }

    /// Children of the pruned kinds that the owner controls and the plan no longer writes.
    fn orphans<'a>(
        &'a self,
        prune: &'a [GroupVersionKind],
        writes: &'a [WriteOp],
    ) -> impl Iterator<Item = &'a DynamicObject> {
        let kept = |kind: &GroupVersionKind, child: &DynamicObject| {
            writes.iter().filter_map(WriteOp::object).any(|object| {
                let same_kind = kind_of(object).is_some_and(|own| own.group == kind.group && own.kind == kind.kind);
                same_kind && object.name_any() == child.name_any()
            })
        };
        // Volume claims hold users' data, whatever the plan says.
        let pruned = prune.iter().filter(|kind| kind.kind != "PersistentVolumeClaim");
        pruned.flat_map(move |kind| {
            // An object that an earlier operator made and we never applied is left for its users to remove.
            let ours = self.live.of(kind);
            let ours = ours.filter(|child| self.owner.controls(child) && is_managed_by(child, self.manager));
            ours.filter(move |child| child.metadata.deletion_timestamp.is_none() && !kept(kind, child))
        })
    }

    /// Returns whether the object existed.
    async fn remove(
        &self,
        kind: &GroupVersionKind,
        name: &str,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<bool, Failure> {
        let mut params = DeleteParams::background();
        params.preconditions =
            Some(Preconditions { uid: uid.map(str::to_owned), resource_version: version.map(str::to_owned) });
        let api = children(&self.server.client, self.owner, kind);
        let object = self.owner.child_id_named(kind, name);
        tracing::info!(%object, "deleting");
        match self.server.call(api.delete(name, &params)).await {
            Ok(_) => Ok(true),
            Err(CallError::Answered { code: 404, .. }) => Ok(false),
            Err(error) => Err(failure(object, error)),
        }
    }
}

/// Relation of a written object to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// Controlled by it.
    Owned,
    /// Identified by its labels alone.
    Unowned,
}

fn kind_of(object: &DynamicObject) -> Option<GroupVersionKind> {
    object.types.as_ref().and_then(|types| GroupVersionKind::try_from(types).ok())
}

/// The owner's children of one kind. They live in its namespace.
fn children(client: &Client, owner: &Owner, kind: &GroupVersionKind) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &owner.namespace, &ApiResource::from_gvk(kind))
}

fn failed(owner: &Owner, object: &DynamicObject, error: CallError) -> Failure {
    // A missing object has a reason; a path that the server does not know is answered without one.
    let unserved = matches!(&error, CallError::Answered { code: 404, reason, .. } if reason != reason::NOT_FOUND);
    let mut failure = failure(owner.child_id(object), error);
    if unserved && let Some(types) = &object.types {
        let (kind, version) = (&types.kind, &types.api_version);
        failure.message =
            format!("the cluster does not serve {kind} ({version}); install its CRD. The write is retried.");
    }
    failure
}

fn failure(object: ObjectId, error: CallError) -> Failure {
    let transient = is_transient(&error);
    let conflict = matches!(error, CallError::Answered { code: 409, .. });
    Failure { object, message: error.to_string(), transient, conflict }
}

fn refused(owner: &Owner, object: &DynamicObject, message: String) -> Failure {
    Failure { object: owner.child_id(object), message, transient: false, conflict: false }
}

/// A rejected object stays rejected. All other causes (permissions, quotas, a missing namespace, the network) may go
/// away without an event on any watch, so they are retried.
fn is_transient(error: &CallError) -> bool {
    !matches!(error, CallError::Answered { code: 400 | 405 | 413 | 415 | 422, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rejected_object_is_not_retried() {
        let answered =
            |code| CallError::Answered { code, reason: String::new(), fields: Box::default(), message: String::new() };
        for code in [400, 413, 422] {
            assert!(!is_transient(&answered(code)), "{code}");
        }
        for code in [403, 404, 409, 429, 500, 503, 504] {
            assert!(is_transient(&answered(code)), "{code}");
        }
        assert!(is_transient(&CallError::Refused { address: "https://127.0.0.1".into() }));
    }
}
