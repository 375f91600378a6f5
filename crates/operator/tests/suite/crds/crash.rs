//! Fault injection at every call of the migration, of `--apply` and of `--detach`.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::crds::migrate::{Migration, migrate};
use steersman::crds::{TargetFlags, apply, detach};
use steersman_api::Family;
use steersman_testkit::fault_injection::{CallFault, SweepReport, crash_at_every_call};
use steersman_testkit::{Namespace, wait};

use super::env::CrdEnv;

const NAMES: [&str; 2] = ["a", "b"];

/// A crash before and after a call, and a refused call. A run takes seconds because the CRD changes several times, so the
/// other faults of `CallFault::ALL` are left out.
const FAULTS: [CallFault; 3] = [CallFault::NotSent, CallFault::ResponseLost, CallFault::Status(409)];

/// Stores two new objects in v1alpha1. The CRD of the run before is kept, because the API server needs seconds to delete it.
async fn store_old_objects(env: &CrdEnv, namespace: &Namespace) -> Result<()> {
    if env.crds().get_opt(Family::Dgdr.crd_name()).await?.is_some() {
        env.delete_objects(Family::Dgdr).await;
    }
    env.attach(&["dgdr"]).ok_without_stderr();
    let mut versions = env.crd(Family::Dgdr).await["spec"]["versions"].clone();
    for version in versions.as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v1alpha1");
    }
    let old_storage = Patch::Merge(json!({ "spec": { "versions": versions } }));
    env.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &old_storage).await?;
    wait_until_stored_as(env, namespace, "v1alpha1").await;
    for name in NAMES {
        env.create_request(namespace.name(), name, json!({})).await;
    }
    Ok(())
}

/// The API server takes a moment to notice a new storage version.
async fn wait_until_stored_as(env: &CrdEnv, namespace: &Namespace, version: &str) {
    let api = env.objects(Family::Dgdr, version, namespace.name());
    let stored = async || {
        env.create_request(namespace.name(), "probe", json!({})).await;
        env.converter.set_down(true);
        let readable = api.get("probe").await.is_ok();
        env.converter.set_down(false);
        api.delete("probe", &DeleteParams::default()).await.unwrap();
        readable.then_some(())
    };
    wait::eventually(&format!("objects are stored as {version}"), stored).await.unwrap();
}

async fn attach_with_old_objects(env: &CrdEnv, namespace: &Namespace) -> Result<()> {
    store_old_objects(env, namespace).await?;
    env.attach(&["dgdr"]).ok_without_stderr();
    wait_until_stored_as(env, namespace, "v1beta1").await;
    let finalizer = json!({ "metadata": { "finalizers": ["nvidia.com/finalizer"] } });
    let api = env.objects(Family::Dgdr, "v1alpha1", namespace.name());
    // This write stores "a" in the new storage version, so that only "b" is left to migrate.
    api.patch("a", &PatchParams::default(), &Patch::Merge(finalizer)).await?;
    Ok(())
}

/// A summary of the CRD, and the objects as stored.
async fn snapshot(env: &CrdEnv, namespace: &Namespace) -> Result<Vec<Value>> {
    let crd = env.crd(Family::Dgdr).await;
    let versions = crd["spec"]["versions"].as_array().unwrap().iter();
    let versions: Vec<_> =
        versions.map(|version| json!([version["name"], version["served"], version["storage"]])).collect();
    let crd = json!({ "kind": crd["kind"], "metadata": { "name": crd["metadata"]["name"] }, "versions": versions,
        "conversion": crd["spec"]["conversion"], "stored": crd["status"]["storedVersions"] });
    let mut objects = vec![crd];
    for object in env.read_without_conversion(Family::Dgdr, namespace.name(), &NAMES).await {
        objects.push(serde_json::to_value(object)?);
    }
    Ok(objects)
}

fn check(crashes: &SweepReport, calls: usize) {
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
    assert_eq!((crashes.calls, crashes.runs), (calls, calls * FAULTS.len()));
}

#[tokio::test]
async fn migration_recovers_from_a_fault_anywhere() {
    let Some(env) = CrdEnv::start().await else { return };
    let crashes = crash_at_every_call(
        env.cluster,
        "crash-migrate",
        &FAULTS,
        async |namespace: &Namespace| attach_with_old_objects(&env, namespace).await,
        async |client, _: &Namespace, ()| match migrate(&env.server(client), Family::Dgdr).await? {
            Migration::Incomplete(left) => anyhow::bail!("{left}"),
            _ => Ok(()),
        },
        async |namespace: &Namespace| snapshot(&env, namespace).await,
    );
    check(&crashes.await.unwrap(), NAMES.len() + 1);
    env.remove_crds().await;
}

#[tokio::test]
async fn detach_recovers_from_a_fault_anywhere() {
    let Some(env) = CrdEnv::start().await else { return };
    let crashes = crash_at_every_call(
        env.cluster,
        "crash-detach",
        &FAULTS,
        async |namespace: &Namespace| attach_with_old_objects(&env, namespace).await,
        async |client, _: &Namespace, ()| {
            detach(&env.server(client), &[Family::Dgdr], &TargetFlags::default(), &mut |_| {}).await?;
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&env, namespace).await,
    );
    check(&crashes.await.unwrap(), NAMES.len() + 1 + 1 + 1);
    env.remove_crds().await;
}

/// `--apply` switches the CRD from another converter to ours in two writes. The objects are migrated at the end, so that the
/// snapshots can be compared.
#[tokio::test]
async fn apply_recovers_from_a_fault_anywhere() {
    let Some(env) = CrdEnv::start().await else { return };
    let target = WebhookClientConfig { url: Some(env.converter.url.clone()), ..WebhookClientConfig::default() };
    let bundle = Some(ByteString(env.converter.authority.clone().into_bytes()));
    let given = TargetFlags { target: Some(target), bundle };
    let crashes = crash_at_every_call(
        env.cluster,
        "crash-apply",
        &FAULTS,
        async |namespace: &Namespace| {
            store_old_objects(&env, namespace).await?;
            // Remove the annotation of the run before.
            let done = json!({ "metadata": { "annotations": { "test/done": null } } });
            env.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &Patch::Merge(done)).await?;
            env.steersman(&["dgdr", "--apply", "--webhook-service", "steersman-webhook"]).ok_without_stderr();
            Ok(())
        },
        async |client, _: &Namespace, ()| {
            let crd = env.crd(Family::Dgdr).await;
            let url = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["url"];
            // The harness repeats until a run makes no call, but an apply always makes one. An annotation marks it as done.
            if *url == env.converter.url.as_str() && crd["metadata"]["annotations"]["test/done"] == "yes" {
                return Ok(());
            }
            apply(&env.server(client), &[Family::Dgdr], &given, Duration::ZERO, &mut |_| {}).await?;
            let done = json!({ "metadata": { "annotations": { "test/done": "yes" } } });
            env.crds().patch(Family::Dgdr.crd_name(), &PatchParams::default(), &Patch::Merge(done)).await?;
            Ok(())
        },
        async |namespace: &Namespace| {
            migrate(&env.server(env.admin.clone()), Family::Dgdr).await?;
            snapshot(&env, namespace).await
        },
    );
    check(&crashes.await.unwrap(), 2);
    env.remove_crds().await;
}
