//! Bounds of objects, and of the cluster, against what load asks for.

use serde_json::json;
use steersman_testkit::NodePool;

use crate::follower::Follower;
use crate::operator::Operator;
use crate::player::Player;
use crate::scene::{Scene, condition, desired, reason, spec};
use crate::world::{SATURATION, SCARCE};

#[tokio::test]
async fn bounds_hold_against_any_load_and_are_named() {
    let Some(scene) = Scene::open("bounds").await else { return };
    for model in ["busy", "idle"] {
        scene.deploy(&format!("{model}-decode"), model, 2).await;
    }
    scene.variant("at-most-two", spec("busy-decode", "busy", json!({ "maxReplicas": 2 }))).await;
    scene.variant("at-least-two", spec("idle-decode", "idle", json!({ "minReplicas": 2 }))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let (busy, _idle) = (Player::quiet(&scene, "busy").await, Player::idle(&scene, "idle").await);
    busy.begin(2, 60).await;

    let limited = ["True", "OptimizationSucceeded", "2 replicas on A100; wanted 3, limited by maxReplicas=2"];
    scene.until_condition("at-most-two", "OptimizationReady", limited).await;
    let (kind, message) = scene.event("at-most-two", "ResourceConstrained").await;
    assert_eq!(kind, "Warning");
    assert!(message.contains("wanted 3, limited by maxReplicas=2"), "{message}");
    let kept = ["True", "OptimizationSucceeded", "2 replicas on A100; wanted 1, limited by minReplicas=2"];
    scene.until_condition("at-least-two", "OptimizationReady", kept).await;
    assert_eq!(scene.events("at-least-two", "ResourceConstrained").await, [], "more than needed is no lack");
    scene.shown("at-most-two", "bounds-max").await;
    scene.shown("at-least-two", "bounds-min").await;
    for name in ["at-most-two", "at-least-two"] {
        scene.until_gauges(name, [Some(2.0), Some(2.0), Some(1.0)]).await;
    }
    scene.assert_silent_for(3, &["at-most-two", "at-least-two"]).await;

    // As soon as they are others, they hold.
    scene.change("at-most-two", json!({ "maxReplicas": 3 })).await;
    scene.until_settled("at-most-two", 3).await;
    scene.change("at-most-two", json!({ "maxReplicas": 1 })).await;
    let seen = scene.until_desired("at-most-two", 1).await;
    // The second where the third pod had no metrics yet.
    let told = ["maxReplicas=1", "clamped from 3 to 1 for bounds"];
    assert!(told.iter().any(|words| reason(&seen).contains(words)), "{}", reason(&seen));
}

#[tokio::test]
async fn accelerators_that_no_node_has_are_not_promised() {
    let Some(scene) = Scene::apart("scarce").await else { return };
    let operator = Operator::start(scene.world.cluster, scene.name()).await;
    operator.set(&scene.admin, SATURATION, json!({ "default": "enableLimiter: true" })).await;
    operator.asks(&scene.admin, &scene.world.meter).await;
    let scene = Scene { voice: operator.voice.clone(), ..scene };
    let gpu = json!({ "limits": { "nvidia.com/gpu": "1" } });
    scene.deploy_with("decode", "llama", 2, gpu).await;
    scene.variant("llama", spec("decode", "llama", json!({ "accelerator": "T4" }))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::quiet(&scene, "llama").await;
    player.begin(2, 60).await;
    // Both are in use.
    let limited = ["True", "OptimizationSucceeded", "2 replicas on T4; wanted 3, limited by gpu-limiter"];
    scene.until_condition("llama", "OptimizationReady", limited).await;
    scene.event("llama", "ResourceConstrained").await;
    scene.shown("llama", "gpu-limited").await;
    scene.assert_silent_for(3, &["llama"]).await;
    assert_eq!(desired(&scene.object("llama").await), Some(2));
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;

    scene.world.cluster.add_nodes(&NodePool::usual(SCARCE, 1).named("bought")).await.unwrap();
    let seen = scene.until_settled("llama", 3).await;
    assert!(!condition(&seen, "OptimizationReady").2.contains("limited"), "{seen:#}");
    scene.event("llama", "ScaledUp").await;
}
