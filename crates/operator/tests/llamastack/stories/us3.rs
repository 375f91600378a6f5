//! User story 3: models, tools and shields that are registered when the server starts.

use serde_json::{Value, json};

use crate::test_namespace::{TestNamespace, find_entry, starter};

fn providers() -> Value {
    json!({ "inference": [
        { "id": "first", "provider": "vllm", "endpoint": "http://first:8000/v1" },
        { "id": "second", "provider": "vllm", "endpoint": "http://second:8000/v1" },
    ] })
}

#[tokio::test]
async fn us3_1_model_uses_first_provider_by_default() {
    let Some(ns) = TestNamespace::open("us3-1").await else { return };
    let models = json!([{ "name": "llama3.2-8b" }, "qwen3"]);
    ns.apply_stack(starter(json!({ "providers": providers(), "resources": { "models": models } }))).await;
    let object = ns.wait_until_ready().await;
    let config = ns.config().await;
    for name in ["llama3.2-8b", "qwen3"] {
        let model = find_entry(&config["registered_resources"]["models"], "model_id", name);
        assert_eq!((&model["provider_id"], &model["model_type"]), (&json!("first"), &json!("llm")), "{name}");
    }
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 2);
}

#[tokio::test]
async fn us3_2_model_uses_its_named_provider() {
    let Some(ns) = TestNamespace::open("us3-2").await else { return };
    let model = json!({ "name": "llama3.1", "provider": "second", "contextLength": 131_072, "quantization": "fp8" });
    ns.apply_stack(starter(json!({ "providers": providers(), "resources": { "models": [model] } }))).await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    let model = find_entry(&config["registered_resources"]["models"], "model_id", "llama3.1");
    assert_eq!(model["provider_id"], "second");
    assert_eq!(model["metadata"], json!({ "context_length": 131_072, "quantization": "fp8" }), "FR-042");
}

#[tokio::test]
async fn us3_3_tools_and_shields_are_registered() {
    let Some(ns) = TestNamespace::open("us3-3").await else { return };
    let resources = json!({ "tools": ["websearch", "rag"], "shields": ["guard"] });
    let providers = json!({ "toolRuntime": { "id": "search", "provider": "tavily-search" },
        "safety": { "id": "safe", "provider": "llama-guard" } });
    ns.apply_stack(starter(json!({ "providers": providers, "resources": resources }))).await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    let registered = &config["registered_resources"];
    for tool in ["websearch", "rag"] {
        assert_eq!(
            find_entry(&registered["tool_groups"], "toolgroup_id", tool)["provider_id"],
            "search",
            "{registered:#}"
        );
    }
    assert_eq!(find_entry(&registered["shields"], "shield_id", "guard")["provider_id"], "safe", "{registered:#}");
}
