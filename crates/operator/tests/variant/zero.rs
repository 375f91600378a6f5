//! Models that nobody asks, which may sleep or may not.

use serde_json::{Value, json};

use crate::follower::Follower;
use crate::player::Player;
use crate::scene::{Scene, condition, desired, reason, spec};
use crate::world::ZERO;

fn time(object: &Value) -> jiff::Timestamp {
    object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["updateTime"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_model_that_nobody_asks_sleeps_after_its_retention_and_one_in_use_does_not() {
    let Some(scene) = Scene::open("sleep").await else { return };
    let entry = |model: &str| format!("modelID: {model}\nenableScaleToZero: true\nretentionPeriod: 5s\n");
    scene.config_map(ZERO, json!({ "model.idle": entry("idle"), "model.used": entry("used") })).await;
    for model in ["idle", "used"] {
        scene.deploy(&format!("{model}-decode"), model, 1).await;
        scene.variant(model, spec(&format!("{model}-decode"), model, json!({}))).await;
    }
    let used = Player::quiet(&scene, "used").await;
    used.begin(1, 4).await;
    let first = scene.until_desired("idle", 1).await;
    scene.until_settled("used", 1).await;
    let idle = Player::idle(&scene, "idle").await;
    let _follower = Follower::start(&scene, &scene.voice);
    let seen = scene.until_desired("idle", 0).await;
    assert_eq!(reason(&seen), "Scale to zero: no request for 5s");
    assert_eq!(seen["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], -1);
    let rested = time(&seen).duration_since(time(&first));
    assert!(rested.as_secs() >= 5, "it slept after {rested}");
    let (kind, message) = scene.event("idle", "ScaledToZero").await;
    assert_eq!((kind.as_str(), message.as_str()), ("Normal", "From 1 to 0 replicas: Scale to zero: no request for 5s"));

    idle.until_pods(0).await;
    let asleep = ["False", "MetricsMissing", "No replica of model 'idle' runs"];
    scene.until_condition("idle", "MetricsAvailable", asleep).await;
    scene.until_gauges("idle", [Some(0.0), Some(0.0), Some(0.0)]).await;
    scene.assert_silent_for(3, &["idle"]).await;
    scene.shown("idle", "asleep").await;
    assert_eq!(scene.events("idle", "MetricsUnavailable").await, [], "sleep is no trouble");
    let seen = scene.object("used").await;
    assert_eq!((desired(&seen), condition(&seen, "MetricsAvailable").0), (Some(1), "True"));
}

#[tokio::test]
async fn where_a_model_may_not_sleep_its_cheapest_variant_keeps_one_replica() {
    let Some(scene) = Scene::open("awake").await else { return };
    for (name, cost) in [("cheap", "10"), ("dear", "40")] {
        scene.deploy(name, "llama", 0).await;
        scene.variant(name, spec(name, "llama", json!({ "variantCost": cost }))).await;
    }
    // Nothing runs, and nobody could see whether somebody asks.
    let seen = scene.until_desired("cheap", 1).await;
    assert_eq!(reason(&seen), "First run: bootstrapping with 1 replica for Prometheus discovery");
    let seen = scene.until_desired("dear", 0).await;
    assert_eq!(reason(&seen), "First run: no replica is running, waiting for requests");
    scene.shown("dear", "first-run-nothing-runs").await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::idle(&scene, "llama").await;
    player.until_pods(1).await;
    scene.until_settled("cheap", 1).await;
    scene.until_gauges("cheap", [Some(1.0), Some(1.0), Some(1.0)]).await;
    scene.until_gauges("dear", [Some(0.0), Some(0.0), Some(0.0)]).await;
    scene.assert_silent_for(4, &["cheap", "dear"]).await;
    assert_eq!(scene.events("cheap", "ScaledToZero").await, []);
}
