//! Fleets of thousands of pods: the number of requests is that of a small one, until an answer would be too long.

use std::fmt::Write;

use jiff::Timestamp;
use serde_json::json;
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::prometheus::Door;
use steersman_testkit::wait;

use super::{Scene, asked, place};

/// How many pods each namespace has, `pod-0` and so on, and what one server that knows all of them says.
fn fleet(namespaces: &[(&str, usize)]) -> (Vec<ModelQuery>, Vec<FleetPod>, String) {
    let (mut models, mut pods, mut text) = (vec![], vec![], String::new());
    for (namespace, count) in namespaces {
        models.extend((0..count.div_ceil(100)).map(|number| asked(namespace, &format!("model-{number}"))));
        for number in 0..*count {
            let labels =
                format!("{{namespace=\"{namespace}\",pod=\"pod-{number}\",model_name=\"model-{}\"}}", number / 100);
            writeln!(text, "vllm:kv_cache_usage_perc{labels} 0.5\nvllm:num_requests_waiting{labels} 1").unwrap();
            pods.push(place(namespace, &format!("pod-{number}")));
        }
    }
    (models, pods, text)
}

/// All pods of these models, and how many requests it took to see them.
async fn look(scene: &Scene, way: &Prometheus, models: &[ModelQuery], pods: &[FleetPod]) -> (usize, u64) {
    let before = scene.prometheus.queries().await.unwrap();
    let seen = way.query(models, pods, Timestamp::now()).await;
    let requests = scene.prometheus.queries().await.unwrap() - before;
    assert_eq!(seen.len(), models.len());
    (seen.values().map(|model| model.pods.as_ref().map_or(0, Vec::len)).sum(), requests)
}

#[tokio::test]
async fn requests_do_not_grow_with_the_fleet_and_answers_are_bounded() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let way = scene.way();
    let (models, pods, text) = fleet(&[("a", 5_200), ("b", 300), ("c", 4_000), ("d", 2_500)]);
    // Whoever counts requests may not say in which namespace they were served.
    scene.pods.say("all", "all", text + "vllm:request_success_total{model_name=\"model-0\"} 5\n");
    // A long text on a busy machine: the usual second may not suffice.
    let slowly = json!({
        "__metrics_path__": "/pods/all/all/metrics", "__scrape_interval__": "10s", "__scrape_timeout__": "10s"
    });
    scene.scrape("all", &slowly);
    let scraped = async || {
        let count = scene.prometheus.query("count(last_over_time(vllm:kv_cache_usage_perc[1m]))").await.unwrap();
        (count[0]["value"][1] == "12000").then_some(())
    };
    wait::eventually("12,000 series", scraped).await.unwrap();

    let part = |names: &[&str]| {
        let models: Vec<_> = models.iter().filter(|one| names.contains(&one.key.namespace.as_str())).cloned().collect();
        let pods: Vec<_> = pods.iter().filter(|one| names.contains(&&*one.namespace)).cloned().collect();
        (models, pods)
    };
    let (small, few) = part(&["b"]);
    let (count, requests) = look(&scene, &way, &small[..1], &few).await;
    assert_eq!(count, 100);
    let (large, many) = part(&["a", "b", "c"]);
    assert_eq!(large.len(), 95);
    assert_eq!(look(&scene, &way, &large, &many).await, (9_500, requests), "95 models cost as much as one");
    // One query counts, one asks for what waits before the replicas; the others are asked for each part.
    let (count, split) = look(&scene, &way, &models, &pods).await;
    assert_eq!((count, split), (12_000, 2 * requests - 2), "12,000 series are asked for in two parts");
    let seen = way.query(&models, &pods, Timestamp::now()).await;
    for namespace in ["a", "b", "c", "d"] {
        let requests = &seen[&NamespacedName::new(namespace, "model-0")].requests;
        assert_eq!(*requests, Lookup::Known(5.0), "they may be those of {namespace}, in whichever part it is");
    }
}
