//! A request that is deleted, wherever it stands: its Job and output go with it, its graph stays and serves.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use steersman_plan::dynamo::names;
use steersman_testkit::wait;

use crate::scene::{GRAPH, JOB, OUTPUT, PLANNER, REQUEST, Scene, spec};

/// What is gone in any case.
async fn leaves(scene: &Scene) {
    scene.delete().await;
    let gone = async || scene.requests().get_opt(REQUEST).await.ok()?.is_none().then_some(());
    wait::eventually("the request is gone", gone).await.unwrap();
    wait::until_gone(scene.all::<Job>(), JOB).await.unwrap();
    wait::until_gone(scene.all::<ConfigMap>(), OUTPUT).await.unwrap();
    let none = async || scene.all::<Pod>().list(&ListParams::default()).await.ok()?.items.is_empty().then_some(());
    wait::eventually("its pods are gone", none).await.unwrap();
}

/// What all requests of a namespace share.
async fn assert_account_stays(scene: &Scene) {
    assert!(scene.namespace.get::<ServiceAccount>(names::SERVICE_ACCOUNT).await.unwrap().is_some());
    assert!(scene.namespace.get::<RoleBinding>(names::ROLE_BINDING).await.unwrap().is_some());
}

async fn maps(scene: &Scene) -> Vec<String> {
    let listed = scene.all::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    listed.items.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn a_pending_request_leaves_nothing() {
    let Some(scene) = Scene::open("leaves-pending").await else { return };
    scene.ask(spec(json!({ "modelCache": { "pvcName": "models", "pvcModelPath": "qwen" } }))).await;
    scene.until_said("models not found").await;
    leaves(&scene).await;
    assert_eq!(maps(&scene).await, [""; 0]);
}

#[tokio::test]
async fn a_request_that_is_profiled_leaves_its_account_alone() {
    let Some(scene) = Scene::open("leaves-profiling").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.profiler().await.is_heard("SweepingPrefill", "On its way").await;
    leaves(&scene).await;
    assert_eq!(maps(&scene).await, [""; 0]);
    assert_account_stays(&scene).await;
}

/// Whoever creates the graph by hand needs what it mounts.
#[tokio::test]
async fn a_ready_request_leaves_what_its_graph_would_need() {
    let Some(scene) = Scene::open("leaves-ready").await else { return };
    scene.ask(spec(json!({ "autoApply": false }))).await;
    scene.profiled().await;
    scene.until_phase("Ready").await;
    leaves(&scene).await;
    assert_eq!(maps(&scene).await, [PLANNER]);
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none());
}

async fn leaves_its_graph(scene: &Scene) {
    let graph = scene.graph().await;
    let owned = wait::eventually("the planner's configuration goes with the graph", async || {
        let map = scene.namespace.get::<ConfigMap>(PLANNER).await.ok()??;
        (map["metadata"]["ownerReferences"][0]["uid"] == json!(graph.uid())).then_some(())
    });
    owned.await.unwrap();
    leaves(scene).await;
    assert_eq!(scene.graphs().get(GRAPH).await.unwrap().uid(), graph.uid(), "it outlives its request");
    assert_eq!(maps(scene).await, [PLANNER]);
    assert_account_stays(scene).await;
    scene.graphs().delete(GRAPH, &Default::default()).await.unwrap();
    wait::until_gone(scene.all::<ConfigMap>(), PLANNER).await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_deployed_leaves_its_graph() {
    let Some(scene) = Scene::open("leaves-deploying").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.profiled().await;
    scene.until_phase("Deploying").await;
    leaves_its_graph(&scene).await;
}

#[tokio::test]
async fn a_request_whose_graph_serves_leaves_it_to_serve() {
    let Some(scene) = Scene::open("leaves-deployed").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.deployed().await;
    leaves_its_graph(&scene).await;
}

#[tokio::test]
async fn a_failed_request_leaves_nothing_and_its_name_can_be_used_again() {
    let Some(scene) = Scene::open("leaves-failed").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "On its way").await;
    profiler.fails("SweepingPrefill", "no candidate fits").await;
    scene.until_phase("Failed").await;
    leaves(&scene).await;
    assert_eq!(maps(&scene).await, [""; 0]);
    scene.ask(spec(json!({}))).await;
    scene.profiled().await;
    scene.until_phase("Deploying").await;
    scene.graph().await;
}

/// Nothing else happens meanwhile: whoever brings them back has heard that they are gone.
#[tokio::test]
async fn the_account_of_running_jobs_and_its_binding_come_back_at_once() {
    let Some(scene) = Scene::open("account").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.profiler().await.is_heard("SweepingPrefill", "On its way").await;
    let job = scene.job().await.uid();
    comes_back(scene.all::<ServiceAccount>(), names::SERVICE_ACCOUNT).await;
    comes_back(scene.all::<RoleBinding>(), names::ROLE_BINDING).await;
    assert_eq!(scene.job().await.uid(), job, "profiling goes on");
    scene.until_phase("Profiling").await;
}

async fn comes_back<K>(objects: Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let before = objects.get(name).await.unwrap().meta().uid.clone();
    objects.delete(name, &DeleteParams::default()).await.unwrap();
    let again = async || {
        let found = objects.get_opt(name).await.ok()??;
        (found.meta().uid != before).then_some(())
    };
    wait::eventually(&format!("{name} is there again"), again).await.unwrap();
}
