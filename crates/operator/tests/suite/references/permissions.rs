//! Operators with fewer permissions than the shipped roles, and the operator's own image.

use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::ListParams;

use super::*;
use crate::process::operator::OperatorProcess;

/// Creates a user with the shipped permissions, which include no watch of Secrets.
async fn restricted_client(env: &TestEnv) -> Client {
    let name = env.namespace.name();
    let rules: Vec<Value> = steersman::rbac::rules()
        .into_iter()
        .map(|rule| {
            json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs,
                "resourceNames": rule.names })
        })
        .collect();
    let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": rules }));
    Api::all(env.admin.clone()).create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
    Api::all(env.admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let client = env.cluster.user(name).await.unwrap();
    wait::until_allowed(&client, "get", "", "secrets", Some(name)).await.unwrap();
    client
}

#[tokio::test]
async fn secrets_are_polled_without_watch_permission() {
    let Some(env) = test_env("no-right").await else { return };
    env.create("waiting", spec_with_secret("key")).await;
    let client = restricted_client(&env).await;
    let controller = env.run(&client, Scope::Cluster);
    env.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    wait::eventually("a timed requeue", async || controller.has_timed_requeue().then_some(())).await.unwrap();

    // Every reconcile reads the Secret again.
    env.apply_secret("key", "hush").await;
    env.touch("waiting").await;
    env.until_condition("waiting", "SecretsResolved", |found| found["status"] == "True").await;
    env.until_settled("waiting").await;

    // Once the permission is granted, changes arrive by the watch.
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"] });
    let roles: Api<ClusterRole> = Api::all(env.admin.clone());
    let mut role = roles.get(env.namespace.name()).await.unwrap();
    role.rules.get_or_insert_default().push(serde_json::from_value(rule).unwrap());
    roles.replace(env.namespace.name(), &PostParams::default(), &role).await.unwrap();
    wait::until_allowed(&client, "list", "", "secrets", None).await.unwrap();
    // The watch is retried within seconds, and its first list shows the deletion.
    env.namespace.api::<Secret>().delete("key", &DeleteParams::default()).await.unwrap();
    env.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    env.stop(controller).await;
}

#[tokio::test]
async fn missing_permission_is_logged_once() {
    let Some(env) = test_env("said-once").await else { return };
    let name = env.namespace.name();
    restricted_client(&env).await;
    let binding: RoleBinding = object(json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }] }));
    let bindings: Api<RoleBinding> = Api::namespaced(env.admin.clone(), NAMESPACE);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let kubeconfig = env.cluster.user_kubeconfig(name).unwrap();
    let operator = OperatorProcess::spawn(&kubeconfig, "restricted", &["--secrets", "watch"]);
    let polling_line = "no permission to list and watch this kind; referenced objects are polled instead";
    operator.wait_for_log(polling_line).await;
    env.create("waiting", spec_with_secret("key")).await;
    env.until_condition("waiting", "SecretsResolved", |found| found["reason"] == "SecretNotFound").await;
    env.apply_secret("key", "hush").await;
    // The timed requeue finds the Secret; meanwhile the watch was retried several times.
    env.until_condition("waiting", "SecretsResolved", |found| found["status"] == "True").await;
    let is_secret = |line: &Value| line["kind"] == "Secret";
    assert_eq!(operator.count_logged(polling_line, is_secret), 1, "{}", operator.log());
    let watch_failed_line = "watch failed; it is restarted until it works";
    assert_eq!(operator.count_logged(watch_failed_line, is_secret), 1, "{}", operator.log());
    assert!(!operator.log().contains("hush"));
    drop(operator);
    uninstall_crd(&env.admin, Family::Llsd).await;
}

/// The default: the operator may read a Secret by its name, and neither lists nor watches Secrets.
#[tokio::test]
async fn missing_secret_is_found_without_watching_secrets() {
    let Some(env) = test_env("by-name").await else { return };
    env.create("waiting", spec_with_secret("key")).await;
    let client = restricted_client(&env).await;
    let controller = env.run_with(&client, Scope::Cluster, Installation::default());
    env.until_condition("waiting", "SecretsResolved", |found| {
        let message = found["message"].as_str().unwrap();
        found["reason"] == "SecretNotFound" && message.contains("every 15 s") && message.contains("--secrets=watch")
    })
    .await;
    env.apply_secret("key", "hush").await;
    let created = Instant::now();
    env.until_condition("waiting", "SecretsResolved", |found| found["status"] == "True").await;
    // 15 s as the condition states, and time for a slow machine.
    assert!(created.elapsed() < Duration::from_secs(60), "{:?}", created.elapsed());
    let all = format!("GET /api/v1/namespaces/{}/secrets", env.namespace.name());
    let lists = |call: &&String| *call == "GET /api/v1/secrets" || **call == all;
    assert_eq!(controller.calls_since(0).iter().filter(lists).count(), 0);
    env.stop(controller).await;
}

/// With `--secrets none` no Secret is read, and the condition says so. The server is created, and its kubelet reports what is
/// missing.
#[tokio::test]
async fn secrets_are_not_read_if_access_is_none() {
    let Some(env) = test_env("unread").await else { return };
    env.create("unread", spec_with_secret("key")).await;
    let account = env.account().await;
    let installation = Installation { secrets: SecretAccess::None, ..Installation::default() };
    let controller = env.run_with(&account, Scope::Cluster, installation);
    env.until_deployment("unread", "exists", |_| true).await;
    env.until_condition("unread", "SecretsResolved", |found| {
        let message = found["message"].as_str().unwrap();
        found["status"] == "Unknown" && found["reason"] == "SecretsNotRead" && message.contains("--secrets=none")
    })
    .await;
    let is_read = |call: &&String| call.contains("/secrets");
    assert_eq!(controller.calls_since(0).iter().filter(is_read).count(), 0);
    env.stop(controller).await;
}

#[tokio::test]
async fn operator_image_runs_as_init_container() {
    let Some(env) = test_env("own-image").await else { return };
    env.apply_secret("token", "postgresql://u:p@db/llama").await;
    let spec = json!({ "distribution": { "name": "starter" }, "storage": { "sql": { "type": "postgres",
        "connectionString": { "name": "token", "key": "token" } } } });
    env.create("stored", spec).await;
    let account = env.account().await;
    let controller = env.run(&account, Scope::Cluster);
    let flag = |found: &Value| found["message"].as_str().unwrap().contains("--operator-image");
    env.until_condition("stored", "ConfigGenerated", flag).await;
    controller.stop().await;
    let installation =
        Installation { operator_image: Some("registry.example.com/steersman:1".to_owned()), ..Installation::default() };
    let controller = env.run_with(&account, Scope::Cluster, installation);
    let deployment = env.until_deployment("stored", "exists", |_| true).await;
    let image = &deployment["spec"]["template"]["spec"]["initContainers"][0]["image"];
    assert_eq!(image, "registry.example.com/steersman:1");
    env.stop(controller).await;
}

/// OpenShift's role lets pods run as any user, which namespace users may not.
#[tokio::test]
async fn any_user_needs_permission_of_administrator() {
    let Some(env) = test_env("any-user").await else { return };
    let (roles, role_bindings) = (Api::<ClusterRole>::all(env.admin.clone()), env.namespace.api::<RoleBinding>());
    let of_openshift: ClusterRole =
        object(json!({ "metadata": { "name": "system:openshift:scc:anyuid" }, "rules": [] }));
    roles.create(&PostParams::default(), &of_openshift).await.unwrap();
    env.create("plain", plain_spec()).await;
    let account = env.account().await;
    let controller = env.run(&account, Scope::Cluster);
    env.until_settled("plain").await;
    assert!(role_bindings.list(&ListParams::default()).await.unwrap().items.is_empty());
    controller.stop().await;

    let guide = include_str!("../../../../../docs/llamastack-guide.md");
    let block = guide.split("```yaml\n").find(|block| block.contains("name: steersman-anyuid")).unwrap();
    let permission: ClusterRole = serde_saphyr::from_str(block.split("```").next().unwrap()).unwrap();
    roles.create(&PostParams::default(), &permission).await.unwrap();
    let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": "steersman-anyuid" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "steersman-anyuid" },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }] }));
    let cluster_bindings: Api<ClusterRoleBinding> = Api::all(env.admin.clone());
    cluster_bindings.create(&PostParams::default(), &binding).await.unwrap();
    wait::until_allowed(&account, "create", "rbac.authorization.k8s.io", "rolebindings", None).await.unwrap();
    let controller = env.run(&account, Scope::Cluster);
    let bound = wait::until(role_bindings, "plain-rb", "exists", wait::TIMEOUT, |_: &RoleBinding| true).await.unwrap();
    assert_eq!(bound.role_ref.name, "system:openshift:scc:anyuid");
    assert_eq!(bound.subjects.unwrap()[0].name, "plain-sa");
    for role in ["system:openshift:scc:anyuid", "steersman-anyuid"] {
        roles.delete(role, &DeleteParams::default()).await.unwrap();
    }
    cluster_bindings.delete("steersman-anyuid", &DeleteParams::default()).await.unwrap();
    env.stop(controller).await;
}
