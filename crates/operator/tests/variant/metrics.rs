//! Metrics that are not there, or are nonsense: replicas stay as they are, and it is said why.

use std::sync::Arc;

use serde_json::json;
use steersman_testkit::prometheus::{Door, Prometheus};
use tokio::sync::Mutex;

use crate::follower::Follower;
use crate::operator::Operator;
use crate::player::Player;
use crate::scene::{Scene, condition, desired, spec};

#[tokio::test]
async fn while_prometheus_is_down_numbers_stay_and_the_way_back_is_found_alone() {
    let Some(scene) = Scene::apart("outage").await else { return };
    let operator = Operator::start(scene.world.cluster, scene.name()).await;
    let meter = Arc::new(Mutex::new(Prometheus::start(Door::Open).await.unwrap().unwrap()));
    operator.asks(&scene.admin, &meter).await;
    let scene = Scene { voice: operator.voice.clone(), ..scene };
    scene.deploy("decode", "llama", 2).await;
    scene.variant("llama", spec("decode", "llama", json!({}))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::scraped_by(&scene, "llama", &meter).await;
    player.begin(2, 36).await;
    scene.until_settled("llama", 2).await;

    meter.lock().await.stop();
    // More than two can carry, and nobody can know.
    player.serve(78);
    let address = meter.lock().await.address();
    let down = ["False", "PrometheusError", address.as_str()];
    let seen = scene.until_condition("llama", "MetricsAvailable", down).await;
    let (_, _, message) = condition(&seen, "MetricsAvailable");
    assert!(message.starts_with("Failed to query Prometheus: "), "{message}");
    assert!(message.contains("check that Prometheus runs and that PROMETHEUS_BASE_URL is right"), "{message}");
    let (status, why, message) = condition(&seen, "OptimizationReady");
    assert_eq!((status, why), ("True", "FallbackUsed"), "{message}");
    assert!(message.ends_with("(2 replicas)"), "{message}");
    let (kind, _) = scene.event("llama", "MetricsUnavailable").await;
    assert_eq!(kind, "Warning");
    scene.shown("llama", "prometheus-down").await;
    scene.assert_silent_for(1, &["llama"]).await;
    assert_eq!(desired(&scene.object("llama").await), Some(2));
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    assert_eq!(scene.events("llama", "MetricsUnavailable").await.len(), 1, "it is told once");

    meter.lock().await.start_again().await.unwrap();
    let seen = scene.until_condition("llama", "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    assert_eq!(condition(&seen, "OptimizationReady").1, "OptimizationSucceeded");
    // What was missed is made up for.
    scene.until_settled("llama", 3).await;
}

/// What a pod says with these two figures.
fn words(model: &str, kv: &str, queue: &str) -> String {
    let labels = format!("{{engine=\"0\",model_name=\"{model}\"}}");
    format!(
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{labels} {kv}\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{labels} {queue}\n"
    )
}

#[tokio::test]
async fn nonsense_is_no_figure_and_only_its_own_object_waits() {
    let Some(scene) = Scene::open("nonsense").await else { return };
    let cases = [
        ("nan", "NaN", "0", "has no KV cache usage"),
        ("infinite", "+Inf", "0", "has no KV cache usage"),
        ("negative", "0.5", "-3", "has no queue length"),
        ("percent", "73", "0", "has no KV cache usage"),
        ("text", "plenty", "0", "No vLLM metrics found for model 'text'"),
    ];
    let mut players = Vec::new();
    for (model, kv, queue, _) in cases {
        scene.deploy(&format!("{model}-decode"), model, 1).await;
        scene.variant(model, spec(&format!("{model}-decode"), model, json!({}))).await;
        let player = Player::idle(&scene, model).await;
        player.say(&format!("{model}-decode"), Some(&words(model, kv, queue)));
        players.push(player);
    }
    scene.deploy("sound-decode", "sound", 1).await;
    scene.variant("sound", spec("sound-decode", "sound", json!({}))).await;
    let sound = Player::quiet(&scene, "sound").await;
    sound.begin(1, 30).await;
    for (model, _, _, says) in cases {
        let seen = scene.until_condition(model, "MetricsAvailable", ["False", "MetricsMissing", says]).await;
        assert_eq!(desired(&seen), Some(1), "{model}");
        assert_eq!(condition(&seen, "OptimizationReady").1, "FallbackUsed", "{model}");
        scene.until_gauges(model, [Some(1.0), Some(1.0), Some(1.0)]).await;
        scene.shown(model, &format!("nonsense-{model}")).await;
    }
    // It is scaled as if it were alone.
    scene.until_desired("sound", 2).await;

    // A pod that comes to its senses is heard.
    players[0].say("nan-decode", None);
    let seen = scene.until_condition("nan", "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    assert_eq!(condition(&seen, "OptimizationReady").1, "OptimizationSucceeded");
}

#[tokio::test]
async fn a_silent_pod_of_a_model_in_use_is_neither_idle_nor_gone() {
    let Some(scene) = Scene::open("silent").await else { return };
    let player = Player::quiet(&scene, "llama").await;
    player.silence("silent-decode", true);
    scene.deploy("decode", "llama", 1).await;
    scene.deploy("silent-decode", "llama", 1).await;
    scene.variant("loud", spec("decode", "llama", json!({}))).await;
    scene.variant("silent", spec("silent-decode", "llama", json!({ "variantCost": "5" }))).await;
    player.begin(2, 60).await;
    // The model's load is that of all its pods: with one unknown, nothing is decided for either.
    for name in ["loud", "silent"] {
        let partial = ["False", "MetricsMissing", "0 of 1 ready replicas of silent have metrics"];
        let seen = scene.until_condition(name, "MetricsAvailable", partial).await;
        assert_eq!(desired(&seen), Some(1), "{name}");
    }
    scene.shown("loud", "silent-pod").await;
    scene.voice.passes(3).await;
    for name in ["loud", "silent"] {
        assert_eq!(desired(&scene.object(name).await), Some(1), "{name}");
        scene.until_gauges(name, [Some(1.0), Some(1.0), Some(1.0)]).await;
    }
    player.silence("silent-decode", false);
    for name in ["loud", "silent"] {
        scene.until_condition(name, "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    }
    scene.until_desired("silent", 2).await;
    assert_eq!(desired(&scene.object("loud").await), Some(1), "the cheaper one grows");
}
