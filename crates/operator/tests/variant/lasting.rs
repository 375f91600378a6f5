//! The operator itself: killed in the middle of things, and idle where there is nothing to do.

use serde_json::json;

use crate::follower::Follower;
use crate::operator::Operator;
use crate::player::Player;
use crate::scene::{Scene, spec};

#[tokio::test]
async fn a_killed_operator_shows_the_same_numbers_at_once_and_an_idle_one_rests() {
    let Some(scene) = Scene::apart("killed").await else { return };
    let mut operator = Operator::start(scene.world.cluster, scene.name()).await;
    operator.asks(&scene.admin, &scene.world.meter).await;
    let mut scene = Scene { voice: operator.voice.clone(), ..scene };
    scene.deploy("decode", "llama", 1).await;
    scene.variant("llama", spec("decode", "llama", json!({}))).await;
    let follower = Follower::start(&scene, &scene.voice);
    let player = Player::quiet(&scene, "llama").await;
    player.begin(1, 30).await;
    scene.until_settled("llama", 2).await;
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    scene.assert_silent_for(1, &["llama"]).await;
    let before = scene.object("llama").await;

    // Where nobody scales in between, nobody could hide what it shows first.
    drop(follower);
    operator.kill();
    operator.start_again();
    scene.voice = operator.voice.clone();
    scene.voice.until_said("controller started").await;
    scene.until_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    let _follower = Follower::start(&scene, &scene.voice);
    scene.assert_silent_for(1, &["llama"]).await;
    assert_eq!(scene.object("llama").await["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(scene.events("llama", "ScaledUp").await.len(), 1, "it is told once, over all lives");

    // With the last object the passes end.
    scene.delete("llama").await;
    scene.voice.until_said("No active VariantAutoscalings found, skipping optimization").await;
    let passes = || operator.voice.times_said("Starting reconciliation");
    let before = passes();
    // The shared operator's passes are the clock, which needs something to look at.
    let Some(clock) = Scene::open("clock").await else { return };
    clock.variant("hand", spec("nothing", "none", json!({}))).await;
    clock.voice.passes(3).await;
    // A pass that was due in the moment of the deletion sees it before it is told of it, and the telling makes one more. One
    // that does not rest would have made as many as the clock.
    let rested = passes();
    assert!(rested <= before + 1, "nothing is looked at where nothing is: {} passes", rested - before);
    scene.variant("again", spec("decode", "llama", json!({}))).await;
    scene.until_settled("again", 2).await;
    scene.voice.passes(2).await;
    assert!(passes() > rested + 2, "and the clock runs again");
}
