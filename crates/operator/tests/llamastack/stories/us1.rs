//! A server for one inference backend in a few lines.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use kube::api::ListParams;
use serde_json::json;

use crate::scene::{Scene, condition, named};

#[tokio::test]
async fn us1_1_one_provider_makes_a_configuration_and_a_server() {
    let Some(scene) = Scene::open("us1-1").await else { return };
    let provider = json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1" });
    scene.stack(json!({ "distribution": { "name": "starter" }, "providers": { "inference": [provider] } })).await;
    let object = scene.ready().await;

    let (server, config) = (scene.server().await, scene.config().await);
    assert_eq!(server.image(), "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(server.mount("user-config")["mountPath"], "/etc/llama-stack");
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/etc/llama-stack/config.yaml");
    let first = &config["providers"]["inference"][0];
    assert_eq!((&first["provider_id"], &first["provider_type"]), (&json!("vllm"), &json!("remote::vllm")));
    assert_eq!(first["config"]["base_url"], "http://vllm:8000/v1");
    let kept = named(&config["providers"]["inference"], "provider_id", "sentence-transformers");
    assert_eq!(kept["provider_type"], "inline::sentence-transformers", "what the spec does not speak of stays");

    let status = &object["status"];
    let map = server.config_map().unwrap();
    let hash = server.hash().as_str().unwrap();
    assert_eq!(map, format!("stack-config-{}", &hash[..8]), "FR-024");
    assert_eq!(status["configGeneration"]["configMapName"], map.as_str());
    assert_eq!(status["configGeneration"]["configVersion"], 2);
    assert!(status["configGeneration"]["generatedAt"].is_string());
    let resolved = &status["resolvedDistribution"];
    assert_eq!(resolved["image"], server.image(), "FR-020a");
    assert_eq!(resolved["configSource"], "embedded");
    assert!(resolved["configHash"].as_str().unwrap().starts_with("sha256:"), "{resolved}");
    for type_ in ["ConfigGenerated", "DeploymentUpdated", "Available", "DeploymentReady", "ServiceReady"] {
        assert_eq!(condition(&object, type_)["status"], "True", "FR-099: {type_} in {status:#}");
    }
    assert!(condition(&object, "SecretsResolved").is_null(), "there is none to resolve");
    let url = format!("http://stack-service.{}.svc.cluster.local:8321", scene.name());
    assert_eq!(status["serviceURL"], url.as_str());
    let service = scene.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8321, "FR-060");

    // NFR-007
    let (kind, said) = scene.event("ConfigGenerated").await;
    assert!(kind == "Normal" && said.starts_with("Generated config.yaml with "), "{kind} {said}");
    let (kind, said) = scene.event("DeploymentUpdated").await;
    assert_eq!((kind.as_str(), said), ("Normal", format!("Deployment updated with config {map}")));
}

#[tokio::test]
async fn us1_2_a_key_reaches_the_server_by_a_variable_and_nothing_else() {
    let Some(scene) = Scene::open("us1-2").await else { return };
    let value = "hush-8f1c02";
    scene.secret("vllm", "token", value).await;
    scene.secret("more", "proxy", value).await;
    let provider = json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1",
        "apiKey": { "secretKeyRef": { "name": "vllm", "key": "token" } },
        "secretRefs": { "proxy_auth": { "name": "more", "key": "proxy" } } });
    scene.stack(json!({ "distribution": { "name": "starter" }, "providers": { "inference": provider } })).await;
    let object = scene.ready().await;

    let (server, config) = (scene.server().await, scene.config().await);
    for (variable, secret, key) in [("LLSD_VLLM_API_KEY", "vllm", "token"), ("LLSD_VLLM_PROXY_AUTH", "more", "proxy")] {
        let from = &server.env(variable)["valueFrom"]["secretKeyRef"];
        assert_eq!((&from["name"], &from["key"]), (&json!(secret), &json!(key)), "{variable}");
    }
    let provider = &config["providers"]["inference"][0]["config"];
    assert_eq!(provider["api_token"], "${env.LLSD_VLLM_API_KEY}", "the key that this server reads");
    assert_eq!(provider["proxy_auth"], "${env.LLSD_VLLM_PROXY_AUTH}");
    let resolved = condition(&object, "SecretsResolved");
    assert_eq!(resolved["reason"], "AllSecretsFound");
    assert_eq!(resolved["message"], "Resolved 2 secret references");

    // NFR-003: whatever can be read without reading Secrets does not have it.
    let maps = scene.all::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    let events = scene.all::<Event>().list(&ListParams::default()).await.unwrap();
    let log = scene.world.operator.log().text();
    assert!(log.contains(scene.name()), "the log tells of what happens here");
    for (what, text) in [
        ("a ConfigMap", json!(maps.items).to_string()),
        ("an event", json!(events.items).to_string()),
        ("the object", object.to_string()),
        ("the Deployment", server.0.to_string()),
        ("the log", log),
        ("standard error", scene.world.operator.complaint()),
    ] {
        assert!(!text.contains(value), "{what} has the value of a Secret");
    }
}

#[tokio::test]
async fn us1_3_a_name_alone_runs_the_image_as_it_is() {
    let Some(scene) = Scene::open("us1-3").await else { return };
    scene.stack(json!({ "distribution": { "name": "starter" } })).await;
    let object = scene.ready().await;
    let server = scene.server().await;
    assert_eq!(server.image(), "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(server.config_map(), None);
    assert!(server.container()["command"].is_null() && server.container()["args"].is_null(), "the image's own");
    assert!(scene.generated().await.is_empty());
    let status = &object["status"];
    assert!(status["configGeneration"].is_null() && condition(&object, "ConfigGenerated").is_null(), "{status:#}");
    assert_eq!(status["resolvedDistribution"]["image"], server.image());
}
