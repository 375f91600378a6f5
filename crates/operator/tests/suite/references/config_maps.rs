//! ConfigMaps that objects refer to, and the CA bundle that every object uses.

use super::*;

fn certificate() -> String {
    rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem()
}

/// FR-095 for US6: the user's own configuration does not need the label that the Go operator requires.
#[tokio::test]
async fn user_config_change_rolls_out() {
    let Some(env) = test_env("override").await else { return };
    let apply_user_config = async |text: &str| {
        env.apply_config_map(env.namespace.name(), "mine", json!({}), json!({ "config.yaml": text })).await;
    };
    apply_user_config("version: 2").await;
    let spec = json!({ "distribution": { "name": "starter" }, "overrideConfig": { "configMapName": "mine" } });
    env.create("own", spec).await;
    let controller = env.run(&env.account().await, Scope::Cluster);
    let hash = |template: &Value| template["metadata"]["annotations"]["configmap.hash/user-config"].clone();
    let first = env.until_deployment("own", "exists", |template| hash(template).is_string()).await;
    let first = hash(&first["spec"]["template"]);
    env.until_settled("own").await;
    apply_user_config("version: '2'").await;
    let second = env.until_deployment("own", "is of the new content", |template| hash(template) != first).await;
    assert_ne!(hash(&second["spec"]["template"]), first);
    apply_user_config("version: 2").await;
    env.until_deployment("own", "is of the first content again", |template| hash(template) == first).await;
    env.stop(controller).await;
}

#[tokio::test]
async fn ca_bundles_of_cluster_and_namespaces_are_followed() {
    let Some(env) = test_env("trust").await else { return };
    let elsewhere = env.cluster.namespace("trust-elsewhere").await.unwrap();
    let (one, two, three) = (certificate(), certificate(), certificate());
    let until_bundle = async |name: &str, certificates: &[&String]| {
        let maps = env.namespace.api::<ConfigMap>();
        let expected: Vec<String> = certificates.iter().map(|pem| pem.replace(['\r', '\n'], "")).collect();
        let is = |map: &ConfigMap| {
            let text = map.data.as_ref().and_then(|data| data.get("ca-bundle.crt")).cloned().unwrap_or_default();
            let text = text.replace('\n', "");
            expected.iter().all(|pem| text.contains(pem)) && text.matches("BEGIN").count() == expected.len()
        };
        wait::until(maps, name, "has the certificates", wait::TIMEOUT, is).await.unwrap();
    };
    env.create("plain", plain_spec()).await;
    let spec = json!({ "distribution": { "name": "starter" }, "networking": { "tls": { "caBundle": {
        "configMapName": "shared", "configMapNamespace": elsewhere.name() } } } });
    env.create("named", spec).await;
    let controller = env.run(&env.account().await, Scope::Cluster);
    env.until_settled("plain").await;
    env.until_condition("named", "SpecAccepted", |found| found["status"] == "False").await;

    // A ConfigMap of another namespace can be used only if it has the label.
    let data = json!({ "ca-bundle.crt": one });
    env.apply_config_map(elsewhere.name(), "shared", json!({}), data.clone()).await;
    let reconciles = controller.reconciles();
    env.touch("named").await;
    controller.until_reconciles(reconciles + 1).await;
    env.until_condition("named", "SpecAccepted", |found| found["reason"] == "ConfigMapNotFound").await;
    // The label that all children have, and the name of another namespace, are no consent.
    for labels in [json!({ "llamastack.io/watch": "true" }), json!({ "steersman.dev/shared-with": "team-b" })] {
        env.apply_config_map(elsewhere.name(), "shared", labels, data.clone()).await;
        let reconciles = controller.reconciles();
        env.touch("named").await;
        controller.until_reconciles(reconciles + 1).await;
        env.until_condition("named", "SpecAccepted", |found| found["reason"] == "ConfigMapNotFound").await;
    }
    let consent = json!({ "steersman.dev/shared-with": format!("team-b_{}", env.namespace.name()) });
    env.apply_config_map(elsewhere.name(), "shared", consent, data).await;
    until_bundle("named-ca-bundle", &[&one]).await;

    let odh = "odh-trusted-ca-bundle";
    let own = env.namespace.name();
    env.apply_config_map(own, odh, json!({}), json!({ "ca-bundle.crt": two })).await;
    until_bundle("plain-ca-bundle", &[&two]).await;
    until_bundle("named-ca-bundle", &[&one, &two]).await;
    env.apply_config_map(own, odh, json!({}), json!({ "ca-bundle.crt": three })).await;
    until_bundle("plain-ca-bundle", &[&three]).await;
    env.namespace.api::<ConfigMap>().delete(odh, &DeleteParams::default()).await.unwrap();
    let mounts = |template: &Value| template["spec"]["volumes"].to_string().contains("plain-ca-bundle");
    env.until_deployment("plain", "has no CA bundle", |template| !mounts(template)).await;
    env.stop(controller).await;
}

/// A ConfigMap in the operator's own namespace is as private as any other.
#[tokio::test]
async fn config_map_of_operators_namespace_needs_consent() {
    let Some(env) = test_env("own-consent").await else { return };
    let name = env.namespace.name().to_owned();
    let data = json!({ "ca-bundle.crt": certificate() });
    env.apply_config_map(NAMESPACE, &name, json!({}), data.clone()).await;
    let spec = json!({ "distribution": { "name": "starter" }, "networking": { "tls": { "caBundle": {
        "configMapName": name, "configMapNamespace": NAMESPACE } } } });
    env.create("curious", spec).await;
    let controller = env.run(&env.account().await, Scope::Cluster);
    env.until_condition("curious", "SpecAccepted", |found| found["reason"] == "ConfigMapNotFound").await;
    assert!(env.namespace.api::<Deployment>().get_opt("curious").await.unwrap().is_none());
    env.apply_config_map(NAMESPACE, &name, json!({ "steersman.dev/shared-with": name }), data).await;
    env.until_deployment("curious", "exists", |_| true).await;
    let maps: Api<ConfigMap> = Api::namespaced(env.admin.clone(), NAMESPACE);
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    env.stop(controller).await;
}
