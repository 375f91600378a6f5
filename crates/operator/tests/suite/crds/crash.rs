//! A crash at every call of the migration, of `--apply` and of `--detach`.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::crds::migrate::{Migrated, migrate};
use steersman::crds::{Given, apply, detach};
use steersman_api::Family;
use steersman_testkit::cut::{Crashes, Cut, crash_everywhere};
use steersman_testkit::{Namespace, wait};

use super::place::Place;

const NAMES: [&str; 2] = ["a", "b"];

/// Death before and after a call, and a call that was refused. A run takes seconds because the CRD changes several times,
/// so the other failures of `Cut::ALL` are left out.
const CUTS: [Cut; 3] = [Cut::NotSent, Cut::AnswerLost, Cut::Status(409)];

/// Two objects stored in the old version, fresh for every run. The CRD stays: to delete it takes the API server seconds.
async fn old(place: &Place, namespace: &Namespace) -> Result<()> {
    if place.crds().get_opt(Family::Dgdr.crd_name()).await?.is_some() {
        place.release(Family::Dgdr).await;
    }
    place.attach(&["dgdr"]).ok_without_stderr();
    let mut versions = place.crd(Family::Dgdr).await["spec"]["versions"].clone();
    for version in versions.as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v1alpha1");
    }
    let stored_otherwise = Patch::Merge(json!({ "spec": { "versions": versions } }));
    place.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &stored_otherwise).await?;
    until_stored_as(place, namespace, "v1alpha1").await;
    for name in NAMES {
        place.create_request(namespace.name(), name, json!({})).await;
    }
    Ok(())
}

/// The API server takes a moment to notice in which version it has to store.
async fn until_stored_as(place: &Place, namespace: &Namespace, version: &str) {
    let api = place.objects(Family::Dgdr, version, namespace.name());
    let stored = async || {
        place.create_request(namespace.name(), "probe", json!({})).await;
        place.converter.set_down(true);
        let readable = api.get("probe").await.is_ok();
        place.converter.set_down(false);
        api.delete("probe", &DeleteParams::default()).await.unwrap();
        readable.then_some(())
    };
    wait::eventually(&format!("objects are stored as {version}"), stored).await.unwrap();
}

async fn attached(place: &Place, namespace: &Namespace) -> Result<()> {
    old(place, namespace).await?;
    place.attach(&["dgdr"]).ok_without_stderr();
    until_stored_as(place, namespace, "v1beta1").await;
    let marked = json!({ "metadata": { "finalizers": ["nvidia.com/finalizer"] } });
    let api = place.objects(Family::Dgdr, "v1alpha1", namespace.name());
    // Written in the old version, hence stored anew already: the other one is not.
    api.patch("a", &PatchParams::default(), &Patch::Merge(marked)).await?;
    Ok(())
}

/// The CRD in short, and the objects as they are stored.
async fn snapshot(place: &Place, namespace: &Namespace) -> Result<Vec<Value>> {
    let crd = place.crd(Family::Dgdr).await;
    let versions = crd["spec"]["versions"].as_array().unwrap().iter();
    let versions: Vec<_> =
        versions.map(|version| json!([version["name"], version["served"], version["storage"]])).collect();
    let crd = json!({ "kind": crd["kind"], "metadata": { "name": crd["metadata"]["name"] }, "versions": versions,
        "conversion": crd["spec"]["conversion"], "stored": crd["status"]["storedVersions"] });
    let mut left = vec![crd];
    for object in place.without_conversion(Family::Dgdr, namespace.name(), &NAMES).await {
        left.push(serde_json::to_value(object)?);
    }
    Ok(left)
}

fn check(crashes: &Crashes, calls: usize) {
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    assert_eq!((crashes.calls, crashes.runs), (calls, calls * CUTS.len()));
}

#[tokio::test]
async fn the_migration_survives_a_crash_at_every_call() {
    let Some(place) = Place::take().await else { return };
    let crashes = crash_everywhere(
        place.cluster,
        "crash-migrate",
        &CUTS,
        async |namespace: &Namespace| attached(&place, namespace).await,
        async |client, _: &Namespace, ()| match migrate(&place.server(client), Family::Dgdr).await? {
            Migrated::Left(left) => anyhow::bail!("{left}"),
            _ => Ok(()),
        },
        async |namespace: &Namespace| snapshot(&place, namespace).await,
    );
    check(&crashes.await.unwrap(), NAMES.len() + 1);
    place.clear().await;
}

#[tokio::test]
async fn detaching_survives_a_crash_at_every_call() {
    let Some(place) = Place::take().await else { return };
    let crashes = crash_everywhere(
        place.cluster,
        "crash-detach",
        &CUTS,
        async |namespace: &Namespace| attached(&place, namespace).await,
        async |client, _: &Namespace, ()| {
            detach(&place.server(client), &[Family::Dgdr], &Given::default(), &mut |_| {}).await?;
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&place, namespace).await,
    );
    check(&crashes.await.unwrap(), NAMES.len() + 1 + 1 + 1);
    place.clear().await;
}

/// From another converter to ours, which takes two writes, with the objects stored anew at the end to be looked at.
#[tokio::test]
async fn applying_survives_a_crash_at_every_call() {
    let Some(place) = Place::take().await else { return };
    let target = WebhookClientConfig { url: Some(place.converter.url.clone()), ..WebhookClientConfig::default() };
    let bundle = Some(ByteString(place.converter.authority.clone().into_bytes()));
    let given = Given { target: Some(target), bundle };
    let crashes = crash_everywhere(
        place.cluster,
        "crash-apply",
        &CUTS,
        async |namespace: &Namespace| {
            old(&place, namespace).await?;
            // The mark of the run before goes with it.
            let done = json!({ "metadata": { "annotations": { "test/done": null } } });
            place.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &Patch::Merge(done)).await?;
            place.steersman(&["dgdr", "--apply", "--webhook-service", "steersman-webhook"]).ok_without_stderr();
            Ok(())
        },
        async |client, _: &Namespace, ()| {
            let crd = place.crd(Family::Dgdr).await;
            let url = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["url"];
            // The harness waits for a pass without a call; an apply always makes one, so what it left tells.
            if *url == place.converter.url.as_str() && crd["metadata"]["annotations"]["test/done"] == "yes" {
                return Ok(());
            }
            apply(&place.server(client), &[Family::Dgdr], &given, Duration::ZERO, &mut |_| {}).await?;
            let done = json!({ "metadata": { "annotations": { "test/done": "yes" } } });
            place.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &Patch::Merge(done)).await?;
            Ok(())
        },
        async |namespace: &Namespace| {
            migrate(&place.server(place.admin.clone()), Family::Dgdr).await?;
            snapshot(&place, namespace).await
        },
    );
    check(&crashes.await.unwrap(), 2);
    place.clear().await;
}
