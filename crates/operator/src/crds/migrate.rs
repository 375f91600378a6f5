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
use steersman_runtime::store::relist::{RELIST_INTERVAL, with_restarts};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::crds::MANAGER;
use crate::crds::live::{self, LiveCrd};
use crate::crds::objects::{Pages, resource};
use crate::polling::{backoff, sleep_until};

/// Delay of the first retry: the webhook may only just be starting.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Longest delay of a retry: an object that cannot be rewritten waits for a user to repair it.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// Objects rewritten at a time: each makes the API server call the conversion webhook.
const CONCURRENCY: usize = 8;

/// Objects that a message names. The cause is usually the same for all.
const MAX_EXAMPLES: usize = 10;

#[derive(Debug)]
pub enum Migration {
    /// No object can be stored in another version, or the storage version of the CRD is not ours.
    NotNeeded,
    /// Every object is stored in the storage version, and `status.storedVersions` is updated.
    Done { objects: usize, from: Vec<String> },
    /// Some objects and `status.storedVersions` are unchanged.
    Incomplete(Unmigrated),
}

/// Objects that could not be rewritten.
#[derive(Debug, Default)]
pub struct Unmigrated {
    pub count: usize,
    /// The first [`MAX_EXAMPLES`] of them.
    pub examples: Vec<UnmigratedObject>,
}

#[derive(Debug)]
pub struct UnmigratedObject {
    /// `namespace/name`.
    pub object: String,
    pub cause: CallError,
}

impl fmt::Display for Unmigrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, UnmigratedObject { object, cause }) in self.examples.iter().enumerate() {
            write!(f, "{}{object}: {cause}", if index == 0 { "" } else { "; " })?;
        }
        match self.count - self.examples.len() {
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
        "{crd} may have objects stored as {from}, but no conversion webhook (spec.conversion.strategy is None); a migration \
         would drop fields that the storage version does not have; attach the webhook with `steersman crds --apply`"
    )]
    NotConverted { crd: &'static str, from: String },
    #[error("{crd} stores {storage} but does not serve it; set served: true for it, or run `steersman crds --apply`")]
    NotServed { crd: &'static str, storage: String },
    #[error("cannot list the objects of {crd}: {cause}")]
    List { crd: &'static str, cause: CallError },
    #[error("no object of {crd} can be converted, for example {object}: {cause}")]
    NoneConverted { crd: &'static str, object: String, cause: CallError },
    #[error("cannot migrate {object} of {crd}: {cause}")]
    Object { crd: &'static str, object: String, cause: CallError },
    #[error("{crd} changed while its objects were migrated")]
    Changed { crd: &'static str },
    #[error(
        "all objects of {crd} are stored as {storage}, but status.storedVersions of the CRD cannot be updated: {cause}"
    )]
    Shrink { crd: &'static str, storage: String, cause: CallError },
}

/// The access to the objects of a family, which has none if they cannot be stored in another version.
pub fn rules(family: Family) -> Vec<Rule> {
    if !is_versioned(family) {
        return Vec::new();
    }
    let crd = |resource, verbs, why| Rule {
        group: "apiextensions.k8s.io",
        resource,
        names: vec![family.crd_name()],
        verbs,
        namespaced: false,
        why,
    };
    let object = |resource, verbs, why| Rule::namespaced(family.group(), resource, verbs, why);
    let detect = "detect that objects may be stored in an older version";
    let shrink = "remove older versions from status.storedVersions after the migration";
    vec![
        crd("customresourcedefinitions", &["get", "list", "watch"], detect),
        crd("customresourcedefinitions/status", &["patch"], shrink),
        object(family.plural(), &["list"], "find the objects that may be stored in an older version"),
        object(status(family), &["patch"], "rewrite objects that are stored in an older version"),
    ]
}

pub(super) fn status(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "dynamographdeploymentrequests/status",
        Family::Dgd => "dynamographdeployments/status",
        Family::Llsd => "llamastackdistributions/status",
        Family::Va => "variantautoscalings/status",
    }
}

/// Whether objects of the family can be stored in more than one version.
fn is_versioned(family: Family) -> bool {
    family.served_versions().len() > 1
}

/// Migrates the objects of the families whenever necessary, until `stop`.
pub async fn keep(server: Server, families: &[Family], stop: CancellationToken) {
    let versioned = crds::FAMILIES.into_iter().filter(|family| is_versioned(*family) && families.contains(family));
    let all = join_all(versioned.map(|family| keep_one(&server, family, RELIST_INTERVAL)));
    tokio::select! { () = stop.cancelled() => {}, _ = all => {} }
}

/// Migrates when the CRD changes or is listed again, and retries after a failure.
async fn keep_one(server: &Server, family: Family, interval: Duration) {
    // The watch is of metadata alone: the CRD is large, and is read only after a change.
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(server.client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={}", family.crd_name()));
    let changes = with_restarts(interval, move || watcher(api.clone(), named.clone()).default_backoff());
    let changes = changes.touched_objects();
    let changes = changes.inspect_err(|error| tracing::warn!(crd = family.crd_name(), %error, "cannot watch the CRD"));
    let mut changes = std::pin::pin!(changes);
    let mut failures: Option<u32> = None;
    loop {
        let delay = failures.map(|failures| backoff(MIN_RETRY_INTERVAL, failures - 1, MAX_RETRY_INTERVAL));
        let retry = delay.map(|delay| Instant::now() + delay);
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(_)) => failures = None,
                Some(Err(_)) => continue,
                None => return,
            },
            () = sleep_until(retry) => {}
        }
        let settled = attempt(server, family).await;
        failures = (!settled).then(|| failures.unwrap_or_default().saturating_add(1));
    }
}

/// Returns whether nothing is left to do.
async fn attempt(server: &Server, family: Family) -> bool {
    let crd = family.crd_name();
    match migrate(server, family).await {
        Ok(Migration::NotNeeded) => return true,
        Ok(Migration::Done { objects, from }) => {
            let (from, to) = (from.join(","), family.storage_version());
            tracing::info!(crd, objects, from, to, "migrated all objects to the storage version");
            return true;
        }
        Ok(Migration::Incomplete(left)) => {
            for UnmigratedObject { object, cause } in &left.examples {
                tracing::warn!(crd, object, %cause, "cannot migrate this object to the storage version; fix the cause, the migration is retried");
            }
            tracing::warn!(crd, objects = left.count, "some objects are still stored in an older version");
        }
        Err(error) => tracing::warn!(crd, %error, "cannot migrate objects to the storage version; retrying"),
    }
    false
}

/// Rewrites all objects of a family if some may be stored in an older version. Safe to run at any time and to interrupt at
/// any call; with nothing to do it reads the CRD alone.
pub async fn migrate(server: &Server, family: Family) -> Result<Migration, MigrateError> {
    let crd = family.crd_name();
    let live = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    match live {
        // A CRD with another storage version belongs to another operator, with another conversion.
        Some(live) if live.storage() == family.storage_version() && !live.outdated().is_empty() => {
            rewrite_all(server, family, &live).await
        }
        _ => Ok(Migration::NotNeeded),
    }
}

async fn rewrite_all(server: &Server, family: Family, before: &LiveCrd) -> Result<Migration, MigrateError> {
    let (crd, storage) = (family.crd_name(), before.storage());
    let from: Vec<String> = before.outdated().into_iter().map(str::to_owned).collect();
    if before.converter().is_none() {
        return Err(MigrateError::NotConverted { crd, from: from.join(" and ") });
    }
    if !before.served().contains(&storage) {
        return Err(MigrateError::NotServed { crd, storage: storage.to_owned() });
    }
    let mut readable = before.served();
    readable.sort_by_key(|version| *version != storage);
    let mut pages = Pages::new(server, family, readable);
    let (mut objects, mut left) = (0, Unmigrated::default());
    while let Some(page) = pages.next().await.map_err(|cause| MigrateError::List { crd, cause })? {
        if page.first {
            (objects, left) = (0, Unmigrated::default());
        }
        objects += page.objects.len();
        let first = page.first;
        let rewrites = page.objects.into_iter().map(|object| rewrite(server, family, storage, object));
        let mut rewrites = stream::iter(rewrites).buffer_unordered(CONCURRENCY);
        while let Some(rewritten) = rewrites.next().await {
            let Some(named) = rewritten? else { continue };
            left.count += 1;
            if left.examples.len() < MAX_EXAMPLES {
                left.examples.push(named);
            }
        }
        // If the whole first page fails, the converter is the cause, and the next page would fail as well.
        if first && left.count == objects && left.examples.iter().all(|named| is_servers_fault(&named.cause)) {
            let Some(UnmigratedObject { object, cause }) = left.examples.pop() else { continue };
            return Err(MigrateError::NoneConverted { crd, object, cause });
        }
    }
    if left.count > 0 {
        left.examples.sort_by(|one, other| one.object.cmp(&other.object));
        return Ok(Migration::Incomplete(left));
    }
    shrink(server, family, before).await?;
    Ok(Migration::Done { objects, from })
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
) -> Result<Option<UnmigratedObject>, MigrateError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &namespace, &resource(family, storage));
    let named = format!("{namespace}/{name}");
    match server.call(api.patch_status(&name, &PatchParams::apply(MANAGER), &Patch::Merge(json!({})))).await {
        Ok(_) | Err(CallError::Answered { code: 404, .. }) => Ok(None),
        // An answer concerns this object alone: others may succeed.
        Err(cause @ CallError::Answered { .. }) => Ok(Some(UnmigratedObject { object: named, cause })),
        Err(cause) => Err(MigrateError::Object { crd: family.crd_name(), object: named, cause }),
    }
}

/// Removes the older versions from `status.storedVersions`, unless the CRD was replaced or changed in the meantime.
async fn shrink(server: &Server, family: Family, before: &LiveCrd) -> Result<(), MigrateError> {
    let crd = family.crd_name();
    let now = live::read(server, family).await.map_err(|cause| MigrateError::Crd { crd, cause })?;
    // Under another generation objects may have been stored in another version. Conditions may change: they do not count.
    let Some(now) = now
        .filter(|now| now.object.metadata.uid == before.object.metadata.uid && now.generation() == before.generation())
    else {
        return Err(MigrateError::Changed { crd });
    };
    let patch = json!({
        "metadata": { "resourceVersion": now.resource_version() },
        "status": { "storedVersions": [before.storage()] },
    });
    match server.call(live::api(server).patch_status(crd, &PatchParams::apply(MANAGER), &Patch::Merge(patch))).await {
        Ok(_) => Ok(()),
        Err(CallError::Answered { code: 409, .. }) => Err(MigrateError::Changed { crd }),
        Err(cause) => Err(MigrateError::Shrink { crd, storage: before.storage().to_owned(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;

    use super::*;

    /// After etcd was restored, the CRD may again list an older version, and the watch does not report it.
    #[tokio::test]
    async fn silent_watch_does_not_end_migration() {
        let reads = Arc::new(AtomicUsize::new(0));
        let name = Family::Llsd.crd_name();
        let counted = reads.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let reads = counted.clone();
            async move {
                if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                    std::future::pending::<()>().await;
                }
                let crd = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": { "name": name, "uid": "u", "resourceVersion": "900" },
                    "spec": { "versions": [] }, "status": { "storedVersions": [] } });
                let answer = if request.uri().path().ends_with(name) {
                    reads.fetch_add(1, Ordering::SeqCst);
                    crd
                } else {
                    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                        "metadata": { "resourceVersion": "900" }, "items": [crd] })
                };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let server = Server::new(Client::new(service, "default"), String::new(), Duration::from_secs(5));
        let kept = keep_one(&server, Family::Llsd, Duration::from_millis(20));
        let _ = tokio::time::timeout(Duration::from_secs(2), kept).await;
        let reads = reads.load(Ordering::SeqCst);
        assert!(reads >= 2, "{reads} reads of the CRD");
    }
}
