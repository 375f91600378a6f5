//! The operator's own ConfigMap, changed while the operator runs.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use steersman_plan::llamastack::OPERATOR_CONFIG;

use super::*;

/// Default namespace of the Go operator. Any user who may create namespaces can own it.
const GO_OPERATOR_NAMESPACE: &str = "llama-stack-k8s-operator-system";

const SHIPPED_IMAGE: &str = "docker.io/llamastack/distribution-starter:0.7.1";
const OVERRIDE_IMAGE: &str = "mirror.example.com/starter:0.7.3";

async fn remove_config(admin: &Client, namespace: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
    // A failed test may have left one.
    let _ = maps.delete(OPERATOR_CONFIG, &DeleteParams::default()).await;
}

fn image(template: &Value) -> &Value {
    &template["spec"]["containers"][0]["image"]
}

/// Covers FR-020, FR-020b, FR-020c and FR-100.
#[tokio::test]
async fn operator_config_changes_apply_at_runtime() {
    let Some(env) = test_env("operator-config").await else { return };
    let admin = env.admin.clone();
    remove_config(&admin, NAMESPACE).await;
    let set_config = async |data: Value| env.apply_config_map(NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    let spec = json!({ "distribution": { "name": "starter" },
        "resources": { "models": [{ "name": "m", "provider": "openai" }] } });
    env.create("generated", spec).await;
    env.create("plain", plain_spec()).await;
    let controller = env.run(&env.account().await, Scope::Cluster);
    for name in ["generated", "plain"] {
        env.until_deployment(name, "has the shipped image", |template| *image(template) == SHIPPED_IMAGE).await;
        env.until_settled(name).await;
    }
    let generation = async |name: &str| env.namespace.api::<Deployment>().get(name).await.unwrap().metadata.generation;
    assert_eq!(generation("generated").await, Some(1));

    // Image and configuration change in one write.
    set_config(json!({ "image-overrides": format!("starter: {OVERRIDE_IMAGE}") })).await;
    for name in ["generated", "plain"] {
        env.until_deployment(name, "has the other image", |template| *image(template) == OVERRIDE_IMAGE).await;
    }
    assert_eq!(generation("generated").await, Some(2));
    let mentions = |found: &Value, text: &str| found["message"].as_str().unwrap().contains(text);
    env.until_condition("generated", "SpecAccepted", |found| found["reason"] == "ImageReplaced").await;
    let status = env.objects().get("generated").await.unwrap().data["status"].clone();
    assert_eq!(status["resolvedDistribution"]["image"], OVERRIDE_IMAGE);

    // Invalid YAML changes nothing and is reported. An invalid image is ignored and reported.
    set_config(json!({ "image-overrides": "starter: [" })).await;
    for name in ["generated", "plain"] {
        env.until_condition(name, "SpecAccepted", |found| {
            mentions(found, "key image-overrides: the value is not YAML")
        })
        .await;
    }
    assert_eq!(generation("generated").await, Some(2));
    set_config(json!({ "image-overrides": format!("starter: {OVERRIDE_IMAGE}\npostgres-demo: 'no image'"),
        "featureFlags": "enableNetworkPolicy: {enabled: true}" }))
    .await;
    let policies = env.namespace.api::<NetworkPolicy>();
    for name in ["generated", "plain"] {
        let policy = format!("{name}-network-policy");
        wait::until(policies.clone(), &policy, "exists", wait::TIMEOUT, |_| true).await.unwrap();
        env.until_condition(name, "SpecAccepted", |found| !mentions(found, "the value is not YAML")).await;
    }
    assert_eq!(generation("generated").await, Some(2));
    set_config(json!({ "image-overrides": "starter: 'no image'" })).await;
    env.until_condition("plain", "SpecAccepted", |found| mentions(found, "entry starter: \"no image\"")).await;
    for name in ["generated", "plain"] {
        env.until_deployment(name, "has the shipped image again", |template| *image(template) == SHIPPED_IMAGE).await;
        let policy = format!("{name}-network-policy");
        wait::until_gone(policies.clone(), &policy).await.unwrap();
    }

    // Without the ConfigMap, the shipped settings apply again.
    remove_config(&admin, NAMESPACE).await;
    env.until_condition("plain", "SpecAccepted", |found| found["reason"] == "SpecAccepted").await;
    env.stop(controller).await;
}

/// A restarted operator reads the overridden images before its first write. A ConfigMap in the namespace of the Go operator
/// has no effect: the operator does not trust a namespace because of its name.
#[tokio::test]
async fn restarted_operator_keeps_overridden_images() {
    let Some(env) = test_env("restarted").await else { return };
    let admin = env.admin.clone();
    remove_config(&admin, NAMESPACE).await;
    let former = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": GO_OPERATOR_NAMESPACE } });
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
    let apply = PatchParams::apply("test").force();
    namespaces.patch(GO_OPERATOR_NAMESPACE, &apply, &Patch::Apply(former)).await.unwrap();
    let data = json!({ "image-overrides": "starter: attacker.example.com/starter:1" });
    env.apply_config_map(GO_OPERATOR_NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    let data = json!({ "image-overrides": format!("starter: {OVERRIDE_IMAGE}") });
    env.apply_config_map(NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    env.create("plain", plain_spec()).await;
    for _ in 0..2 {
        let controller = env.run(&env.account().await, Scope::Cluster);
        env.until_settled("plain").await;
        env.touch("plain").await;
        controller.until_reconciles(1).await;
        controller.stop().await;
        let live = env.namespace.api::<Deployment>().get("plain").await.unwrap();
        assert_eq!(
            (live.metadata.generation, image(&json!(live.spec.unwrap().template))),
            (Some(1), &json!(OVERRIDE_IMAGE))
        );
    }
    // An operator that starts with an invalid ConfigMap keeps the Deployment as it is.
    let data = json!({ "image-overrides": "starter: [" });
    env.apply_config_map(NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    let controller = env.run(&env.account().await, Scope::Cluster);
    let wrong = |found: &Value| found["message"].as_str().unwrap().contains("the value is not YAML");
    env.until_condition("plain", "SpecAccepted", wrong).await;
    let live = env.namespace.api::<Deployment>().get("plain").await.unwrap();
    assert_eq!(live.metadata.generation, Some(1));
    remove_config(&admin, NAMESPACE).await;
    env.until_deployment("plain", "has the shipped image", |template| *image(template) == SHIPPED_IMAGE).await;
    remove_config(&admin, GO_OPERATOR_NAMESPACE).await;
    env.stop(controller).await;
}

/// The flag `--config-namespace` names the only namespace that counts.
#[tokio::test]
async fn settings_come_from_the_config_namespace() {
    let Some(env) = test_env("config-namespace").await else { return };
    let admin = env.admin.clone();
    remove_config(&admin, NAMESPACE).await;
    let elsewhere = env.cluster.namespace("settings").await.unwrap();
    let own = json!({ "image-overrides": "starter: own.example.com/starter:1" });
    env.apply_config_map(NAMESPACE, OPERATOR_CONFIG, json!({}), own).await;
    let named = json!({ "image-overrides": format!("starter: {OVERRIDE_IMAGE}") });
    env.apply_config_map(elsewhere.name(), OPERATOR_CONFIG, json!({}), named).await;
    env.create("plain", plain_spec()).await;
    let installation = Installation {
        config_namespace: Some(elsewhere.name().to_owned()),
        secrets: SecretAccess::Watch,
        ..Installation::default()
    };
    let controller = env.run_with(&admin, Scope::Cluster, installation);
    env.until_deployment("plain", "exists", |_| true).await;
    env.until_settled("plain").await;
    let live = env.namespace.api::<Deployment>().get("plain").await.unwrap();
    assert_eq!(image(&json!(live.spec.unwrap().template)), &json!(OVERRIDE_IMAGE));

    // The watch is of that namespace as well.
    remove_config(&admin, elsewhere.name()).await;
    env.until_deployment("plain", "has the shipped image", |template| *image(template) == SHIPPED_IMAGE).await;
    remove_config(&admin, NAMESPACE).await;
    env.stop(controller).await;
}
