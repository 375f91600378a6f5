//! Deletion of a request in each phase: its Job and output are deleted, its graph is kept.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use steersman_plan::dynamo::names;
use steersman_testkit::wait;

use crate::test_namespace::{GRAPH, JOB, OUTPUT, PLANNER_CONFIG, REQUEST, TestNamespace, spec};

/// Deletes the request, and waits until it, its Job, its output and its pods are gone.
async fn delete_and_check_cleanup(ns: &TestNamespace) {
    ns.delete_request().await;
    let gone = async || ns.requests().get_opt(REQUEST).await.ok()?.is_none().then_some(());
    wait::eventually("the request is deleted", gone).await.unwrap();
    wait::until_gone(ns.api::<Job>(), JOB).await.unwrap();
    wait::until_gone(ns.api::<ConfigMap>(), OUTPUT).await.unwrap();
    let none = async || ns.api::<Pod>().list(&ListParams::default()).await.ok()?.items.is_empty().then_some(());
    wait::eventually("its pods are deleted", none).await.unwrap();
}

/// The ServiceAccount and its RoleBinding are deleted with the last request of a namespace.
async fn wait_for_account_cleanup(ns: &TestNamespace) {
    wait::until_gone(ns.api::<ServiceAccount>(), names::SERVICE_ACCOUNT).await.unwrap();
    wait::until_gone(ns.api::<RoleBinding>(), names::ROLE_BINDING).await.unwrap();
}

async fn config_map_names(ns: &TestNamespace) -> Vec<String> {
    let listed = ns.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    listed.items.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn deleted_pending_request_leaves_nothing() {
    let Some(ns) = TestNamespace::open("leaves-pending").await else { return };
    ns.apply_request(spec(json!({ "modelCache": { "pvcName": "models", "pvcModelPath": "qwen" } }))).await;
    ns.wait_for_message("models not found").await;
    delete_and_check_cleanup(&ns).await;
    assert_eq!(config_map_names(&ns).await, [""; 0]);
}

#[tokio::test]
async fn deleted_profiling_request_removes_service_account() {
    let Some(ns) = TestNamespace::open("leaves-profiling").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.profiler().await.report_and_wait("SweepingPrefill", "On its way").await;
    delete_and_check_cleanup(&ns).await;
    assert_eq!(config_map_names(&ns).await, [""; 0]);
    wait_for_account_cleanup(&ns).await;
}

/// A user who creates the graph manually needs the ConfigMap that it mounts.
#[tokio::test]
async fn deleted_ready_request_keeps_planner_config() {
    let Some(ns) = TestNamespace::open("leaves-ready").await else { return };
    ns.apply_request(spec(json!({ "autoApply": false }))).await;
    ns.complete_profiling().await;
    ns.wait_for_phase("Ready").await;
    delete_and_check_cleanup(&ns).await;
    assert_eq!(config_map_names(&ns).await, [PLANNER_CONFIG]);
    assert!(ns.graphs().get_opt(GRAPH).await.unwrap().is_none());
}

async fn delete_and_check_graph_kept(ns: &TestNamespace) {
    let graph = ns.graph().await;
    let owned = wait::eventually("the planner's ConfigMap is owned by the graph", async || {
        let map = ns.namespace.get::<ConfigMap>(PLANNER_CONFIG).await.ok()??;
        (map["metadata"]["ownerReferences"][0]["uid"] == json!(graph.uid())).then_some(())
    });
    owned.await.unwrap();
    delete_and_check_cleanup(ns).await;
    assert_eq!(ns.graphs().get(GRAPH).await.unwrap().uid(), graph.uid(), "the graph outlives its request");
    assert_eq!(config_map_names(ns).await, [PLANNER_CONFIG]);
    wait_for_account_cleanup(ns).await;
    ns.graphs().delete(GRAPH, &Default::default()).await.unwrap();
    wait::until_gone(ns.api::<ConfigMap>(), PLANNER_CONFIG).await.unwrap();
}

#[tokio::test]
async fn deleted_deploying_request_keeps_graph() {
    let Some(ns) = TestNamespace::open("leaves-deploying").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
    delete_and_check_graph_kept(&ns).await;
}

#[tokio::test]
async fn deleted_deployed_request_keeps_graph() {
    let Some(ns) = TestNamespace::open("leaves-deployed").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_deployment().await;
    delete_and_check_graph_kept(&ns).await;
}

#[tokio::test]
async fn deleted_failed_request_frees_its_name() {
    let Some(ns) = TestNamespace::open("leaves-failed").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "On its way").await;
    profiler.fail("SweepingPrefill", "no candidate fits").await;
    ns.wait_for_phase("Failed").await;
    delete_and_check_cleanup(&ns).await;
    assert_eq!(config_map_names(&ns).await, [""; 0]);
    ns.apply_request(spec(json!({}))).await;
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
    ns.graph().await;
}

/// The deletion itself must trigger the reconcile, because nothing else changes meanwhile.
#[tokio::test]
async fn deleted_account_and_binding_are_recreated() {
    let Some(ns) = TestNamespace::open("account").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.profiler().await.report_and_wait("SweepingPrefill", "On its way").await;
    let job = ns.job().await.uid();
    delete_and_check_recreated(ns.api::<ServiceAccount>(), names::SERVICE_ACCOUNT).await;
    delete_and_check_recreated(ns.api::<RoleBinding>(), names::ROLE_BINDING).await;
    assert_eq!(ns.job().await.uid(), job, "profiling continues");
    ns.wait_for_phase("Profiling").await;
}

async fn delete_and_check_recreated<K>(objects: Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let before = objects.get(name).await.unwrap().meta().uid.clone();
    objects.delete(name, &DeleteParams::default()).await.unwrap();
    let recreated = async || {
        let found = objects.get_opt(name).await.ok()??;
        (found.meta().uid != before).then_some(())
    };
    wait::eventually(&format!("{name} is recreated"), recreated).await.unwrap();
}
