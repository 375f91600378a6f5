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

/// Queries of Prometheus, through the API server.
const QUERY: &str = "/api/v1/namespaces/monitoring/services/https:prometheus:web/proxy/api/v1/query?query=";

/// Waits until the series that Prometheus has of a metric are as expected.
async fn wait_for_series(cluster: &RealCluster, metric: &str, what: &str, holds: impl Fn(&[Value]) -> bool) {
    let client = cluster.cluster.admin().await.unwrap();
    let mut last = None;
    let found = wait::eventually_within(SLOW, what, async || {
        let request = http::Request::get(format!("{QUERY}{metric}")).body(Vec::new()).unwrap();
        let response = client.request::<Value>(request).await;
        let series = response.as_ref().ok().and_then(|response| response["data"]["result"].as_array());
        let found = series.is_some_and(|series| holds(series));
        last = Some(response);
        found.then_some(())
    });
    let found = found.await;
    found.unwrap_or_else(|timeout| panic!("{timeout}; the last response: {last:?}"));
}

/// Waits until the operator publishes this number of replicas of the engine, in a single series.
async fn wait_for_published(cluster: &RealCluster, expected: &str) {
    let is_published = |series: &[Value]| {
        let of_engine = series.iter().filter(|series| {
            let labels = &series["metric"];
            labels["variant_name"] == "engine" && labels["namespace"] == NAMESPACE && labels["target_name"] == "engine"
        });
        of_engine.map(|series| &series["value"][1]).eq([expected])
    };
    let what = format!("{expected} replicas are published");
    wait_for_series(cluster, "wva_desired_replicas", &what, is_published).await;
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
    wait_for_series(cluster, "vllm:kv_cache_usage_perc", "both engines have metrics", |series| series.len() == 2).await;
    let report = load.stop().await;
    assert!(!report.answered.is_empty(), "no request was answered: {:#?}", report.failed.first());
    wait_for_status(cluster, Family::Va, "engine", "wants 1 replica after the load", wants(1)).await;
    wait_for_published(cluster, "1").await;
    scale_engine(cluster, 1).await;
}
