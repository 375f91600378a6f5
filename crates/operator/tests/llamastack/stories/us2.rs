//! User story 2: several providers of one API.

use serde_json::json;

use crate::test_namespace::{TestNamespace, starter};

#[tokio::test]
async fn us2_1_two_providers_with_ids_are_configured() {
    let Some(ns) = TestNamespace::open("us2-1").await else { return };
    let provider = |id: &str| {
        json!({ "id": id, "provider": "vllm", "endpoint": format!("http://{id}:8000/v1"),
        "apiKey": { "name": "keys", "key": id } })
    };
    ns.apply("{apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {primary: a, fall-back: b}}").await;
    let providers = json!({ "inference": [provider("primary"), provider("fall-back")] });
    ns.apply_stack(starter(json!({ "providers": providers }))).await;
    let object = ns.wait_for_condition("ConfigGenerated", "True", "ConfigGenerationSucceeded").await;
    let count = &object["status"]["configGeneration"]["providerCount"];
    ns.wait_until_ready().await;

    let (server, config) = (ns.server().await, ns.config().await);
    let inference = config["providers"]["inference"].as_array().unwrap();
    for (place, id) in ["primary", "fall-back"].into_iter().enumerate() {
        assert_eq!(inference[place]["provider_id"], id, "the providers of the spec come first, in their order");
        assert_eq!(inference[place]["config"]["base_url"], format!("http://{id}:8000/v1"));
        let variable = format!("LLSD_{}_API_KEY", id.to_uppercase().replace('-', "_"));
        assert_eq!(server.env(&variable)["valueFrom"]["secretKeyRef"]["key"], id, "FR-032");
    }
    let entries = config["providers"].as_object().unwrap().values().flat_map(|api| api.as_array().unwrap());
    // An id such as `${env.X:+x}` belongs to a provider that the server leaves out without the variable.
    let started = entries.filter(|entry| !entry["provider_id"].as_str().unwrap().starts_with("${env.")).count();
    assert_eq!(*count, started, "all providers that the server starts are counted");
}

#[tokio::test]
async fn us2_2_several_providers_without_ids_are_rejected() {
    let Some(ns) = TestNamespace::open("us2-2").await else { return };
    let providers = json!([{ "id": "primary", "provider": "vllm" }, { "provider": "ollama" }]);
    let message = ns.expect_rejection(starter(json!({ "providers": { "inference": providers } }))).await;
    let text =
        "spec.providers.inference[1].id: each provider must have an explicit id when multiple providers are specified";
    assert!(message.contains(text), "{message}");
}

#[tokio::test]
async fn us2_3_duplicate_id_across_apis_is_rejected() {
    let Some(ns) = TestNamespace::open("us2-3").await else { return };
    let providers = json!({ "inference": { "id": "guard", "provider": "vllm" },
        "safety": { "id": "guard", "provider": "llama-guard" } });
    let message = ns.expect_rejection(starter(json!({ "providers": providers }))).await;
    let text = "spec.providers.safety.id: provider ID \"guard\" conflicts with provider in \"inference\"";
    assert!(message.contains(text), "{message}");
}
