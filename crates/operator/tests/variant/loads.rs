//! Load comes, stays and goes.

use serde_json::json;

use crate::follower::Follower;
use crate::player::Player;
use crate::scene::{Scene, condition, desired, reason, spec};

const MODEL: &str = "llama";

#[tokio::test]
async fn load_brings_a_replica_of_the_cheaper_variant_and_its_end_takes_it_away() {
    let Some(scene) = Scene::open("load").await else { return };
    scene.deploy("on-l40s", MODEL, 1).await;
    scene.deploy("on-h100", MODEL, 1).await;
    let (cheap, dear) = ("llama-l40s", "llama-h100");
    scene.variant(cheap, spec("on-l40s", MODEL, json!({ "accelerator": "L40S", "variantCost": "15" }))).await;
    scene.variant(dear, spec("on-h100", MODEL, json!({ "accelerator": "H100", "variantCost": "80" }))).await;
    let player = Player::quiet(&scene, MODEL).await;
    // The cache of each pod is three quarters full.
    let _follower = Follower::start(&scene, &scene.voice);
    player.begin(2, 60).await;
    let seen = scene.until_desired(cheap, 2).await;
    assert!(
        reason(&seen).starts_with("saturation-only mode: scale-up: KV spare Saturation low (0."),
        "{}",
        reason(&seen)
    );
    assert_eq!(seen["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], 1);
    assert_eq!(seen["status"]["desiredOptimizedAlloc"]["accelerator"], "L40S");
    assert_eq!(seen["status"]["actuation"]["applied"], true);
    let (kind, message) = scene.event(cheap, "ScaledUp").await;
    assert_eq!(kind, "Normal");
    assert!(message.starts_with("From 1 to 2 replicas: saturation-only mode: scale-up"), "{message}");
    player.until_pods(3).await;
    scene.until_settled(cheap, 2).await;
    // Three pods are enough for it.
    scene.voice.passes(2).await;
    assert_eq!((desired(&scene.object(cheap).await), desired(&scene.object(dear).await)), (Some(2), Some(1)));
    scene.until_gauges(cheap, [Some(2.0), Some(2.0), Some(1.0)]).await;
    scene.until_gauges(dear, [Some(1.0), Some(1.0), Some(1.0)]).await;
    let labels = [
        ("variant_name", cheap),
        ("namespace", scene.name()),
        ("target_name", "on-l40s"),
        ("target_kind", "Deployment"),
        ("accelerator_type", "L40S"),
    ];
    assert_eq!(scene.voice.value("wva_desired_replicas", &labels).await, Some(2.0), "labels of both generations");
    let up = [("variant_name", cheap), ("namespace", scene.name()), ("direction", "up"), ("reason", "solver")];
    assert_eq!(scene.voice.value("wva_replica_scaling_total", &up).await, Some(1.0));
    scene.shown(cheap, "load-up").await;
    // What was measured counts for a minute.
    player.serve(0);
    let seen = scene.until_desired(cheap, 1).await;
    assert_eq!(reason(&seen), "saturation-only mode: scale-down");
    assert_eq!(seen["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], -1);
    let (_, message) = scene.event(cheap, "ScaledDown").await;
    assert!(message.starts_with("From 2 to 1 replicas: saturation-only mode: scale-down"), "{message}");
    player.until_pods(2).await;
    scene.until_settled(cheap, 1).await;
    scene.until_gauges(cheap, [Some(1.0), Some(1.0), Some(1.0)]).await;
    scene.shown(cheap, "load-down").await;
    scene.voice.passes(3).await;
    assert_eq!((desired(&scene.object(cheap).await), desired(&scene.object(dear).await)), (Some(1), Some(1)));
    for (name, reason, times) in [
        (cheap, "MetricsUnavailable", 0),
        (cheap, "ScaledUp", 1),
        (cheap, "ScaledDown", 1),
        (dear, "ScaledUp", 0),
        (dear, "ScaledDown", 0),
    ] {
        assert_eq!(scene.events(name, reason).await.len(), times, "{name} {reason}");
    }
}

#[tokio::test]
async fn constant_load_changes_nothing() {
    let Some(scene) = Scene::open("constant").await else { return };
    scene.deploy("decode", MODEL, 2).await;
    scene.variant("llama", spec("decode", MODEL, json!({}))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::quiet(&scene, MODEL).await;
    // One pod could not carry it, two have some to spare.
    player.begin(2, 36).await;
    let seen = scene.until_settled("llama", 2).await;
    assert!(reason(&seen).starts_with("Last resort: first run"), "{}", reason(&seen));
    for (type_, expected) in [
        ("TargetResolved", "TargetFound"),
        ("OptimizationReady", "OptimizationSucceeded"),
        ("SpecAccepted", "SpecAccepted"),
    ] {
        let (status, why, message) = condition(&seen, type_);
        assert_eq!((status, why), ("True", expected), "{message}");
    }
    scene.shown("llama", "constant-load").await;
    scene.assert_silent_for(6, &["llama"]).await;

    assert_unmoved(&scene, "llama").await;
}

#[tokio::test]
async fn a_server_that_restarts_changes_nothing() {
    let Some(scene) = Scene::open("restarted").await else { return };
    scene.deploy("decode", MODEL, 2).await;
    scene.variant("llama", spec("decode", MODEL, json!({ "minReplicas": 2 }))).await;
    let _follower = Follower::start(&scene, &scene.voice);
    let player = Player::quiet(&scene, MODEL).await;
    // One pod can carry it: what the restarted one had begun is begun again by the other.
    let pods = player.begin(2, 16).await;
    scene.until_settled("llama", 2).await;
    assert!(player.counted(&pods[0]) > 0, "it has served");
    scene.assert_silent_for(2, &["llama"]).await;
    // Its counters begin anew.
    player.restart(&pods[0]);
    scene.assert_silent_for(6, &["llama"]).await;
    assert_unmoved(&scene, "llama").await;
}

/// Two replicas, by metrics, and never another number.
async fn assert_unmoved(scene: &Scene, name: &str) {
    let seen = scene.object(name).await;
    assert_eq!((desired(&seen), condition(&seen, "MetricsAvailable").0), (Some(2), "True"));
    for direction in ["up", "down"] {
        let labels = [("variant_name", name), ("namespace", scene.name()), ("direction", direction)];
        assert_eq!(scene.voice.value("wva_replica_scaling_total", &labels).await, None, "{direction}");
    }
}
