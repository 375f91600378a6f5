//! User story 1: a server for one inference backend with a short manifest.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use kube::api::ListParams;
use serde_json::json;

use crate::test_namespace::{TestNamespace, condition, find_entry};

#[tokio::test]
async fn us1_1_one_provider_creates_config_and_server() {
    let Some(ns) = TestNamespace::open("us1-1").await else { return };
    let provider = json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1" });
    ns.apply_stack(json!({ "distribution": { "name": "starter" }, "providers": { "inference": [provider] } })).await;
    let object = ns.wait_until_ready().await;

    let (server, config) = (ns.server().await, ns.config().await);
    assert_eq!(server.image(), "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(server.mount("user-config")["mountPath"], "/etc/llama-stack");
    assert_eq!(server.env("LLAMA_STACK_CONFIG")["value"], "/etc/llama-stack/config.yaml");
    let first = &config["providers"]["inference"][0];
    assert_eq!((&first["provider_id"], &first["provider_type"]), (&json!("vllm"), &json!("remote::vllm")));
    assert_eq!(first["config"]["base_url"], "http://vllm:8000/v1");
    let base_provider = find_entry(&config["providers"]["inference"], "provider_id", "sentence-transformers");
    assert_eq!(base_provider["provider_type"], "inline::sentence-transformers", "other providers of the base stay");

    let status = &object["status"];
    let map = server.config_map().unwrap();
    let hash = server.config_hash().as_str().unwrap();
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
    assert!(condition(&object, "SecretsResolved").is_null(), "there is no Secret to resolve");
    let url = format!("http://stack-service.{}.svc.cluster.local:8321", ns.name());
    assert_eq!(status["serviceURL"], url.as_str());
    let service = ns.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8321, "FR-060");

    // NFR-007
    let (kind, message) = ns.event("ConfigGenerated").await;
    assert!(kind == "Normal" && message.starts_with("Generated config.yaml with "), "{kind} {message}");
    let (kind, message) = ns.event("DeploymentUpdated").await;
    assert_eq!((kind.as_str(), message), ("Normal", format!("Deployment updated with config {map}")));
}

#[tokio::test]
async fn us1_2_api_key_appears_only_as_variable() {
    let Some(ns) = TestNamespace::open("us1-2").await else { return };
    let value = "hush-8f1c02";
    ns.apply_secret("vllm", "token", value).await;
    ns.apply_secret("more", "proxy", value).await;
    let provider = json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1",
        "apiKey": { "secretKeyRef": { "name": "vllm", "key": "token" } },
        "secretRefs": { "proxy_auth": { "name": "more", "key": "proxy" } } });
    ns.apply_stack(json!({ "distribution": { "name": "starter" }, "providers": { "inference": provider } })).await;
    let object = ns.wait_until_ready().await;

    let (server, config) = (ns.server().await, ns.config().await);
    for (variable, secret, key) in [("LLSD_VLLM_API_KEY", "vllm", "token"), ("LLSD_VLLM_PROXY_AUTH", "more", "proxy")] {
        let from = &server.env(variable)["valueFrom"]["secretKeyRef"];
        assert_eq!((&from["name"], &from["key"]), (&json!(secret), &json!(key)), "{variable}");
    }
    let provider = &config["providers"]["inference"][0]["config"];
    assert_eq!(provider["api_token"], "${env.LLSD_VLLM_API_KEY}", "the configuration key of this server");
    assert_eq!(provider["proxy_auth"], "${env.LLSD_VLLM_PROXY_AUTH}");
    let resolved = condition(&object, "SecretsResolved");
    assert_eq!(resolved["reason"], "AllSecretsFound");
    assert_eq!(resolved["message"], "Resolved 2 secret references");

    // NFR-003: nothing that can be read without access to Secrets contains the value.
    let maps = ns.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    let events = ns.api::<Event>().list(&ListParams::default()).await.unwrap();
    let log = ns.env.operator.log().text();
    assert!(log.contains(ns.name()), "the log mentions this namespace");
    for (what, text) in [
        ("a ConfigMap", json!(maps.items).to_string()),
        ("an event", json!(events.items).to_string()),
        ("the object", object.to_string()),
        ("the Deployment", server.0.to_string()),
        ("the log", log),
        ("standard error", ns.env.operator.stderr()),
    ] {
        assert!(!text.contains(value), "{what} contains the value of a Secret");
    }
}

#[tokio::test]
async fn us1_3_distribution_alone_runs_unmodified_image() {
    let Some(ns) = TestNamespace::open("us1-3").await else { return };
    ns.apply_stack(json!({ "distribution": { "name": "starter" } })).await;
    let object = ns.wait_until_ready().await;
    let server = ns.server().await;
    assert_eq!(server.image(), "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(server.config_map(), None);
    assert!(
        server.container()["command"].is_null() && server.container()["args"].is_null(),
        "command and arguments are those of the image"
    );
    assert!(ns.generated_config_maps().await.is_empty());
    let status = &object["status"];
    assert!(status["configGeneration"].is_null() && condition(&object, "ConfigGenerated").is_null(), "{status:#}");
    assert_eq!(status["resolvedDistribution"]["image"], server.image());
}
