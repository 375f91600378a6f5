//! The leader's part: no object stays stored in an old version.
//! Comes in: changes of our CRDs; goes out: migrations where they are due, and a line in the log about each.

use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use steersman_api::{Family, crds};
use steersman_runtime::client::Server;
use steersman_runtime::rbac::Rule;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::crds::migrate::{Migrated, migrate};

/// The webhook may only just be starting.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// An object that cannot be stored anew waits for a person to mend it.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What the migration needs.
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
    let objects = versioned().map(|family| {
        Rule::namespaced(
            family.group(),
            status(family),
            &["patch"],
            "store objects of an older version anew, unchanged",
        )
    });
    let listed = versioned().map(|family| {
        Rule::namespaced(
            family.group(),
            family.plural(),
            &["list"],
            "find the objects that may be stored in an older version",
        )
    });
    let seen = crd(
        "customresourcedefinitions",
        names.clone(),
        &["get", "list", "watch"][..],
        "notice that objects may be stored in an older version",
    );
    let told = crd("customresourcedefinitions/status", names, &["patch"][..], "say that no object is any more");
    [seen, told].into_iter().chain(listed).chain(objects).collect()
}

fn status(family: Family) -> &'static str {
    match family {
        Family::Dgdr => "dynamographdeploymentrequests/status",
        Family::Dgd => "dynamographdeployments/status",
        Family::Llsd => "llamastackdistributions/status",
        Family::Va => "variantautoscalings/status",
    }
}

/// The families whose objects can be stored in more than one version.
fn versioned() -> impl Iterator<Item = Family> {
    crds::FAMILIES.into_iter().filter(|family| family.served_versions().len() > 1)
}

/// Runs until `stop`.
pub async fn keep(server: Server, stop: CancellationToken) {
    let all = join_all(versioned().map(|family| keep_one(&server, family)));
    tokio::select! { () = stop.cancelled() => {}, _ = all => {} }
}

/// Migrates when the CRD changes, and again after a while where that did not succeed.
async fn keep_one(server: &Server, family: Family) {
    // The metadata says that something changed; the CRD itself is large and read only then.
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(server.client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={}", family.crd_name()));
    let changes = watcher(api, named).default_backoff().touched_objects();
    let changes = changes.inspect_err(|error| tracing::warn!(crd = family.crd_name(), %error, "cannot watch the CRD"));
    let mut changes = std::pin::pin!(changes);
    let mut again: Option<Duration> = None;
    loop {
        let due = async {
            match again {
                Some(pause) => time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(_)) => again = None,
                Some(Err(_)) => continue,
                None => return,
            },
            () = due => {}
        }
        let settled = attempt(server, family).await;
        again = (!settled).then(|| again.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE)));
    }
}

/// Whether nothing is left to do.
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
