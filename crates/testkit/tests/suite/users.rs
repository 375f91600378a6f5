use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{ListParams, PostParams};
use serde_json::json;
use steersman_testkit::wait;

use steersman_testkit::object;

use crate::support::full_cluster;

#[tokio::test]
async fn user_without_permissions_is_forbidden() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("refused").await.unwrap();
    let mallory = cluster.user("mallory").await.unwrap();
    let error = namespace.api_as::<Secret>(&mallory).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("expected a response of the API server: {error}") };
    assert!(status.is_forbidden());
    assert!(status.message.contains("User \"mallory\" cannot list resource \"secrets\""), "{}", status.message);
}

#[tokio::test]
async fn role_grants_only_its_permissions() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("role").await.unwrap();
    grant(&namespace, json!({ "kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io" })).await;
    let alice = cluster.user("alice").await.unwrap();
    wait::until_allowed(&alice, "create", "", "configmaps", Some(namespace.name())).await.unwrap();
    let config_map: ConfigMap = object(json!({ "metadata": { "name": "wish" } }));
    namespace.api_as::<ConfigMap>(&alice).create(&PostParams::default(), &config_map).await.unwrap();
    let error = namespace.api_as::<Secret>(&alice).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_forbidden()));
    let other_namespace = cluster.namespace("role-elsewhere").await.unwrap();
    let error = other_namespace.api_as::<ConfigMap>(&alice).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_forbidden()));
}

#[tokio::test]
async fn service_account_acts_under_its_own_name() {
    let cluster = full_cluster!();
    let namespace = cluster.namespace("account").await.unwrap();
    let account: ServiceAccount = object(json!({ "metadata": { "name": "robot" } }));
    namespace.api().create(&PostParams::default(), &account).await.unwrap();
    let robot = cluster.service_account(namespace.name(), "robot").await.unwrap();
    let error = namespace.api_as::<ConfigMap>(&robot).list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("system:serviceaccount:{}:robot", namespace.name())), "{error}");
    grant(&namespace, json!({ "kind": "ServiceAccount", "name": "robot", "namespace": namespace.name() })).await;
    wait::until_allowed(&robot, "list", "", "configmaps", Some(namespace.name())).await.unwrap();
    namespace.api_as::<ConfigMap>(&robot).list(&ListParams::default()).await.unwrap();
}

/// Grants `subject` the permission to create and list ConfigMaps in `namespace`.
async fn grant(namespace: &steersman_testkit::Namespace, subject: serde_json::Value) {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let rule = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"] });
    let role: Role = object(json!({ "metadata": { "name": "wishes" }, "rules": [rule] }));
    namespace.api().create(&PostParams::default(), &role).await.unwrap();
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "wishes" });
    let binding: RoleBinding =
        object(json!({ "metadata": { "name": "wishes" }, "roleRef": reference, "subjects": [subject] }));
    namespace.api().create(&PostParams::default(), &binding).await.unwrap();
}
