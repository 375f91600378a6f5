//! A VariantAutoscaling of Dynamo's engine simulator, whose metrics Prometheus scrapes in the cluster, as it does those of the
//! operator.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::scenario::{MODEL, NAMESPACE, VARIANT, chat_request};
use steersman_testkit::wait;

use crate::env::{SLOW, exclusive, wait_for_status};
use crate::load::{Load, Request};

/// Concurrent requests: more than the simulator runs at once.
const CLIENTS: usize = 24;

/// Length of the answers. It determines for how long a request occupies the engine.
const ANSWER_TOKENS: u32 = 400;

/// A query of Prometheus for the published replicas, through the API server.
const PUBLISHED: &str =
    "/api/v1/namespaces/monitoring/services/https:prometheus:web/proxy/api/v1/query?query=wva_desired_replicas";

/// Waits until the only series that Prometheus has of the variant has this value.
async fn wait_for_published(cluster: &RealCluster, expected: &str) {
    let client = cluster.cluster.admin().await.unwrap();
    let what = format!("wva_desired_replicas is {expected}");
    let mut last = None;
    let found = wait::eventually_within(SLOW, &what, async || {
        let request = http::Request::get(PUBLISHED).body(Vec::new()).unwrap();
        let response = client.request::<Value>(request).await;
        let value = response.as_ref().ok().and_then(published).map(str::to_owned);
        last = Some(response);
        (value.as_deref() == Some(expected)).then_some(())
    });
    let found = found.await;
    found.unwrap_or_else(|timeout| panic!("{timeout}; the last response: {last:?}"));
}

fn published(response: &Value) -> Option<&str> {
    let series = response["data"]["result"].as_array()?;
    let of_variant = |series: &&Value| {
        let labels = &series["metric"];
        labels["variant_name"] == "engine" && labels["namespace"] == NAMESPACE && labels["target_name"] == "engine"
    };
    match series.iter().filter(of_variant).collect::<Vec<_>>().as_slice() {
        [only] => only["value"][1].as_str(),
        _ => None,
    }
}

/// Scales the engine as an HPA does with the published number: the cluster has no adapter through which an HPA could read it.
async fn scale_engine(cluster: &RealCluster, replicas: i32) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.cluster.admin().await.unwrap(), NAMESPACE);
    let scale = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    deployments.patch_scale("engine", &PatchParams::default(), &scale).await.unwrap();
    cluster.wait_for_rollout(NAMESPACE, "engine", replicas).await.unwrap();
}

/// The load fills the engine, so the servers of other tests would wait for their answers.
#[tokio::test]
async fn real_load_raises_and_lowers_replicas() {
    let Some(exclusive) = exclusive().await else { return };
    let cluster = exclusive.cluster;
    cluster.apply(VARIANT).await.unwrap();
    let wants = |count: i64| move |status: &Value| status["desiredOptimizedAlloc"]["numReplicas"] == count;
    wait_for_status(cluster, Family::Va, "engine", "wants 1 replica without load", wants(1)).await;
    wait_for_published(cluster, "1").await;

    let url = cluster.service_url(NAMESPACE, "engine").await.unwrap();
    let chat = Request { path: "/v1/chat/completions", body: Some(chat_request(MODEL, ANSWER_TOKENS)) };
    let load = Load::start(cluster, &url, vec![chat; CLIENTS]);
    let raised = wait_for_status(cluster, Family::Va, "engine", "wants 2 replicas under load", wants(2)).await;
    assert_eq!(raised["decision"]["decidedBy"], "solver", "{raised:#}");
    assert_eq!(raised["decision"]["factors"][0]["code"], "ReplicaSaturation", "{raised:#}");
    wait_for_published(cluster, "2").await;
    scale_engine(cluster, 2).await;
    // An engine has no metrics before its first request, and no number is lowered without them.
    let has_two = |status: &Value| status["currentAlloc"]["numReplicas"] == 2;
    wait_for_status(cluster, Family::Va, "engine", "has 2 replicas", has_two).await;
    let report = load.stop().await;
    assert!(!report.answered.is_empty(), "no request was answered: {:#?}", report.failed.first());
    wait_for_status(cluster, Family::Va, "engine", "wants 1 replica after the load", wants(1)).await;
    wait_for_published(cluster, "1").await;
    scale_engine(cluster, 1).await;
}
