//! A whole pass over a LlamaStackDistribution on a real API server: the objects it makes, its silence once they are there,
//! and a crash at every one of its calls.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use steersman::client::Server;
use steersman::controllers::{LlamaStack, Passed, pass};
use steersman_api::Family;
use steersman_plan::llamastack::Settings;
use steersman_testkit::cut::{Cut, Cutter, crash_everywhere};
use steersman_testkit::{Cluster, Flavour, Namespace, object, shared};
use tokio::sync::MutexGuard;

use crate::schemas::{CRDS, install, only, resource, uninstall};

const VERSION: &str = "v1alpha1";

fn family() -> LlamaStack {
    let distributions =
        BTreeMap::from([("starter".to_owned(), "docker.io/llamastack/distribution-starter:0.7.1".to_owned())]);
    LlamaStack { settings: Settings { operator_version: "0.1.0".to_owned(), distributions } }
}

fn server(cluster: &Cluster, client: Client) -> Server {
    Server::new(client, cluster.description().api_url.clone(), Duration::from_secs(1))
}

fn starter() -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha1",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "replicas": 1,
            "server": {
                "distribution": { "name": "starter" },
                "containerSpec": { "port": 8321, "env": [{ "name": "INFERENCE_MODEL", "value": "m" }] },
                "storage": { "size": "20Gi" },
            },
        },
    })
}

fn objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(Family::Llsd, VERSION))
}

async fn create(client: &Client, namespace: &str) {
    let wish: DynamicObject = object(starter());
    objects(client, namespace).create(&PostParams::default(), &wish).await.unwrap();
}

/// What is there before a run of the crash harness.
async fn prepare(client: &Client, namespace: &Namespace) -> Result<()> {
    create(client, namespace.name()).await;
    Ok(())
}

/// The cluster with the CRD installed, for the one test whose turn it is.
async fn with_crd() -> Option<(&'static Cluster, Client, MutexGuard<'static, ()>)> {
    let cluster = shared(Flavour::Bare).await?;
    let turn = CRDS.lock().await;
    let admin = cluster.admin().await.unwrap();
    install(&admin, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
    Some((cluster, admin, turn))
}

async fn all<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Result<Vec<Value>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()));
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.iter().map(serde_json::to_value).collect::<serde_json::Result<_>>()?)
}

/// Everything that a pass may have touched.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let name = namespace.name();
    let mut left = all::<Deployment>(client, name).await?;
    left.extend(all::<Service>(client, name).await?);
    left.extend(all::<PersistentVolumeClaim>(client, name).await?);
    left.extend(all::<ServiceAccount>(client, name).await?);
    let own = objects(client, name).list(&ListParams::default()).await?;
    left.extend(own.items.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<_>>>()?);
    Ok(left)
}

async fn pass_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<Passed> {
    pass(&family(), &server(cluster, client), namespace, "starter").await.context("a pass")
}

#[tokio::test]
async fn a_pass_makes_the_children_and_the_next_one_is_silent() {
    let Some((cluster, admin, _turn)) = with_crd().await else { return };
    let namespace = cluster.namespace("slice").await.unwrap();
    create(&admin, namespace.name()).await;

    let passed = pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(passed, Passed::Done { written: 5, .. }), "four children and the status: {passed:?}");
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("Recreate"), "the volume can be mounted once");
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.containers[0].image.as_deref(), Some("docker.io/llamastack/distribution-starter:0.7.1"));
    assert_eq!(pod.service_account_name.as_deref(), Some("starter-sa"));
    let env = pod.containers[0].env.as_ref().unwrap();
    assert!(env.iter().any(|var| var.name == "INFERENCE_MODEL"), "{env:?}");
    let claim = namespace.all::<PersistentVolumeClaim>().get("starter-pvc").await.unwrap();
    let requests = claim.spec.unwrap().resources.unwrap().requests.unwrap();
    assert_eq!(requests["storage"].0, "20Gi");
    let service = namespace.all::<Service>().get("starter-service").await.unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 8321);
    let phase =
        async || objects(&admin, namespace.name()).get("starter").await.unwrap().data["status"]["phase"].clone();
    assert_eq!(phase().await, "Pending", "when it was observed, there was no Deployment yet");
    // In real life the Deployment's own event brings the next pass, which only has to tell of it.
    let passed = pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(passed, Passed::Done { written: 1, .. }), "{passed:?}");
    assert_eq!(phase().await, "Initializing");

    let counter = Cutter::counting();
    for _ in 0..2 {
        let passed = pass_once(cluster, counter.around(&admin), namespace.name()).await.unwrap();
        assert!(matches!(passed, Passed::Done { written: 0, .. }), "{passed:?}");
    }
    assert_eq!(counter.calls(), 0, "settled means silent");

    // A variable that the user takes away goes from the Deployment too.
    let without = Patch::Merge(json!({ "spec": { "server": { "containerSpec": { "env": null } } } }));
    objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &without).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert!(!pod.containers[0].env.iter().flatten().any(|var| var.name == "INFERENCE_MODEL"));
    uninstall(&admin, Family::Llsd).await;
}

#[tokio::test]
async fn a_wrong_name_leaves_what_runs_and_says_so() {
    let Some((cluster, admin, _turn)) = with_crd().await else { return };
    let namespace = cluster.namespace("wrong-name").await.unwrap();
    create(&admin, namespace.name()).await;
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();

    let wrong = Patch::Merge(json!({ "spec": { "server": { "distribution": { "name": "startr" } } } }));
    objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "what runs is left alone");
    let own = objects(&admin, namespace.name()).get("starter").await.unwrap();
    let status = own.data["status"].to_string();
    assert!(status.contains("startr") && own.data["status"]["phase"] == "Failed", "{status}");
    uninstall(&admin, Family::Llsd).await;
}

#[tokio::test]
async fn the_slice_survives_a_crash_at_every_call() {
    let Some((cluster, admin, _turn)) = with_crd().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "crash",
        &Cut::ALL,
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert_eq!(crashes.calls, 6, "four children, and the status before and after they are seen");
    assert_eq!(crashes.runs, crashes.calls * Cut::ALL.len());
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    uninstall(&admin, Family::Llsd).await;
}

/// The harness finds what it is for: a pass that reports success before it has created anything, and believes its own
/// report the next time.
#[tokio::test]
async fn a_status_before_the_children_is_caught() {
    let Some((cluster, admin, _turn)) = with_crd().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "planted",
        &[Cut::NotSent],
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| {
            let own = objects(&client, namespace.name());
            if own.get("starter").await?.data["status"]["phase"] == "Ready" {
                return Ok(());
            }
            let ready = Patch::Merge(json!({ "status": { "phase": "Ready" } }));
            own.patch_status("starter", &PatchParams::default(), &ready).await?;
            let account: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa" } }));
            let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace.name());
            accounts.create(&PostParams::default(), &account).await?;
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert_eq!(crashes.broken.len(), 1, "{:#?}", crashes.broken);
    assert!(crashes.broken[0].starts_with("NotSent at call 2 of 2"), "{:#?}", crashes.broken);
    uninstall(&admin, Family::Llsd).await;
}
