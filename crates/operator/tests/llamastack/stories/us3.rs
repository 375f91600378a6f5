//! Models, tools and shields that are there when the server starts.

use serde_json::{Value, json};

use crate::scene::{Scene, named, starter};

fn providers() -> Value {
    json!({ "inference": [
        { "id": "first", "provider": "vllm", "endpoint": "http://first:8000/v1" },
        { "id": "second", "provider": "vllm", "endpoint": "http://second:8000/v1" },
    ] })
}

#[tokio::test]
async fn us3_1_a_model_goes_to_the_first_provider() {
    let Some(scene) = Scene::open("us3-1").await else { return };
    let models = json!([{ "name": "llama3.2-8b" }, "qwen3"]);
    scene.stack(starter(json!({ "providers": providers(), "resources": { "models": models } }))).await;
    let object = scene.ready().await;
    let config = scene.config().await;
    for name in ["llama3.2-8b", "qwen3"] {
        let model = named(&config["registered_resources"]["models"], "model_id", name);
        assert_eq!((&model["provider_id"], &model["model_type"]), (&json!("first"), &json!("llm")), "{name}");
    }
    assert_eq!(object["status"]["configGeneration"]["resourceCount"], 2);
}

#[tokio::test]
async fn us3_2_a_model_goes_to_the_provider_that_it_names() {
    let Some(scene) = Scene::open("us3-2").await else { return };
    let model = json!({ "name": "llama3.1", "provider": "second", "contextLength": 131_072, "quantization": "fp8" });
    scene.stack(starter(json!({ "providers": providers(), "resources": { "models": [model] } }))).await;
    scene.ready().await;
    let config = scene.config().await;
    let model = named(&config["registered_resources"]["models"], "model_id", "llama3.1");
    assert_eq!(model["provider_id"], "second");
    assert_eq!(model["metadata"], json!({ "context_length": 131_072, "quantization": "fp8" }), "FR-042");
}

#[tokio::test]
async fn us3_3_tools_and_shields_are_registered_with_their_providers() {
    let Some(scene) = Scene::open("us3-3").await else { return };
    let resources = json!({ "tools": ["websearch", "rag"], "shields": ["guard"] });
    let providers = json!({ "toolRuntime": { "id": "search", "provider": "tavily-search" },
        "safety": { "id": "safe", "provider": "llama-guard" } });
    scene.stack(starter(json!({ "providers": providers, "resources": resources }))).await;
    scene.ready().await;
    let config = scene.config().await;
    let registered = &config["registered_resources"];
    for tool in ["websearch", "rag"] {
        assert_eq!(named(&registered["tool_groups"], "toolgroup_id", tool)["provider_id"], "search", "{registered:#}");
    }
    assert_eq!(named(&registered["shields"], "shield_id", "guard")["provider_id"], "safe", "{registered:#}");
}
