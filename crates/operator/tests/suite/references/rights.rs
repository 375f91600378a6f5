//! An operator that may read what objects name, and may not watch it.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;

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
