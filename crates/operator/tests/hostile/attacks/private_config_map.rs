//! The attacker's server refers to a ConfigMap of the victim.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::tenants::{HostileCase, config_map, server};

/// The spec of a server that trusts the certificates in a ConfigMap of this namespace.
fn spec(namespace: &str, name: &str) -> Value {
    json!({ "distribution": { "name": "starter" }, "networking": { "tls": { "caBundle": {
        "configMapName": name, "configMapNamespace": namespace } } } })
}

/// The labels of an earlier operator are no consent, and a rejection does not reveal whether the ConfigMap exists.
#[tokio::test]
async fn foreign_config_map_is_neither_read_nor_revealed() {
    let Some(case) = HostileCase::open("private").await else { return };
    let mut private = config_map("existing-one", json!({ "ca-bundle.crt": "of-the-victim" }));
    private["metadata"]["labels"] = json!({ "llamastack.io/watch": "true" });
    case.victim.apply(private).await.unwrap();
    let rejection = async |name: &str| {
        let rejected = case.attacker.apply(server("thief", spec(case.victim.name(), name))).await;
        rejected.expect_err("the reference must be rejected").replace(name, "NAME")
    };
    let (existing, absent) = (rejection("existing-one").await, rejection("absent-one").await);
    assert_eq!(existing, absent);
    assert!(existing.contains("not found") || existing.contains("failed to find"), "{existing}");
    case.expect_victim_served().await;
    let maps = case.attacker.namespace.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    assert!(!json!(maps).to_string().contains("of-the-victim"));
}
