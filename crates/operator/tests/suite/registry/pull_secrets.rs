//! Pull secrets, read from a real API server by an account with exactly the rights that the code declares.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman::installation::SecretAccess;
use steersman::llamastack::oci::{
    ClusterCredentials, CredentialSource, ImageRequest, PullCredentials, rules, secret_rules,
};
use steersman_plan::oci::{ImageReference, Login, TYPE_DOCKERCONFIGJSON};
use steersman_testkit::{Flavour, shared_cluster, wait};

use super::docker_config;
use super::fake::HOST;
use crate::server::server;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The passwords for an image, in the order in which they would be tried.
fn passwords(gathered: &PullCredentials) -> Vec<String> {
    let image = ImageReference::parse(&format!("{HOST}/a/b:1")).unwrap();
    let password = |login: &Login| match login {
        Login::Password { password, .. } => Some(password.reveal().clone()),
        _ => None,
    };
    gathered.credentials.logins(&image).into_iter().filter_map(password).collect()
}

#[tokio::test]
async fn pod_pull_secrets_override_the_accounts() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("pull").await.unwrap();
    let admin = cluster.admin().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace.name());
    for (name, type_) in [("account", TYPE_DOCKERCONFIGJSON), ("pod", TYPE_DOCKERCONFIGJSON), ("other", "Opaque")] {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            type_: Some(type_.to_owned()),
            data: Some(docker_config(HOST, "u", &format!("of-{name}"))),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace.name());
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "runner" },
        "imagePullSecrets": [{ "name": "account" }, { "name": "gone" }, { "name": "other" }],
    });
    accounts.patch("runner", &PatchParams::apply("test"), &Patch::Apply(account)).await.unwrap();
    let rules: Vec<Value> = [rules(), secret_rules()]
        .concat()
        .iter()
        .map(|rule| json!({ "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs }))
        .collect();
    let manifests = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "operator" } }),
        json!({ "apiVersion": RBAC, "kind": "Role", "metadata": { "name": "operator" }, "rules": rules }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": "operator" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator" },
            "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": namespace.name() }],
        }),
    ];
    namespace.apply(&manifests.map(|manifest| manifest.to_string()).join("\n---\n")).await.unwrap();
    let operator = cluster.service_account(namespace.name(), "operator").await.unwrap();
    let namespaced = Some(namespace.name());
    wait::until_allowed(&operator, "get", "", "serviceaccounts", namespaced).await.unwrap();
    let logins = ClusterCredentials::new(server(cluster, operator), SecretAccess::Get);
    let want = |account: &str, pull_secrets: &[&str]| ImageRequest {
        namespace: namespace.name().to_owned(),
        name: "one".to_owned(),
        image: format!("{HOST}/a/b:1"),
        service_account: account.to_owned(),
        pull_secrets: pull_secrets.iter().map(ToString::to_string).collect(),
    };

    let of_account = logins.of(&want("runner", &[])).await;
    assert_eq!(passwords(&of_account), ["of-account"]);
    assert_eq!(of_account.remarks[0], "the pull secret \"gone\" does not exist");
    assert!(of_account.remarks[1].starts_with("Secret \"other\" has the type \"Opaque\""), "{:?}", of_account.remarks);

    let of_pod = logins.of(&want("runner", &["pod"])).await;
    assert_eq!((passwords(&of_pod), of_pod.remarks.len()), (vec!["of-pod".to_owned()], 0));

    let none = logins.of(&want("nobody", &[])).await;
    assert!(none.credentials.is_empty());
    assert_eq!(none.remarks, ["the service account \"nobody\" does not exist yet"]);
}
