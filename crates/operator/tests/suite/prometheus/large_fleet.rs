//! Fleets of thousands of pods: as many queries as for a small fleet, until a response would be too long.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::json;
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::wait;

use super::{TestEnv, model_query, ready_pod};

/// Models, pods and metrics of a fleet with this number of pods per namespace. One server exposes all metrics.
fn fleet(namespaces: &[(&str, usize)]) -> (Vec<ModelQuery>, Vec<FleetPod>, String) {
    let (mut models, mut pods, mut text) = (vec![], vec![], String::new());
    for (namespace, count) in namespaces {
        models.extend((0..count.div_ceil(100)).map(|number| model_query(namespace, &format!("model-{number}"))));
        for number in 0..*count {
            let labels =
                format!("{{namespace=\"{namespace}\",pod=\"pod-{number}\",model_name=\"model-{}\"}}", number / 100);
            writeln!(text, "vllm:kv_cache_usage_perc{labels} 0.5\nvllm:num_requests_waiting{labels} 1").unwrap();
            pods.push(ready_pod(namespace, &format!("pod-{number}")));
        }
    }
    (models, pods, text)
}

/// Queries these models; returns the number of pods with metrics and the number of queries.
async fn query_fleet(env: &TestEnv, client: &Prometheus, models: &[ModelQuery], pods: &[FleetPod]) -> (usize, u64) {
    let before = env.prometheus.query_count().await.unwrap();
    let observed = client.query(models, pods, Timestamp::now()).await;
    let requests = env.prometheus.query_count().await.unwrap() - before;
    assert_eq!(observed.len(), models.len());
    (observed.values().map(|model| model.pods.as_ref().map_or(0, Vec::len)).sum(), requests)
}

#[tokio::test]
async fn query_count_is_independent_of_fleet_size() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let client = env.client();
    let (models, pods, text) = fleet(&[("a", 5_200), ("b", 300), ("c", 4_000), ("d", 2_500)]);
    // The counter of requests may lack the label `namespace`.
    env.pods.set("all", "all", text + "vllm:request_success_total{model_name=\"model-0\"} 5\n");
    // A scrape of this size may take longer than the default timeout of one second.
    let slow_scrape = json!({
        "__metrics_path__": "/pods/all/all/metrics", "__scrape_interval__": "10s", "__scrape_timeout__": "10s"
    });
    env.scrape("all", &slow_scrape);
    let scraped = async || {
        let count = env.prometheus.query("count(last_over_time(vllm:kv_cache_usage_perc[1m]))").await.unwrap();
        (count[0]["value"][1] == "12000").then_some(())
    };
    wait::eventually("12,000 series", scraped).await.unwrap();

    let in_namespaces = |names: &[&str]| {
        let models: Vec<_> = models.iter().filter(|one| names.contains(&one.key.namespace.as_str())).cloned().collect();
        let pods: Vec<_> = pods.iter().filter(|one| names.contains(&&*one.namespace)).cloned().collect();
        (models, pods)
    };
    let (small, few) = in_namespaces(&["b"]);
    let (count, requests) = query_fleet(&env, &client, &small[..1], &few).await;
    assert_eq!(count, 100);
    let (large, many) = in_namespaces(&["a", "b", "c"]);
    assert_eq!(large.len(), 95);
    assert_eq!(query_fleet(&env, &client, &large, &many).await, (9_500, requests), "95 models cost as much as one");
    // The queries for the request count and for the scheduler queue are not split; the others are sent once per part.
    let (count, split) = query_fleet(&env, &client, &models, &pods).await;
    assert_eq!((count, split), (12_000, 2 * requests - 2), "12,000 series are queried in two parts");
    let observed = client.query(&models, &pods, Timestamp::now()).await;
    for namespace in ["a", "b", "c", "d"] {
        let requests = &observed[&NamespacedName::new(namespace, "model-0")].requests;
        assert_eq!(*requests, Lookup::Known(5.0), "a count without a namespace applies to {namespace} in either part");
    }
}
