//! Operators with fewer rights than the shipped ones, or with more knowledge.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};

use super::*;
use crate::process::operator::Operator;

/// The shipped rights, but of Secrets only to get them.
async fn restricted(world: &World) -> Client {
    let name = world.namespace.name();
    let rules: Vec<Value> = steersman::rbac::rules()
        .into_iter()
        .map(|rule| {
            let verbs = if rule.resource == "secrets" { &["get"] } else { rule.verbs };
            json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": verbs,
                "resourceNames": rule.names })
        })
        .collect();
    let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": rules }));
    Api::all(world.admin.clone()).create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
    Api::all(world.admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let client = world.cluster.user(name).await.unwrap();
    wait::until_allowed(&client, "get", "", "secrets", Some(name)).await.unwrap();
    client
}

#[tokio::test]
async fn without_the_right_to_watch_secrets_they_are_looked_at_again_and_the_right_is_noticed() {
    let Some(world) = world("no-right").await else { return };
    world.create("waiting", with_secret("key")).await;
    let client = restricted(&world).await;
    let running = world.run(&client, Scope::Cluster);
    world.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    wait::eventually("a pass by the clock", async || running.clocked().then_some(())).await.unwrap();

    // Every pass asks, and never believes what it knew.
    world.secret("key", "hush").await;
    world.touch("waiting").await;
    world.until_condition("waiting", "SecretsResolved", |found| found["status"] == "True").await;
    world.until_settled("waiting").await;

    // With the right, changes are told from then on.
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"] });
    let roles: Api<ClusterRole> = Api::all(world.admin.clone());
    let mut role = roles.get(world.namespace.name()).await.unwrap();
    role.rules.get_or_insert_default().push(serde_json::from_value(rule).unwrap());
    roles.replace(world.namespace.name(), &PostParams::default(), &role).await.unwrap();
    wait::until_allowed(&client, "list", "", "secrets", None).await.unwrap();
    // The broken watch is begun again within moments, and its first list is what brings this about.
    world.namespace.all::<Secret>().delete("key", &DeleteParams::default()).await.unwrap();
    world.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    world.end(running).await;
}

#[tokio::test]
async fn a_missing_right_is_said_once() {
    let Some(world) = world("said-once").await else { return };
    let name = world.namespace.name();
    restricted(&world).await;
    let binding: RoleBinding = object(json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
    let bindings: Api<RoleBinding> = Api::namespaced(world.admin.clone(), NAMESPACE);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let operator = Operator::spawn(&world.cluster.user_kubeconfig(name).unwrap(), "restricted", &[]);
    let without =
        "without the right to list and watch them, those that objects refer to are looked at from time to time";
    operator.until_said(without).await;
    world.create("waiting", with_secret("key")).await;
    world.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    world.secret("key", "hush").await;
    // By the clock: the watch has been begun again several times since.
    world.until_condition("waiting", "SecretsResolved", |found| found["status"] == "True").await;
    let of_secrets = |line: &Value| line["kind"] == "Secret";
    assert_eq!(operator.times_said(without, of_secrets), 1, "{}", operator.log());
    let broke = "a watch broke off and is begun again until it holds";
    assert_eq!(operator.times_said(broke, of_secrets), 1, "{}", operator.log());
    assert!(!operator.log().contains("hush"));
    drop(operator);
    uninstall(&world.admin, Family::Llsd).await;
}

#[tokio::test]
async fn the_operators_own_image_runs_before_servers_that_need_it() {
    let Some(world) = world("own-image").await else { return };
    world.secret("token", "postgresql://u:p@db/llama").await;
    let spec = json!({ "distribution": { "name": "starter" }, "storage": { "sql": { "type": "postgres",
        "connectionString": { "name": "token", "key": "token" } } } });
    world.create("stored", spec).await;
    let account = world.account().await;
    let running = world.run(&account, Scope::Cluster);
    let flag = |found: &Value| found["message"].as_str().unwrap().contains("--operator-image");
    world.until_condition("stored", "ConfigGenerated", flag).await;
    running.stop().await;
    let told =
        Installation { operator_image: Some("registry.example.com/steersman:1".to_owned()), ..Installation::default() };
    let running = world.run_told(&account, Scope::Cluster, told);
    let made = world.until_deployment("stored", "exists", |_| true).await;
    let image = &made["spec"]["template"]["spec"]["initContainers"][0]["image"];
    assert_eq!(image, "registry.example.com/steersman:1");
    world.end(running).await;
}
