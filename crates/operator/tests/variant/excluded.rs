//! Namespaces that are left alone, for a while.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::player::Player;
use crate::scene::{Scene, condition, desired, spec};

#[tokio::test]
async fn who_is_left_alone_is_told_once_and_taken_up_again_later() {
    let (Some(scene), Some(clock)) = (Scene::open("left").await, Scene::open("clock").await) else { return };
    // Passes are made only where there is something to look at.
    clock.variant("hand", spec("nothing", "none", json!({}))).await;
    scene.deploy("decode", "llama", 1).await;
    scene.variant("llama", spec("decode", "llama", json!({}))).await;
    let _player = Player::idle(&scene, "llama").await;
    scene.until_settled("llama", 1).await;
    scene.until_gauges("llama", [Some(1.0), Some(1.0), Some(1.0)]).await;

    let exclude = async |value: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": value } } }));
        let namespaces: Api<Namespace> = Api::all(scene.admin.clone());
        namespaces.patch(scene.name(), &PatchParams::default(), &patch).await.unwrap();
    };
    exclude(json!("true")).await;
    let words = "has annotation wva.llmd.ai/exclude=true";
    let seen = scene.until_condition("llama", "OptimizationReady", ["False", "NamespaceExcluded", words]).await;
    assert_eq!(condition(&seen, "MetricsAvailable").1, "SkippedProcessing");
    assert_eq!((desired(&seen), &seen["status"]["actuation"]["applied"]), (Some(1), &json!(false)));
    assert_eq!(scene.event("llama", "NamespaceExcluded").await.0, "Normal");
    // Without a series an HPA stays where it is.
    scene.until_gauges("llama", [None; 3]).await;
    scene.shown("llama", "namespace-excluded").await;
    scene.scale("decode", 2).await;
    scene.assert_silent_for(3, &["llama"]).await;
    assert_eq!(scene.events("llama", "NamespaceExcluded").await.len(), 1, "once");

    exclude(Value::Null).await;
    let seen = scene.until_condition("llama", "OptimizationReady", ["True", "OptimizationSucceeded", ""]).await;
    assert_eq!(condition(&seen, "MetricsAvailable").0, "True");
    assert!(scene.gauges("llama").await[0].is_some(), "it is published again");
}
