//! User story 8: changes of a running server.

use serde_json::json;
use steersman_testkit::wait;

use crate::test_namespace::{TestNamespace, condition, find_entry, starter, vllm};

#[tokio::test]
async fn us8_1_new_provider_rolls_out() {
    let Some(ns) = TestNamespace::open("us8-1").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    let object = ns.wait_until_ready().await;
    let (before, pods) = (ns.server().await, ns.pod_uids().await);

    let safety = json!({ "id": "guard", "provider": "llama-guard" });
    ns.patch_spec(json!({ "providers": { "safety": safety } })).await;
    let updated = ns.wait_until_ready().await;
    let after = ns.server().await;
    assert_ne!(after.config_map(), before.config_map(), "FR-095: each configuration has its own ConfigMap");
    assert_ne!(after.config_hash(), before.config_hash(), "FR-026");
    let config = ns.config().await;
    assert_eq!(config["providers"]["safety"][0]["provider_id"], "guard");
    // A terminating pod still exists for a while.
    let replaced = async || ns.pod_uids().await.is_disjoint(&pods).then_some(());
    wait::eventually("all pods are replaced", replaced).await.unwrap();
    let old = ns.generated_config_maps().await.contains(&before.config_map().unwrap());
    assert!(old, "the previous ConfigMap is kept");
    assert_eq!(ns.versions_since(&before).await.len(), 1, "the Deployment changes once");
    let name = |object: &serde_json::Value| object["status"]["configGeneration"]["configMapName"].clone();
    assert_eq!((name(&updated), name(&object)), (json!(after.config_map()), json!(before.config_map())));
}

#[tokio::test]
async fn us8_2_equivalent_spec_restarts_nothing() {
    let Some(ns) = TestNamespace::open("us8-2").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "resources": { "models": ["a"] } }))).await;
    let object = ns.wait_until_ready().await;
    let (before, pods, writes) = (ns.server().await, ns.pod_uids().await, ns.deployment_writes());

    // The provider as a list with its default id, and the model as an object.
    let mut provider = vllm();
    provider["id"] = json!("vllm");
    let equivalent = json!({ "providers": { "inference": [provider] }, "resources": { "models": [{ "name": "a" }] } });
    ns.patch_spec(equivalent).await;
    let updated = ns.wait_until_ready().await;
    assert!(updated["metadata"]["generation"].as_i64() > object["metadata"]["generation"].as_i64());
    assert_eq!(ns.server().await, before, "FR-096");
    assert_eq!(ns.deployment_writes(), writes);
    assert_eq!(ns.pod_uids().await, pods);
    assert_eq!(updated["status"]["configGeneration"], object["status"]["configGeneration"], "even the date is kept");
}

#[tokio::test]
async fn us8_3_failed_generation_keeps_running_server() {
    let Some(ns) = TestNamespace::without_admission("us8-3").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "port": 8321 } }))).await;
    ns.wait_until_ready().await;
    let (before, pods, maps) = (ns.server().await, ns.pod_uids().await, ns.generated_config_maps().await);

    ns.patch_spec(json!({ "resources": { "models": [{ "name": "a", "provider": "nobody" }] } })).await;
    let object = ns.wait_for_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;
    assert_eq!(object["status"]["phase"], "Failed");
    let message = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(
        message.contains("spec.resources.models[0].provider") && message.contains("\"nobody\""),
        "FR-075: {message}"
    );
    assert_eq!(condition(&object, "Available")["status"], "True", "the server keeps running: {object:#}");
    let (kind, message) = ns.event("ConfigGenerationFailed").await;
    assert!(kind == "Warning" && message.contains("\"nobody\""), "{kind} {message}");
    assert_eq!(ns.server().await, before, "FR-097");
    assert_eq!((ns.pod_uids().await, ns.generated_config_maps().await), (pods.clone(), maps));
    assert_eq!(object["status"]["configGeneration"]["configMapName"], json!(before.config_map()));

    // After the change is reverted, nothing has changed.
    ns.patch_spec(json!({ "resources": null })).await;
    ns.wait_until_ready().await;
    assert_eq!((ns.server().await, ns.pod_uids().await), (before, pods));
}

#[tokio::test]
async fn us8_4_new_distribution_includes_its_config() {
    let Some(ns) = TestNamespace::open("us8-4").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let (before, writes) = (ns.server().await, ns.deployment_writes());
    ns.patch_spec(json!({ "distribution": { "name": "starter-gpu" } })).await;
    let object = ns.wait_until_ready().await;

    let versions = ns.versions_since(&before).await;
    assert_eq!(versions.len(), 1, "FR-098: the spec changes once: {versions:#?}");
    assert_eq!(ns.deployment_writes(), writes + 1, "FR-100: by one write");
    let after = &versions[0];
    assert_eq!(after.image(), "docker.io/llamastack/distribution-starter-gpu:0.6.1");
    assert_ne!((after.config_map(), after.config_hash()), (before.config_map(), before.config_hash()));
    let config = ns.config().await;
    assert_eq!(config["distro_name"], "starter-gpu", "FR-020c");
    assert_eq!(find_entry(&config["providers"]["inference"], "provider_id", "vllm")["provider_type"], "remote::vllm");
    assert_eq!(object["status"]["resolvedDistribution"]["image"], after.image());
}
