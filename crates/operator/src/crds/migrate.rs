//! Rewrites objects of older versions in the storage version, then removes the older ones from `status.storedVersions`.

use std::fmt;
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use steersman_api::{Family, crds};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::crds::MANAGER;
use crate::crds::live::{self, Live};
use crate::crds::objects::{Pages, resource};
use crate::polling::sleep_until;

/// Pause before the first retry: the webhook may only just be starting.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// Longest pause: an object that cannot be rewritten waits for a user to repair it.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Objects rewritten at a time: each makes the API server call the conversion webhook.
const AT_ONCE: usize = 8;

/// Objects that a message names. The cause is usually the same for all.
const MOST_NAMED: usize = 10;

#[derive(Debug)]
pub enum Migrated {
    /// No object can be stored in another version, or the storage version of the CRD is not ours.
    Settled,
    /// Every object is stored in the storage version, and `status.storedVersions` is updated.
    Done { objects: usize, from: Vec<String> },
    /// Some objects and `status.storedVersions` are unchanged.
    Left(Left),
}

/// Objects that could not be rewritten.
#[derive(Debug, Default)]
pub struct Left {
    pub count: usize,
    /// The first [`MOST_NAMED`] of them.
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

pub fn rules() -> Vec<Rule> {
    let names: Vec<&'static str> = versioned().map(Family::crd_name).collect();
    let crd = |resource, names, verbs, why| Rule {
        group: "apiextensions.k8s.io",
        resource,
        names,
        verbs,
        namespaced: false,
        why,
    };
    let why = "store objects of an older version anew, unchanged";
    let patched = versioned().map(|family| Rule::namespaced(family.group(), status(family), &["patch"], why));
    let why = "find the objects that may be stored in an older version";
    let listed = versioned().map(|family| Rule::namespaced(family.group(), family.plural(), &["list"], why));
    let why = "notice that objects may be stored in an older version";
    let watched = crd("customresourcedefinitions", names.clone(), &["get", "list", "watch"][..], why);
    let why = "say that no object is any more";
    let updated = crd("customresourcedefinitions/status", names, &["patch"][..], why);
    [watched, updated].into_iter().chain(listed).chain(patched).collect()
}

fn status(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "dynamographdeploymentrequests/status",
        Family::Dgd => "dynamographdeployments/status",
        Family::Llsd => "llamastackdistributions/status",
        Family::Va => "variantautoscalings/status",
    }
}

/// Families whose objects can be stored in more than one version.
fn versioned() -> impl Iterator<Item = Family> {
    crds::FAMILIES.into_iter().filter(|family| family.served_versions().len() > 1)
}

/// Migrates the objects of all families whenever necessary, until `stop`.
pub async fn keep(server: Server, stop: CancellationToken) {
    let all = join_all(versioned().map(|family| keep_one(&server, family)));
    tokio::select! { () = stop.cancelled() => {}, _ = all => {} }
}

/// Migrates when the CRD changes, and retries after a failure.
async fn keep_one(server: &Server, family: Family) {
    // The watch is of metadata alone: the CRD is large, and is read only after a change.
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(server.client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={}", family.crd_name()));
    let changes = watcher(api, named).default_backoff().touched_objects();
    let changes = changes.inspect_err(|error| tracing::warn!(crd = family.crd_name(), %error, "cannot watch the CRD"));
    let mut changes = std::pin::pin!(changes);
    let mut again: Option<Duration> = None;
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(_)) => again = None,
                Some(Err(_)) => continue,
                None => return,
            },
            () = sleep_until(again.map(|pause| Instant::now() + pause)) => {}
        }
        let settled = attempt(server, family).await;
        again = (!settled).then(|| again.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE)));
    }
}

/// Returns whether nothing is left to do.
async fn attempt(server: &Server, family: Family) -> bool {
    let crd = family.crd_name();
    match migrate(server, family).await {
        Ok(Migrated::Settled) => return true,
        Ok(Migrated::Done { objects, from }) => {
            let (from, to) = (from.join(","), family.storage_version());
            tracing::info!(crd, objects, from, to, "stored all objects anew");
            return true;
        }
        Ok(Migrated::Left(left)) => {
            for named in &left.named {
                let (object, cause) = (&named.object, &named.cause);
                tracing::warn!(crd, object, %cause, "cannot store this object anew; it is tried again, so mend the cause");
            }
            tracing::warn!(crd, objects = left.count, "some objects stay stored in an older version");
        }
        Err(error) => tracing::warn!(crd, %error, "objects of an older version are not stored anew yet"),
    }
    false
}

/// Rewrites all objects of a family if some may be stored in an older version. Safe to run at any time and to interrupt at
/// any call; with nothing to do it reads the CRD alone.
pub async fn migrate(server: &Server, family: Family) -> Result<Migrated, MigrateError> {
    let crd = family.crd_name();
    let seen = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    match seen {
        // A CRD with another storage version belongs to another operator, with another conversion.
        Some(seen) if seen.storage() == family.storage_version() && !seen.outdated().is_empty() => {
            rewrite_all(server, family, &seen).await
        }
        _ => Ok(Migrated::Settled),
    }
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
        // If the whole first page fails, the converter is the cause, and the next page would fail as well.
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

/// Sends an empty patch: the API server reads the object, finds that it would be stored differently, and stores it. The patch
/// cannot undo a concurrent write. It goes to the status, where the spec stays as converted: a patch of the object itself
/// would set the defaults of the new version, which makes a new generation.
async fn rewrite(
    server: &Server,
    family: Family,
    storage: &str,
    object: PartialObjectMeta<DynamicObject>,
) -> Result<Option<Named>, MigrateError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &namespace, &resource(family, storage));
    let named = format!("{namespace}/{name}");
    match server.call(api.patch_status(&name, &PatchParams::apply(MANAGER), &Patch::Merge(json!({})))).await {
        Ok(_) | Err(CallError::Answered { code: 404, .. }) => Ok(None),
        // An answer concerns this object alone: others may succeed.
        Err(cause @ CallError::Answered { .. }) => Ok(Some(Named { object: named, cause })),
        Err(cause) => Err(MigrateError::Object { crd: family.crd_name(), object: named, cause }),
    }
}

/// Removes the older versions from `status.storedVersions`, unless the CRD was replaced or changed in the meantime.
async fn shrink(server: &Server, family: Family, seen: &Live) -> Result<(), MigrateError> {
    let crd = family.crd_name();
    let now = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    // Under another generation objects may have been stored in another version. Conditions may change: they do not count.
    let Some(now) =
        now.filter(|now| now.object.metadata.uid == seen.object.metadata.uid && now.generation() == seen.generation())
    else {
        return Err(MigrateError::Changed { crd });
    };
    let patch = json!({
        "metadata": { "resourceVersion": now.resource_version() },
        "status": { "storedVersions": [seen.storage()] },
    });
    match server.call(live::api(server).patch_status(crd, &PatchParams::apply(MANAGER), &Patch::Merge(patch))).await {
        Ok(_) => Ok(()),
        Err(CallError::Answered { code: 409, .. }) => Err(MigrateError::Changed { crd }),
        Err(cause) => Err(MigrateError::Shrink { crd, storage: seen.storage().to_owned(), cause }),
    }
}
