//! A configuration of the user's own.

use serde_json::json;

use crate::scene::{Scene, condition, starter, vllm};

#[tokio::test]
async fn us6_1_the_server_starts_with_the_users_file() {
    let Some(scene) = Scene::open("us6-1").await else { return };
    scene.config_map("mine", "config.yaml", "version: 2\n").await;
    scene.stack(starter(json!({ "overrideConfig": { "configMapName": "mine" } }))).await;
    let object = scene.ready().await;
    let server = scene.server().await;
    assert_eq!(server.config_map().as_deref(), Some("mine"));
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/etc/llama-stack/config.yaml");
    assert!(server.command().contains("LLAMA_STACK_CONFIG"), "{}", server.command());
    assert!(server.hash().is_string(), "other content means other pods");
    assert!(scene.generated().await.is_empty());
    assert!(condition(&object, "ConfigGenerated").is_null(), "nothing was generated");
    assert_eq!(condition(&object, "DeploymentUpdated")["message"], "Deployment updated with config mine");
    assert!(object["status"]["resolvedDistribution"]["configSource"].is_null(), "it has no base");
}

#[tokio::test]
async fn us6_2_beside_providers_it_is_refused() {
    let Some(scene) = Scene::open("us6-2").await else { return };
    scene.config_map("mine", "config.yaml", "version: 2\n").await;
    for (section, value) in [
        ("providers", json!({ "inference": vllm() })),
        ("resources", json!({ "models": ["a"] })),
        ("storage", json!({ "kv": { "type": "sqlite" } })),
        ("disabled", json!(["eval"])),
    ] {
        let spec = starter(json!({ "overrideConfig": { "configMapName": "mine" }, section: value }));
        let said = scene.refused(spec).await;
        assert!(said.contains(&format!("{section} and overrideConfig are mutually exclusive")), "FR-070: {said}");
    }
}

#[tokio::test]
async fn us6_3_a_file_that_is_not_there_is_refused_and_told_where_nobody_was_asked() {
    let text = "failed to find overrideConfig ConfigMap \"mine\" in namespace";
    let spec = || starter(json!({ "overrideConfig": { "configMapName": "mine" } }));
    let Some(scene) = Scene::open("us6-3").await else { return };
    let said = scene.refused(spec()).await;
    assert!(said.contains("spec.overrideConfig.configMapName") && said.contains(text), "{said}");

    let Some(scene) = Scene::unjudged("us6-3").await else { return };
    scene.stack(spec()).await;
    let object = scene.until("it is told", |object| object["status"]["phase"] == "Failed").await;
    let said = condition(&object, "SpecAccepted")["message"].as_str().unwrap();
    assert!(said.contains("spec.overrideConfig.configMapName") && said.contains(text), "FR-074: {said}");
    scene.config_map("mine", "config.yaml", "version: 2\n").await;
    scene.ready().await;
}
