//! The edge cases that the document names.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use steersman_testkit::{Play, wait};

use crate::scene::{STACK, Scene, condition, named, starter, vllm};

fn with_key() -> Value {
    let mut provider = vllm();
    provider["apiKey"] = json!({ "secretKeyRef": { "name": "vllm", "key": "token" } });
    starter(json!({ "providers": { "inference": provider } }))
}

#[tokio::test]
async fn edge_settings_are_passed_on_and_only_a_reference_at_their_top_is_resolved() {
    let Some(scene) = Scene::open("edge-settings").await else { return };
    scene.secret("tls", "ca", "hush").await;
    let mut provider = vllm();
    let reference = json!({ "secretKeyRef": { "name": "tls", "key": "ca" } });
    provider["settings"] = json!({ "max_tokens": 8192, "deep": { "ca": reference }, "ca_data": reference });
    scene.stack(starter(json!({ "providers": { "inference": provider } }))).await;
    scene.ready().await;
    let config = scene.config().await;
    let settings = &config["providers"]["inference"][0]["config"];
    assert_eq!(settings["max_tokens"], 8192);
    assert_eq!(settings["deep"], json!({ "ca": reference }), "deeper down it is the server's business");
    assert_eq!(settings["ca_data"], "${env.LLSD_VLLM_CA_DATA}");
}

#[tokio::test]
async fn edge_a_secret_that_is_not_there_is_told_and_awaited() {
    let Some(scene) = Scene::unjudged("edge-secret").await else { return };
    scene.stack(with_key()).await;
    let object = scene.until_condition("SecretsResolved", "False", "SecretNotFound").await;
    let said = condition(&object, "SecretsResolved")["message"].as_str().unwrap();
    let expected = format!(
        "Secret \"vllm\" not found in namespace \"{}\". Referenced by: spec.providers.inference.apiKey.secretKeyRef",
        scene.name()
    );
    assert_eq!(said, expected);
    assert_eq!(condition(&object, "ConfigGenerated")["status"], "False", "{object:#}");
    assert_eq!(object["status"]["phase"], "Failed");
    let (kind, told) = scene.event("SecretResolutionFailed").await;
    assert!(kind == "Warning" && told.contains("\"vllm\""), "{kind} {told}");
    assert!(scene.get::<Deployment>(STACK).await.is_none(), "nothing is started that could not run");

    scene.secret("vllm", "other", "a").await;
    scene.until_condition("SecretsResolved", "False", "SecretKeyMissing").await;
    scene.secret("vllm", "token", "a").await;
    scene.ready().await;
    scene.until_condition("SecretsResolved", "True", "AllSecretsFound").await;
}

#[tokio::test]
async fn edge_a_secret_that_goes_takes_nothing_with_it() {
    let Some(scene) = Scene::open("edge-secret-gone").await else { return };
    scene.secret("vllm", "token", "a").await;
    scene.stack(with_key()).await;
    scene.ready().await;
    let (before, pods, maps) = (scene.server().await, scene.pods().await, scene.generated().await);
    scene.all::<Secret>().delete("vllm", &DeleteParams::default()).await.unwrap();
    scene.touch().await;
    let object = scene.until_condition("SecretsResolved", "False", "SecretNotFound").await;
    assert_eq!(condition(&object, "Available")["status"], "True", "the server goes on: {object:#}");
    // A change that adds no reference is accepted, although the Secret is not there.
    scene.spec(json!({ "resources": { "models": ["later"] } })).await;
    scene.until_condition("SecretsResolved", "False", "SecretNotFound").await;
    assert_eq!((scene.server().await, scene.pods().await), (before, pods.clone()));
    assert_eq!(scene.generated().await, maps);

    scene.secret("vllm", "token", "b").await;
    scene.ready().await;
    let config = scene.config().await;
    assert_eq!(named(&config["registered_resources"]["models"], "model_id", "later")["provider_id"], "vllm");
    let renewed = async || scene.pods().await.is_disjoint(&pods).then_some(());
    wait::eventually("what was asked for meanwhile is done", renewed).await.unwrap();
}

#[tokio::test]
async fn edge_exposure_as_an_empty_object_is_exposure() {
    let Some(scene) = Scene::open("edge-expose").await else { return };
    scene.stack(starter(json!({ "networking": { "expose": {} } }))).await;
    scene.ready().await;
    let ingress = scene.get::<Ingress>("stack-ingress").await.unwrap();
    assert!(ingress["spec"]["rules"][0]["host"].is_null(), "{ingress:#}");
    scene.spec(json!({ "networking": { "expose": { "enabled": false } } })).await;
    scene.until_gone::<Ingress>("stack-ingress").await;
}

#[tokio::test]
async fn edge_a_disabled_api_with_providers_is_refused() {
    let Some(scene) = Scene::open("edge-disabled").await else { return };
    let spec = starter(json!({ "providers": { "inference": vllm() }, "disabled": ["inference"] }));
    let said = scene.refused(spec).await;
    let text = "spec.providers.inference conflicts with spec.disabled: inference API is disabled but has providers \
                configured. Remove the provider configuration or remove 'inference' from the disabled list.";
    assert!(said.contains(text), "{said}");
    scene.stack(starter(json!({ "disabled": ["postTraining", "eval"] }))).await;
    scene.ready().await;
    let config = scene.config().await;
    assert!(config["providers"]["eval"].is_null(), "{config:#}");
    assert!(!config["apis"].as_array().unwrap().contains(&json!("eval")), "{config:#}");
}

#[tokio::test]
async fn edge_a_model_of_an_unknown_provider_is_refused_with_those_that_there_are() {
    let Some(scene) = Scene::open("edge-model").await else { return };
    let models = json!([{ "name": "a", "provider": "lokal" }]);
    let providers = json!({ "inference": { "id": "local", "provider": "vllm" } });
    let said = scene.refused(starter(json!({ "providers": providers, "resources": { "models": models } }))).await;
    let text = "spec.resources.models[0].provider: provider ID \"lokal\" not found; available providers: ";
    assert!(said.contains(text) && said.contains(" local,") && said.contains("sentence-transformers"), "{said}");
}

#[tokio::test]
async fn edge_a_change_during_a_rollout_wins() {
    let Some(scene) = Scene::open("edge-rollout").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let (first, pods) = (scene.server().await, scene.pods().await);

    scene.play(Some(Play::Unready)).await;
    scene.spec(json!({ "resources": { "models": ["second"] } })).await;
    let second = wait::eventually("the second configuration is rolling out", async || {
        let server = scene.server().await;
        let started = scene.pods().await.len() == 2;
        (server.config_map() != first.config_map() && started).then_some(server)
    });
    let second = second.await.unwrap();
    scene.until_condition("Available", "False", "RolloutInProgress").await;
    assert!(pods.is_subset(&scene.pods().await), "the old pod serves until a new one does");

    scene.play(None).await;
    scene.spec(json!({ "resources": { "models": ["third"] } })).await;
    let object = scene.ready().await;
    let third = scene.server().await;
    assert!(third.config_map() != first.config_map() && third.config_map() != second.config_map());
    let config = scene.config().await;
    let models = &config["registered_resources"]["models"];
    assert!(named(models, "model_id", "second").is_null() && !named(models, "model_id", "third").is_null());
    assert_eq!(object["status"]["configGeneration"]["configMapName"], json!(third.config_map()));
    let alone = async || (scene.pods().await.len() == 1).then_some(());
    wait::eventually("no other pod is left", alone).await.unwrap();
}

#[tokio::test]
async fn edge_a_change_that_fails_to_build_keeps_the_server() {
    let Some(scene) = Scene::unjudged("edge-failure").await else { return };
    scene.stack(starter(json!({ "resources": { "tools": ["websearch"] } }))).await;
    scene.ready().await;
    let (before, pods) = (scene.server().await, scene.pods().await);
    scene.spec(json!({ "disabled": ["tool_runtime"] })).await;
    let object = scene.until_condition("ConfigGenerated", "False", "MissingProviderForResource").await;
    let said = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(said.starts_with("resources.tools requires at least one toolRuntime provider to be configured"), "{said}");
    assert_eq!((scene.server().await, scene.pods().await), (before, pods));
}

#[tokio::test]
async fn edge_tools_and_shields_go_to_the_bases_providers_or_are_refused() {
    let Some(scene) = Scene::open("edge-tools").await else { return };
    for (section, api, provider) in [("tools", "tool_runtime", "toolRuntime"), ("shields", "safety", "safety")] {
        let said = scene.refused(starter(json!({ "resources": { section: ["one"] }, "disabled": [api] }))).await;
        let text = format!("resources.{section} requires at least one {provider} provider to be configured");
        assert!(said.contains(&format!("spec.resources.{section}: {text}")), "{said}");
    }
    scene.stack(starter(json!({ "resources": { "tools": ["one"], "shields": ["two"] } }))).await;
    scene.ready().await;
    let config = scene.config().await;
    let registered = &config["registered_resources"];
    assert!(named(&registered["tool_groups"], "toolgroup_id", "one")["provider_id"].is_string(), "{registered:#}");
    assert!(named(&registered["shields"], "shield_id", "two")["provider_id"].is_string(), "{registered:#}");
}

/// What an upgrade leaves behind is made by hand: the status is that of an operator of another version that could build
/// the same spec. That this one cannot is the work of an annotation, which is no part of the spec.
#[tokio::test]
async fn edge_a_spec_that_a_newer_operator_cannot_build_goes_on_running() {
    let Some(scene) = Scene::unjudged("edge-upgrade").await else { return };
    let models = json!([{ "name": "m", "provider": "fireworks" }]);
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "resources": { "models": models } }))).await;
    let good = scene.ready().await;
    let (before, pods) = (scene.server().await, scene.pods().await);
    scene.patch(json!({ "metadata": { "annotations": { "steersman.dev/provider-merge": "replace" } } })).await;
    scene.until_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;

    let mut status = good["status"].clone();
    status["version"]["operatorVersion"] = json!("0.0.1");
    scene.status(json!({ "conditions": status["conditions"], "version": status["version"] })).await;
    let object = scene.until_condition("ConfigGenerated", "False", "UpgradeConfigFailure").await;
    let said = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(said.starts_with("Config generation failed after operator upgrade: "), "FR-101: {said}");
    assert!(said.contains("spec.resources.models[0].provider") && said.contains("\"fireworks\""), "{said}");
    assert_eq!((scene.server().await, scene.pods().await), (before.clone(), pods.clone()));
    assert_eq!(object["status"]["resolvedDistribution"], good["status"]["resolvedDistribution"]);

    scene.patch(json!({ "metadata": { "annotations": { "steersman.dev/provider-merge": null } } })).await;
    scene.until_condition("ConfigGenerated", "True", "ConfigGenerationSucceeded").await;
    scene.ready().await;
    assert_eq!((scene.server().await, scene.pods().await), (before, pods));
}
