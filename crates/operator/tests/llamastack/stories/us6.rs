//! User story 6: a configuration file of the user.

use serde_json::json;

use crate::env::OPERATOR_IMAGE;
use crate::test_namespace::{TestNamespace, condition, starter, vllm};

#[tokio::test]
async fn us6_1_server_uses_override_config_map() {
    let Some(ns) = TestNamespace::open("us6-1").await else { return };
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    ns.apply_stack(starter(json!({ "overrideConfig": { "configMapName": "mine" } }))).await;
    let object = ns.wait_until_ready().await;
    let server = ns.server().await;
    assert_eq!(server.config_map().as_deref(), Some("mine"));
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/etc/llama-stack/config.yaml");
    assert!(server.command().contains("LLAMA_STACK_CONFIG"), "{}", server.command());
    assert!(server.config_hash().is_string(), "new content restarts the pods");
    assert!(ns.generated_config_maps().await.is_empty());
    assert!(condition(&object, "ConfigGenerated").is_null(), "nothing was generated");
    assert_eq!(condition(&object, "DeploymentUpdated")["message"], "Deployment updated with config mine");
    assert!(object["status"]["resolvedDistribution"]["configSource"].is_null(), "an override has no base");
}

#[tokio::test]
async fn us6_2_override_with_providers_is_rejected() {
    let Some(ns) = TestNamespace::open("us6-2").await else { return };
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    for (section, value) in [
        ("providers", json!({ "inference": vllm() })),
        ("resources", json!({ "models": ["a"] })),
        ("storage", json!({ "kv": { "type": "sqlite" } })),
        ("disabled", json!(["eval"])),
    ] {
        let spec = starter(json!({ "overrideConfig": { "configMapName": "mine" }, section: value }));
        let message = ns.expect_rejection(spec).await;
        assert!(message.contains(&format!("{section} and overrideConfig are mutually exclusive")), "FR-070: {message}");
    }
}

#[tokio::test]
async fn us6_3_missing_override_is_rejected_or_reported() {
    let text = "failed to find overrideConfig ConfigMap \"mine\" in namespace";
    let spec = || starter(json!({ "overrideConfig": { "configMapName": "mine" } }));
    let Some(ns) = TestNamespace::open("us6-3").await else { return };
    let message = ns.expect_rejection(spec()).await;
    assert!(message.contains("spec.overrideConfig.configMapName") && message.contains(text), "{message}");

    let Some(ns) = TestNamespace::without_admission("us6-3").await else { return };
    ns.apply_stack(spec()).await;
    let object = ns.wait_for("the missing ConfigMap is reported", |object| object["status"]["phase"] == "Failed").await;
    let message = condition(&object, "SpecAccepted")["message"].as_str().unwrap();
    assert!(message.contains("spec.overrideConfig.configMapName") && message.contains(text), "FR-074: {message}");
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    ns.wait_until_ready().await;
}

/// External providers join the user's file: the server reads the merged one.
#[tokio::test]
async fn us6_external_providers_join_the_users_file() {
    let Some(ns) = TestNamespace::open("us6-external").await else { return };
    ns.apply_config_map("mine", "config.yaml", "version: 2\n").await;
    let external = json!({ "inference": [{ "providerId": "own", "image": "example.com/own:1" }] });
    let spec = json!({ "overrideConfig": { "configMapName": "mine" }, "externalProviders": external });
    ns.apply_stack(starter(spec)).await;
    ns.wait_until_ready().await;
    let server = ns.server().await;
    assert_eq!(server.init_containers(), ["install-provider-own", "generate-config"]);
    assert_eq!(server.config_map().as_deref(), Some("mine"));
    let merge = &server.pod_spec()["initContainers"][1];
    assert_eq!((&merge["args"][2], &merge["image"]), (&json!("/etc/llama-stack/config.yaml"), &json!(OPERATOR_IMAGE)));
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/opt/llama-stack/config/config.yaml");
}
