//! ConfigMaps that objects name, or that every object uses.

use super::*;

fn certificate() -> String {
    rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem()
}

/// FR-095 for US6: the user's own configuration, without the label that the Go operator asks for.
#[tokio::test]
async fn a_changed_configuration_of_the_user_rolls_out() {
    let Some(world) = world("override").await else { return };
    let mine = async |text: &str| {
        world.config_map(world.namespace.name(), "mine", json!({}), json!({ "config.yaml": text })).await;
    };
    mine("version: 2").await;
    let spec = json!({ "distribution": { "name": "starter" }, "overrideConfig": { "configMapName": "mine" } });
    world.create("own", spec).await;
    let running = world.run(&world.account().await, Scope::Cluster);
    let hash = |template: &Value| template["metadata"]["annotations"]["configmap.hash/user-config"].clone();
    let first = world.until_deployment("own", "exists", |template| hash(template).is_string()).await;
    let first = hash(&first["spec"]["template"]);
    world.until_settled("own").await;
    mine("version: '2'").await;
    let second = world.until_deployment("own", "is of the new content", |template| hash(template) != first).await;
    assert_ne!(hash(&second["spec"]["template"]), first);
    mine("version: 2").await;
    world.until_deployment("own", "is of the first content again", |template| hash(template) == first).await;
    world.end(running).await;
}

#[tokio::test]
async fn certificates_of_the_cluster_and_of_other_namespaces_are_followed() {
    let Some(world) = world("trust").await else { return };
    let elsewhere = world.cluster.namespace("trust-elsewhere").await.unwrap();
    let (one, two, three) = (certificate(), certificate(), certificate());
    let bundle = async |name: &str, certificates: &[&String]| {
        let maps = world.namespace.all::<ConfigMap>();
        let wanted: Vec<String> = certificates.iter().map(|pem| pem.replace(['\r', '\n'], "")).collect();
        let is = |map: &ConfigMap| {
            let text = map.data.as_ref().and_then(|data| data.get("ca-bundle.crt")).cloned().unwrap_or_default();
            let text = text.replace('\n', "");
            wanted.iter().all(|pem| text.contains(pem)) && text.matches("BEGIN").count() == wanted.len()
        };
        wait::until(maps, name, "has the certificates", wait::LIMIT, is).await.unwrap();
    };
    world.create("plain", plain()).await;
    let spec = json!({ "distribution": { "name": "starter" }, "networking": { "tls": { "caBundle": {
        "configMapName": "shared", "configMapNamespace": elsewhere.name() } } } });
    world.create("named", spec).await;
    let running = world.run(&world.account().await, Scope::Cluster);
    world.until_settled("plain").await;
    world.until_condition("named", "SpecAccepted", |found| found["status"] == "False").await;

    // Without the label it does not exist for others; the label alone changes that.
    let data = json!({ "ca-bundle.crt": one });
    world.config_map(elsewhere.name(), "shared", json!({}), data.clone()).await;
    let passes = running.passes();
    world.touch("named").await;
    running.until_passes(passes + 1).await;
    world.until_condition("named", "SpecAccepted", |found| found["reason"] == "ConfigMapNotFound").await;
    world.config_map(elsewhere.name(), "shared", json!({ "llamastack.io/watch": "true" }), data).await;
    bundle("named-ca-bundle", &[&one]).await;

    let odh = "odh-trusted-ca-bundle";
    let own = world.namespace.name();
    world.config_map(own, odh, json!({}), json!({ "ca-bundle.crt": two })).await;
    bundle("plain-ca-bundle", &[&two]).await;
    bundle("named-ca-bundle", &[&one, &two]).await;
    world.config_map(own, odh, json!({}), json!({ "ca-bundle.crt": three })).await;
    bundle("plain-ca-bundle", &[&three]).await;
    world.namespace.all::<ConfigMap>().delete(odh, &DeleteParams::default()).await.unwrap();
    let mounts = |template: &Value| template["spec"]["volumes"].to_string().contains("plain-ca-bundle");
    world.until_deployment("plain", "trusts nobody else", |template| !mounts(template)).await;
    world.end(running).await;
}
