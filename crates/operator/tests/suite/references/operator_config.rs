//! The operator's own ConfigMap, changed while the operator runs.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use steersman_plan::llamastack::{FORMER_NAMESPACE, OPERATOR_CONFIG};

use super::*;

const SHIPPED: &str = "docker.io/llamastack/distribution-starter:0.7.1";
const OTHER: &str = "mirror.example.com/starter:0.7.3";

async fn remove(admin: &Client, namespace: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
    // There is none, unless a failed test has left one.
    let _ = maps.delete(OPERATOR_CONFIG, &DeleteParams::default()).await;
}

fn image(template: &Value) -> &Value {
    &template["spec"]["containers"][0]["image"]
}

/// FR-020, FR-020b, FR-020c, FR-100.
#[tokio::test]
async fn its_images_and_its_flag_count_from_the_moment_they_are_written() {
    let Some(world) = world("operator-config").await else { return };
    let admin = world.admin.clone();
    remove(&admin, NAMESPACE).await;
    remove(&admin, FORMER_NAMESPACE).await;
    let say = async |data: Value| world.config_map(NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    let spec = json!({ "distribution": { "name": "starter" },
        "resources": { "models": [{ "name": "m", "provider": "openai" }] } });
    world.create("generated", spec).await;
    world.create("plain", plain()).await;
    let running = world.run(&world.account().await, Scope::Cluster);
    for name in ["generated", "plain"] {
        world.until_deployment(name, "has the shipped image", |template| *image(template) == SHIPPED).await;
        world.until_settled(name).await;
    }
    let generation =
        async |name: &str| world.namespace.all::<Deployment>().get(name).await.unwrap().metadata.generation;
    assert_eq!(generation("generated").await, Some(1));

    // Image and configuration move in one write.
    say(json!({ "image-overrides": format!("starter: {OTHER}") })).await;
    for name in ["generated", "plain"] {
        world.until_deployment(name, "has the other image", |template| *image(template) == OTHER).await;
    }
    assert_eq!(generation("generated").await, Some(2));
    let about = |found: &Value, reason: &str| found["message"].as_str().unwrap().contains(reason);
    world.until_condition("generated", "SpecAccepted", |found| found["reason"] == "ImageReplaced").await;
    let status = world.objects().get("generated").await.unwrap().data["status"].clone();
    assert_eq!(status["resolvedDistribution"]["image"], OTHER);

    // What cannot be read changes nothing and is told; what is no image is passed over and told.
    say(json!({ "image-overrides": "starter: [" })).await;
    for name in ["generated", "plain"] {
        world
            .until_condition(name, "SpecAccepted", |found| about(found, "key image-overrides: this is not YAML"))
            .await;
    }
    assert_eq!(generation("generated").await, Some(2));
    say(json!({ "image-overrides": format!("starter: {OTHER}\npostgres-demo: 'no image'"),
        "featureFlags": "enableNetworkPolicy: {enabled: true}" }))
    .await;
    let policies = world.namespace.all::<NetworkPolicy>();
    for name in ["generated", "plain"] {
        let policy = format!("{name}-network-policy");
        wait::until(policies.clone(), &policy, "exists", wait::LIMIT, |_| true).await.unwrap();
        world.until_condition(name, "SpecAccepted", |found| !about(found, "this is not YAML")).await;
    }
    assert_eq!(generation("generated").await, Some(2));
    say(json!({ "image-overrides": "starter: 'no image'" })).await;
    world.until_condition("plain", "SpecAccepted", |found| about(found, "entry starter: \"no image\"")).await;
    for name in ["generated", "plain"] {
        world.until_deployment(name, "has the shipped image again", |template| *image(template) == SHIPPED).await;
        let policy = format!("{name}-network-policy");
        wait::until_gone(policies.clone(), &policy).await.unwrap();
    }

    // Without it, all is as at first.
    remove(&admin, NAMESPACE).await;
    world.until_condition("plain", "SpecAccepted", |found| found["reason"] == "SpecAccepted").await;
    world.end(running).await;
}

/// An operator that starts anew knows the images before it acts, wherever its users have them from.
#[tokio::test]
async fn a_new_operator_does_not_go_back_to_its_own_images() {
    let Some(world) = world("restarted").await else { return };
    let admin = world.admin.clone();
    remove(&admin, NAMESPACE).await;
    let former = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FORMER_NAMESPACE } });
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
    let apply = PatchParams::apply("test").force();
    namespaces.patch(FORMER_NAMESPACE, &apply, &Patch::Apply(former)).await.unwrap();
    let data = json!({ "image-overrides": format!("starter: {OTHER}") });
    world.config_map(FORMER_NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    world.create("plain", plain()).await;
    for _ in 0..2 {
        let running = world.run(&world.account().await, Scope::Cluster);
        world.until_settled("plain").await;
        world.touch("plain").await;
        running.until_passes(1).await;
        running.stop().await;
        let live = world.namespace.all::<Deployment>().get("plain").await.unwrap();
        assert_eq!((live.metadata.generation, image(&json!(live.spec.unwrap().template))), (Some(1), &json!(OTHER)));
    }
    // One that cannot be read by an operator that never could leaves the server as it is.
    let data = json!({ "image-overrides": "starter: [" });
    world.config_map(FORMER_NAMESPACE, OPERATOR_CONFIG, json!({}), data).await;
    let running = world.run(&world.account().await, Scope::Cluster);
    let wrong = |found: &Value| found["message"].as_str().unwrap().contains("this is not YAML");
    world.until_condition("plain", "SpecAccepted", wrong).await;
    let live = world.namespace.all::<Deployment>().get("plain").await.unwrap();
    assert_eq!(live.metadata.generation, Some(1));
    remove(&admin, FORMER_NAMESPACE).await;
    world.until_deployment("plain", "has the shipped image", |template| *image(template) == SHIPPED).await;
    world.end(running).await;
}
