//! Bringing every stored object into the storage version.
//! Comes in: a CRD that may hold objects of an older version; goes out: the same objects, stored anew, and a CRD that says
//! so; or the objects that could not be, by name.

use std::fmt;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PartialObjectMeta, Patch, PatchParams};
use serde_json::json;
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

pub use crate::crds::keep::{keep, rules};

use crate::crds::MANAGER;
use crate::crds::live::{self, Live};
use crate::crds::objects::{Pages, resource};

/// Objects under way at once: each makes the API server call the webhook, which is us.
const AT_ONCE: usize = 8;

/// How many objects that could not be stored anew are named. The cause is mostly the same for all.
const MOST_NAMED: usize = 10;

/// What came of it.
#[derive(Debug)]
pub enum Migrated {
    /// There was nothing to do: no object can be stored in another version, or the CRD is not one that we store.
    Settled,
    /// Every object is stored in the storage version, and the CRD says so.
    Done { objects: usize, from: Vec<String> },
    /// Some objects are as they were, and so is what the CRD says.
    Left(Left),
}

/// The objects that could not be stored anew.
#[derive(Debug, Default)]
pub struct Left {
    pub count: usize,
    /// The first of them.
    pub named: Vec<Named>,
}

#[derive(Debug)]
pub struct Named {
    /// `namespace/name`.
    pub object: String,
    pub cause: CallError,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Named { object, cause }) in self.named.iter().enumerate() {
            write!(f, "{}{object}: {cause}", if index == 0 { "" } else { "; " })?;
        }
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("cannot read {crd}: {cause}")]
    Crd { crd: &'static str, cause: CallError },
    #[error(
        "{crd} may hold objects stored as {from}, and nobody converts them (spec.conversion.strategy is None): stored anew \
         as they are, they would lose what the new version does not know; attach the conversion with `steersman crds --apply`"
    )]
    NotConverted { crd: &'static str, from: String },
    #[error("{crd} stores {storage} but does not serve it; set served: true for it, or run `steersman crds --apply`")]
    NotServed { crd: &'static str, storage: String },
    #[error("cannot list the objects of {crd}: {cause}")]
    List { crd: &'static str, cause: CallError },
    #[error("none of the objects of {crd} can be converted, {object} for one: {cause}")]
    NoneConverted { crd: &'static str, object: String, cause: CallError },
    #[error("cannot store the object {object} of {crd} anew: {cause}")]
    Object { crd: &'static str, object: String, cause: CallError },
    #[error("{crd} was changed while its objects were stored anew; this begins again")]
    Changed { crd: &'static str },
    #[error(
        "all objects of {crd} are stored as {storage}, but the CRD cannot be told (status.storedVersions): {cause}"
    )]
    Shrink { crd: &'static str, storage: String, cause: CallError },
}

/// Stores all objects of a family anew, if some may be stored in an older version than ours. Safe to run at any time and
/// to break off at any call; with nothing to do it reads the CRD and no more.
pub async fn migrate(server: &Server, family: Family) -> Result<Migrated, MigrateError> {
    let crd = family.crd_name();
    let seen = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    match seen {
        Some(seen) if is_due(&seen, family) => rewrite_all(server, family, &seen).await,
        _ => Ok(Migrated::Settled),
    }
}

/// Another storage version than ours is somebody else's CRD, with somebody else's conversion.
fn is_due(seen: &Live, family: Family) -> bool {
    seen.storage() == family.storage_version() && !seen.outdated().is_empty()
}

async fn rewrite_all(server: &Server, family: Family, seen: &Live) -> Result<Migrated, MigrateError> {
    let (crd, storage) = (family.crd_name(), seen.storage());
    let from: Vec<String> = seen.outdated().into_iter().map(str::to_owned).collect();
    if seen.converter().is_none() {
        return Err(MigrateError::NotConverted { crd, from: from.join(" and ") });
    }
    if !seen.served().contains(&storage) {
        return Err(MigrateError::NotServed { crd, storage: storage.to_owned() });
    }
    let mut readable = seen.served();
    readable.sort_by_key(|version| *version != storage);
    let mut pages = Pages::new(server, family, readable);
    let (mut objects, mut left) = (0, Left::default());
    while let Some(page) = pages.next().await.map_err(|cause| MigrateError::List { crd, cause })? {
        if page.first {
            (objects, left) = (0, Left::default());
        }
        objects += page.objects.len();
        let first = page.first;
        let rewrites = page.objects.into_iter().map(|object| rewrite(server, family, storage, object));
        let mut rewrites = stream::iter(rewrites).buffer_unordered(AT_ONCE);
        while let Some(rewritten) = rewrites.next().await {
            let Some(named) = rewritten? else { continue };
            left.count += 1;
            if left.named.len() < MOST_NAMED {
                left.named.push(named);
            }
        }
        // Not one of a whole page: that is the converter, and the next page would fare no better.
        if first && left.count == objects && left.named.iter().all(|named| is_servers_fault(&named.cause)) {
            let Some(Named { object, cause }) = left.named.pop() else { continue };
            return Err(MigrateError::NoneConverted { crd, object, cause });
        }
    }
    if left.count > 0 {
        left.named.sort_by(|one, other| one.object.cmp(&other.object));
        return Ok(Migrated::Left(left));
    }
    shrink(server, family, seen).await?;
    Ok(Migrated::Done { objects, from })
}

fn is_servers_fault(cause: &CallError) -> bool {
    matches!(cause, CallError::Answered { code: 500.., .. })
}

/// A patch that says nothing: the API server reads the object, finds that it would be stored otherwise, and stores it. It
/// cannot undo what somebody writes at the same time. It goes to the status because there the spec stays as it was
/// converted: a patch of the object itself fills in the defaults of the new version, which makes a new generation.
async fn rewrite(
    server: &Server,
    family: Family,
    storage: &str,
    object: PartialObjectMeta<DynamicObject>,
) -> Result<Option<Named>, MigrateError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &namespace, &resource(family, storage));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let named = format!("{namespace}/{name}");
    match server.call(api.patch_status(&name, &params, &Patch::Merge(json!({})))).await {
        Ok(_) | Err(CallError::Answered { code: 404, .. }) => Ok(None),
        // A word on this one object: the others may fare better.
        Err(cause @ CallError::Answered { .. }) => Ok(Some(Named { object: named, cause })),
        Err(cause) => Err(MigrateError::Object { crd: family.crd_name(), object: named, cause }),
    }
}

/// Tells the CRD that no object is stored in an older version any more, if it is still the CRD under which they were
/// stored anew.
async fn shrink(server: &Server, family: Family, seen: &Live) -> Result<(), MigrateError> {
    let crd = family.crd_name();
    let now = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    // Another generation may have stored objects otherwise in the meantime; what else changes (conditions) does not matter.
    let Some(now) =
        now.filter(|now| now.object.metadata.uid == seen.object.metadata.uid && now.generation() == seen.generation())
    else {
        return Err(MigrateError::Changed { crd });
    };
    let told = json!({
        "metadata": { "resourceVersion": now.resource_version() },
        "status": { "storedVersions": [seen.storage()] },
    });
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match server.call(live::api(server).patch_status(crd, &params, &Patch::Merge(told))).await {
        Ok(_) => Ok(()),
        Err(CallError::Answered { code: 409, .. }) => Err(MigrateError::Changed { crd }),
        Err(cause) => Err(MigrateError::Shrink { crd, storage: seen.storage().to_owned(), cause }),
    }
}
