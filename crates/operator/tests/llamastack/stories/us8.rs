//! Changes while the server runs.

use serde_json::json;
use steersman_testkit::wait;

use crate::scene::{Scene, condition, named, starter, vllm};

#[tokio::test]
async fn us8_1_a_new_provider_rolls_out() {
    let Some(scene) = Scene::open("us8-1").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let object = scene.ready().await;
    let (before, pods) = (scene.server().await, scene.pods().await);

    let safety = json!({ "id": "guard", "provider": "llama-guard" });
    scene.spec(json!({ "providers": { "safety": safety } })).await;
    let told = scene.ready().await;
    let after = scene.server().await;
    assert_ne!(after.config_map(), before.config_map(), "FR-095: a ConfigMap of its own");
    assert_ne!(after.hash(), before.hash(), "FR-026");
    let config = scene.config().await;
    assert_eq!(config["providers"]["safety"][0]["provider_id"], "guard");
    // One that is ending is still there for a while.
    let renewed = async || scene.pods().await.is_disjoint(&pods).then_some(());
    wait::eventually("the pods are new", renewed).await.unwrap();
    let old = scene.generated().await.contains(&before.config_map().unwrap());
    assert!(old, "the one before stays for a look back");
    assert_eq!(scene.versions(&before).await.len(), 1, "in one step");
    let name = |object: &serde_json::Value| object["status"]["configGeneration"]["configMapName"].clone();
    assert_eq!((name(&told), name(&object)), (json!(after.config_map()), json!(before.config_map())));
}

#[tokio::test]
async fn us8_2_another_way_to_say_the_same_restarts_nothing() {
    let Some(scene) = Scene::open("us8-2").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "resources": { "models": ["a"] } }))).await;
    let object = scene.ready().await;
    let (before, pods, writes) = (scene.server().await, scene.pods().await, scene.deployment_writes());

    // As a list with the id that it has anyway; the model as an object.
    let mut provider = vllm();
    provider["id"] = json!("vllm");
    let same = json!({ "providers": { "inference": [provider] }, "resources": { "models": [{ "name": "a" }] } });
    scene.spec(same).await;
    let told = scene.ready().await;
    assert!(told["metadata"]["generation"].as_i64() > object["metadata"]["generation"].as_i64());
    assert_eq!(scene.server().await, before, "FR-096");
    assert_eq!(scene.deployment_writes(), writes);
    assert_eq!(scene.pods().await, pods);
    assert_eq!(told["status"]["configGeneration"], object["status"]["configGeneration"], "with its date");
}

#[tokio::test]
async fn us8_3_what_cannot_be_built_leaves_what_runs() {
    let Some(scene) = Scene::unjudged("us8-3").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "port": 8321 } }))).await;
    scene.ready().await;
    let (before, pods, maps) = (scene.server().await, scene.pods().await, scene.generated().await);

    scene.spec(json!({ "resources": { "models": [{ "name": "a", "provider": "nobody" }] } })).await;
    let object = scene.until_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;
    assert_eq!(object["status"]["phase"], "Failed");
    let said = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(said.contains("spec.resources.models[0].provider") && said.contains("\"nobody\""), "FR-075: {said}");
    assert_eq!(condition(&object, "Available")["status"], "True", "the server goes on: {object:#}");
    let (kind, told) = scene.event("ConfigGenerationFailed").await;
    assert!(kind == "Warning" && told.contains("\"nobody\""), "{kind} {told}");
    assert_eq!(scene.server().await, before, "FR-097");
    assert_eq!((scene.pods().await, scene.generated().await), (pods.clone(), maps));
    assert_eq!(object["status"]["configGeneration"]["configMapName"], json!(before.config_map()));

    // Taken back, nothing has happened.
    scene.spec(json!({ "resources": null })).await;
    scene.ready().await;
    assert_eq!((scene.server().await, scene.pods().await), (before, pods));
}

#[tokio::test]
async fn us8_4_another_distribution_comes_with_its_configuration() {
    let Some(scene) = Scene::open("us8-4").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let (before, writes) = (scene.server().await, scene.deployment_writes());
    scene.spec(json!({ "distribution": { "name": "starter-gpu" } })).await;
    let object = scene.ready().await;

    let versions = scene.versions(&before).await;
    assert_eq!(versions.len(), 1, "FR-098: one new spec: {versions:#?}");
    assert_eq!(scene.deployment_writes(), writes + 1, "FR-100: by one write");
    let after = &versions[0];
    assert_eq!(after.image(), "docker.io/llamastack/distribution-starter-gpu:0.6.1");
    assert_ne!((after.config_map(), after.hash()), (before.config_map(), before.hash()));
    let config = scene.config().await;
    assert_eq!(config["distro_name"], "starter-gpu", "FR-020c");
    assert_eq!(named(&config["providers"]["inference"], "provider_id", "vllm")["provider_type"], "remote::vllm");
    assert_eq!(object["status"]["resolvedDistribution"]["image"], after.image());
}
