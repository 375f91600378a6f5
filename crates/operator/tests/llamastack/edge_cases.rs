//! The edge cases of the requirements document.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::{PodBehaviour, wait};

use crate::env;
use crate::test_namespace::{STACK, TestNamespace, condition, find_entry, starter, vllm};

fn spec_with_api_key() -> Value {
    let mut provider = vllm();
    provider["apiKey"] = json!({ "secretKeyRef": { "name": "vllm", "key": "token" } });
    starter(json!({ "providers": { "inference": provider } }))
}

#[tokio::test]
async fn edge_settings_resolve_only_top_level_references() {
    let Some(ns) = TestNamespace::open("edge-settings").await else { return };
    ns.apply_secret("tls", "ca", "hush").await;
    let mut provider = vllm();
    let reference = json!({ "secretKeyRef": { "name": "tls", "key": "ca" } });
    provider["settings"] = json!({ "max_tokens": 8192, "deep": { "ca": reference }, "ca_data": reference });
    ns.apply_stack(starter(json!({ "providers": { "inference": provider } }))).await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    let settings = &config["providers"]["inference"][0]["config"];
    assert_eq!(settings["max_tokens"], 8192);
    assert_eq!(settings["deep"], json!({ "ca": reference }), "a nested reference is passed on to the server");
    assert_eq!(settings["ca_data"], "${env.LLSD_VLLM_CA_DATA}");
}

#[tokio::test]
async fn edge_missing_secret_is_reported_and_awaited() {
    let Some(ns) = TestNamespace::without_admission("edge-secret").await else { return };
    ns.apply_stack(spec_with_api_key()).await;
    let object = ns.wait_for_condition("SecretsResolved", "False", "SecretNotFound").await;
    let message = condition(&object, "SecretsResolved")["message"].as_str().unwrap();
    let expected = format!(
        "Secret \"vllm\" not found in namespace \"{}\". Referenced by: spec.providers.inference.apiKey.secretKeyRef",
        ns.name()
    );
    assert_eq!(message, expected);
    assert_eq!(condition(&object, "ConfigGenerated")["status"], "False", "{object:#}");
    assert_eq!(object["status"]["phase"], "Failed");
    let (kind, message) = ns.event("SecretResolutionFailed").await;
    assert!(kind == "Warning" && message.contains("\"vllm\""), "{kind} {message}");
    assert!(ns.get::<Deployment>(STACK).await.is_none(), "no Deployment is created that could not run");

    ns.apply_secret("vllm", "other", "a").await;
    ns.wait_for_condition("SecretsResolved", "False", "SecretKeyMissing").await;
    ns.apply_secret("vllm", "token", "a").await;
    ns.wait_until_ready().await;
    ns.wait_for_condition("SecretsResolved", "True", "AllSecretsFound").await;
}

#[tokio::test]
async fn edge_deleted_secret_keeps_server_running() {
    let Some(ns) = TestNamespace::open("edge-secret-gone").await else { return };
    ns.apply_secret("vllm", "token", "a").await;
    ns.apply_stack(spec_with_api_key()).await;
    ns.wait_until_ready().await;
    let (before, pods, maps) = (ns.server().await, ns.pod_uids().await, ns.generated_config_maps().await);
    ns.api::<Secret>().delete("vllm", &DeleteParams::default()).await.unwrap();
    ns.trigger_reconcile().await;
    let object = ns.wait_for_condition("SecretsResolved", "False", "SecretNotFound").await;
    assert_eq!(condition(&object, "Available")["status"], "True", "the server keeps running: {object:#}");
    // A change that adds no reference is accepted, although the Secret is missing.
    ns.patch_spec(json!({ "resources": { "models": ["later"] } })).await;
    ns.wait_for_condition("SecretsResolved", "False", "SecretNotFound").await;
    assert_eq!((ns.server().await, ns.pod_uids().await), (before, pods.clone()));
    assert_eq!(ns.generated_config_maps().await, maps);

    ns.apply_secret("vllm", "token", "b").await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    assert_eq!(find_entry(&config["registered_resources"]["models"], "model_id", "later")["provider_id"], "vllm");
    let renewed = async || ns.pod_uids().await.is_disjoint(&pods).then_some(());
    wait::eventually("the change is rolled out", renewed).await.unwrap();
}

#[tokio::test]
async fn edge_empty_expose_object_enables_exposure() {
    let Some(ns) = TestNamespace::open("edge-expose").await else { return };
    ns.apply_stack(starter(json!({ "networking": { "expose": {} } }))).await;
    ns.wait_until_ready().await;
    let ingress = ns.get::<Ingress>("stack-ingress").await.unwrap();
    assert!(ingress["spec"]["rules"][0]["host"].is_null(), "{ingress:#}");
    ns.patch_spec(json!({ "networking": { "expose": { "enabled": false } } })).await;
    ns.wait_until_deleted::<Ingress>("stack-ingress").await;
}

#[tokio::test]
async fn edge_disabled_api_with_providers_is_rejected() {
    let Some(ns) = TestNamespace::open("edge-disabled").await else { return };
    let spec = starter(json!({ "providers": { "inference": vllm() }, "disabled": ["inference"] }));
    let message = ns.expect_rejection(spec).await;
    let text = "spec.providers.inference conflicts with spec.disabled: inference API is disabled but has providers \
                configured. Remove the provider configuration or remove 'inference' from the disabled list.";
    assert!(message.contains(text), "{message}");
    ns.apply_stack(starter(json!({ "disabled": ["postTraining", "eval"] }))).await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    assert!(config["providers"]["eval"].is_null(), "{config:#}");
    assert!(!config["apis"].as_array().unwrap().contains(&json!("eval")), "{config:#}");
}

#[tokio::test]
async fn edge_unknown_provider_error_lists_available_ones() {
    let Some(ns) = TestNamespace::open("edge-model").await else { return };
    let models = json!([{ "name": "a", "provider": "lokal" }]);
    let providers = json!({ "inference": { "id": "local", "provider": "vllm" } });
    let message =
        ns.expect_rejection(starter(json!({ "providers": providers, "resources": { "models": models } }))).await;
    let text = "spec.resources.models[0].provider: provider ID \"lokal\" not found; available providers: ";
    assert!(
        message.contains(text) && message.contains(" local,") && message.contains("sentence-transformers"),
        "{message}"
    );
}

#[tokio::test]
async fn edge_change_during_rollout_wins() {
    let Some(ns) = TestNamespace::open("edge-rollout").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let (first, pods) = (ns.server().await, ns.pod_uids().await);

    ns.set_play(Some(PodBehaviour::Unready)).await;
    ns.patch_spec(json!({ "resources": { "models": ["second"] } })).await;
    let second = wait::eventually("the second configuration is being rolled out", async || {
        let server = ns.server().await;
        let started = ns.pod_uids().await.len() == 2;
        (server.config_map() != first.config_map() && started).then_some(server)
    });
    let second = second.await.unwrap();
    ns.wait_for_condition("Available", "False", "RolloutInProgress").await;
    assert!(pods.is_subset(&ns.pod_uids().await), "the old pod must serve until the new one is ready");

    ns.set_play(None).await;
    ns.patch_spec(json!({ "resources": { "models": ["third"] } })).await;
    let object = ns.wait_until_ready().await;
    let third = ns.server().await;
    assert!(third.config_map() != first.config_map() && third.config_map() != second.config_map());
    let config = ns.config().await;
    let models = &config["registered_resources"]["models"];
    assert!(find_entry(models, "model_id", "second").is_null() && !find_entry(models, "model_id", "third").is_null());
    assert_eq!(object["status"]["configGeneration"]["configMapName"], json!(third.config_map()));
    let single = async || (ns.pod_uids().await.len() == 1).then_some(());
    wait::eventually("only one pod is left", single).await.unwrap();
}

#[tokio::test]
async fn edge_failed_generation_keeps_server() {
    let Some(ns) = TestNamespace::without_admission("edge-failure").await else { return };
    ns.apply_stack(starter(json!({ "resources": { "tools": ["websearch"] } }))).await;
    ns.wait_until_ready().await;
    let (before, pods) = (ns.server().await, ns.pod_uids().await);
    ns.patch_spec(json!({ "disabled": ["tool_runtime"] })).await;
    let object = ns.wait_for_condition("ConfigGenerated", "False", "MissingProviderForResource").await;
    let message = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(
        message.starts_with("resources.tools requires at least one toolRuntime provider to be configured"),
        "{message}"
    );
    assert_eq!((ns.server().await, ns.pod_uids().await), (before, pods));
}

#[tokio::test]
async fn edge_tools_and_shields_need_a_provider() {
    let Some(ns) = TestNamespace::open("edge-tools").await else { return };
    for (section, api, provider) in [("tools", "tool_runtime", "toolRuntime"), ("shields", "safety", "safety")] {
        let message =
            ns.expect_rejection(starter(json!({ "resources": { section: ["one"] }, "disabled": [api] }))).await;
        let text = format!("resources.{section} requires at least one {provider} provider to be configured");
        assert!(message.contains(&format!("spec.resources.{section}: {text}")), "{message}");
    }
    ns.apply_stack(starter(json!({ "resources": { "tools": ["one"], "shields": ["two"] } }))).await;
    ns.wait_until_ready().await;
    let config = ns.config().await;
    let registered = &config["registered_resources"];
    assert!(find_entry(&registered["tool_groups"], "toolgroup_id", "one")["provider_id"].is_string(), "{registered:#}");
    assert!(find_entry(&registered["shields"], "shield_id", "two")["provider_id"].is_string(), "{registered:#}");
}

/// The test simulates an upgrade: the status is that of an operator of another version, for which the generation succeeded.
/// An annotation, which is not part of the spec, lets it fail for this operator.
#[tokio::test]
async fn edge_failed_generation_after_upgrade_keeps_server() {
    let Some(ns) = TestNamespace::without_admission("edge-upgrade").await else { return };
    let models = json!([{ "name": "m", "provider": "fireworks" }]);
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "resources": { "models": models } }))).await;
    let good = ns.wait_until_ready().await;
    let (before, pods) = (ns.server().await, ns.pod_uids().await);
    ns.patch(json!({ "metadata": { "annotations": { "steersman.dev/provider-merge": "replace" } } })).await;
    ns.wait_for_condition("ConfigGenerated", "False", "ConfigGenerationFailed").await;

    let mut status = good["status"].clone();
    status["version"]["operatorVersion"] = json!("0.0.1");
    ns.patch_status(json!({ "conditions": status["conditions"], "version": status["version"] })).await;
    let object = ns.wait_for_condition("ConfigGenerated", "False", "UpgradeConfigFailure").await;
    let message = condition(&object, "ConfigGenerated")["message"].as_str().unwrap();
    assert!(message.starts_with("Config generation failed after operator upgrade: "), "FR-101: {message}");
    assert!(message.contains("spec.resources.models[0].provider") && message.contains("\"fireworks\""), "{message}");
    assert_eq!((ns.server().await, ns.pod_uids().await), (before.clone(), pods.clone()));
    assert_eq!(object["status"]["resolvedDistribution"], good["status"]["resolvedDistribution"]);

    ns.patch(json!({ "metadata": { "annotations": { "steersman.dev/provider-merge": null } } })).await;
    ns.wait_for_condition("ConfigGenerated", "True", "ConfigGenerationSucceeded").await;
    ns.wait_until_ready().await;
    assert_eq!((ns.server().await, ns.pod_uids().await), (before, pods));
}

/// A provider with a setting of this length, which only v1alpha2 can represent.
fn spec_with_setting(bytes: usize) -> Value {
    let mut provider = vllm();
    provider["settings"] = json!({ "text": "x".repeat(bytes) });
    starter(json!({ "providers": { "inference": provider } }))
}

const OMITTED: &str = "llamastack.io/v1alpha2-fields-omitted";

#[tokio::test]
async fn large_object_stays_readable_in_v1alpha1() {
    let Some(ns) = TestNamespace::without_admission("large").await else { return };
    ns.apply_stack(spec_with_setting(300_000)).await;
    let listed = env::objects(&ns.admin, ns.name(), "v1alpha1").list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(listed.items[0].annotations()[OMITTED], "true");
    assert_eq!(listed.items[0].data["spec"]["server"]["distribution"]["name"], "starter");
}

#[tokio::test]
async fn v1alpha1_write_keeps_omitted_fields() {
    let Some(ns) = TestNamespace::open("omitted").await else { return };
    let message = ns.expect_rejection(spec_with_setting(300_000)).await;
    assert!(message.contains("exceed 200000 bytes of JSON"), "{message}");
    ns.apply_stack(spec_with_setting(50_000)).await;
    ns.patch(json!({ "metadata": { "annotations": { "example.com/note": "x".repeat(240_000) } } })).await;
    let older = env::objects(&ns.admin, ns.name(), "v1alpha1");
    assert_eq!(older.get(STACK).await.unwrap().annotations()[OMITTED], "true");
    let patch = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    let refused = older.patch(STACK, &PatchParams::default(), &patch).await.unwrap_err().to_string();
    assert!(refused.contains(OMITTED) && refused.contains("write it as llamastack.io/v1alpha2"), "{refused}");
    let kept = ns.object(STACK, "v1alpha2").await;
    assert_eq!(kept["spec"]["providers"]["inference"]["settings"]["text"].as_str().unwrap().len(), 50_000);
}

#[tokio::test]
async fn twenty_thousand_models_are_refused() {
    let Some(ns) = TestNamespace::open("models").await else { return };
    let models: Vec<String> = (0..20_000).map(|place| format!("model-{place}")).collect();
    let message = ns.expect_rejection(starter(json!({ "resources": { "models": models } }))).await;
    assert!(
        message.contains("spec.resources.models: it has 20000 entries, but at most 2000 are allowed"),
        "{}",
        &message[..message.len().min(500)]
    );
}
