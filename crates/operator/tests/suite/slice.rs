//! A whole pass over a LlamaStackDistribution on a real API server: the objects it makes, its silence once they are there,
//! and a crash at every one of its calls.

mod adopt;
mod configured;
mod crashes;
mod labels;
mod upgraded;

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use steersman::controllers::{Family as _, LlamaStack, Passed, Tools, pass};
use steersman::observe::cache::{Cache, Scope};
use steersman_api::Family;
use steersman_testkit::cut::{Calls, Cut, Cutter, crash_everywhere, crash_everywhere_and, stale_everywhere};
use steersman_testkit::{Cluster, Flavour, Namespace, alone, object, shared};
use tokio::sync::OnceCell;

use crate::schemas::{install, only, resource};
use crate::server::server;

const VERSION: &str = "v1alpha2";

fn family() -> LlamaStack {
    LlamaStack::shipped()
}

fn starter() -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha2",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "distribution": { "name": "starter" },
            "networking": { "port": 8321 },
            "workload": {
                "replicas": 1,
                "storage": { "size": "20Gi" },
                "overrides": { "env": [{ "name": "INFERENCE_MODEL", "value": "m" }] },
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

/// The user takes a variable away.
async fn without_env(client: &Client, namespace: &Namespace) -> Result<()> {
    let without = Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": null } } } }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &without).await?;
    Ok(())
}

/// A cluster of these tests alone, with the CRD installed: each test acts in a namespace of its own, so that none has to wait
/// for its turn.
async fn with_crd() -> Option<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let cluster = alone(&CLUSTER, async |cluster| {
        install(&cluster.admin().await?, &only(Family::Llsd, VERSION), &resource(Family::Llsd, VERSION)).await;
        Ok(())
    });
    let cluster = cluster.await?;
    Some((cluster, cluster.admin().await.unwrap()))
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

/// All that a pass looks at.
struct View {
    object: DynamicObject,
    cache: Arc<Cache>,
}

async fn view(cluster: &Cluster, client: &Client, namespace: &str) -> Result<View> {
    let object = objects(client, namespace).get("starter").await?;
    let cache = Arc::new(Cache::new(family().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await?;
    Ok(View { object, cache })
}

async fn pass_on(cluster: &Cluster, client: Client, view: &View) -> Result<Passed> {
    let tools = Tools { cache: view.cache.clone(), ..Tools::new(&family(), server(cluster, client), "test") };
    pass(&family(), &tools, &view.object).await.context("a pass")
}

/// As after a start: with new eyes.
async fn pass_once(cluster: &Cluster, client: Client, namespace: &str) -> Result<Passed> {
    let view = view(cluster, &client, namespace).await?;
    pass_on(cluster, client, &view).await
}

#[tokio::test]
async fn a_pass_makes_the_children_and_the_next_one_is_silent() {
    let Some((cluster, admin)) = with_crd().await else { return };
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
    without_env(&admin, &namespace).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert!(!pod.containers[0].env.iter().flatten().any(|var| var.name == "INFERENCE_MODEL"));
}

#[tokio::test]
async fn a_wrong_name_leaves_what_runs_and_says_so() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("wrong-name").await.unwrap();
    create(&admin, namespace.name()).await;
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();

    let wrong = Patch::Merge(json!({ "spec": { "distribution": { "name": "startr" } } }));
    objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "what runs is left alone");
    let own = objects(&admin, namespace.name()).get("starter").await.unwrap();
    let status = own.data["status"].to_string();
    assert!(status.contains("startr") && own.data["status"]["phase"] == "Failed", "{status}");
}

#[tokio::test]
async fn the_slice_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
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
}

/// Reads that fail end the pass before it has decided anything.
#[tokio::test]
async fn the_slice_survives_a_failed_read_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere_and(
        cluster,
        "reads",
        (Calls::All, &[Cut::NotSent, Cut::Status(500)]),
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |_: &Namespace| Ok(()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls > 20, "reads are cut too: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn the_slice_survives_a_watch_that_is_held_back() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = stale_everywhere(
        cluster,
        "stale",
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |namespace: &Namespace| without_env(&admin, namespace).await,
        async |namespace: &Namespace| view(cluster, &admin, namespace.name()).await,
        async |client, view: &View| pass_on(cluster, client, view).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.runs >= 5, "{crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

/// The harness finds what it is for: a pass that reports success before it has created anything, and believes its own
/// report the next time.
#[tokio::test]
async fn a_status_before_the_children_is_caught() {
    let Some((cluster, admin)) = with_crd().await else { return };
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
}

/// Another planted bug: what is replaced goes before its successor is there. In the end all is the same, but in between
/// a crash leaves the server without an address.
#[tokio::test]
async fn a_sweep_before_the_successor_is_caught() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let service = |name: &str| -> Service {
        object(json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }))
    };
    let swept = async |early: bool| {
        crash_everywhere_and(
            cluster,
            "sweep",
            (Calls::Writes, &[Cut::NotSent, Cut::AnswerLost]),
            async |namespace: &Namespace| {
                namespace.all::<Service>().create(&PostParams::default(), &service("old")).await?;
                Ok(())
            },
            async |client, namespace: &Namespace, ()| {
                let services: Api<Service> = Api::namespaced(client, namespace.name());
                let remove = async || match services.get_opt("old").await? {
                    Some(_) => services.delete("old", &DeleteParams::default()).await.map(|_| ()),
                    None => Ok(()),
                };
                if early {
                    remove().await?;
                }
                if services.get_opt("new").await?.is_none() {
                    services.create(&PostParams::default(), &service("new")).await?;
                }
                Ok(remove().await?)
            },
            async |namespace: &Namespace| {
                let there = namespace.all::<Service>().list(&ListParams::default()).await?;
                anyhow::ensure!(!there.items.is_empty(), "there is no Service");
                Ok(())
            },
            async |namespace: &Namespace| all::<Service>(&admin, namespace.name()).await,
        )
        .await
        .unwrap()
    };
    assert!(swept(false).await.broken.is_empty());
    let broken = swept(true).await.broken;
    assert!(!broken.is_empty() && broken.iter().all(|flaw| flaw.contains("there is no Service")), "{broken:#?}");
}
