//! The shipped NetworkPolicy: accepted by a real API server, and no wider than its ports.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;
use steersman::installation::{HEALTH_PORT, METRICS_PORT, NAME, NAMESPACE, WEBHOOK_PORT};
use steersman::network_policy::file;
use steersman_testkit::{Flavour, shared_cluster};

use crate::command::{kubectl, output_of};

#[tokio::test]
async fn network_policy_limits_ports_of_the_operator() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network-policy.yaml");
    // The namespace of the operator may not exist yet.
    let text = file().unwrap().replace(&format!("namespace: {NAMESPACE}\n"), "namespace: default\n");
    std::fs::write(&path, text).unwrap();
    let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f"];
    let accepted = output_of(kubectl(cluster, &apply).arg(&path)).ok();
    let accepted: NetworkPolicy = serde_json::from_str(&accepted).unwrap();
    let spec = json!(accepted.spec);
    assert_eq!(spec["podSelector"], json!({ "matchLabels": { "app.kubernetes.io/name": NAME } }));
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    let port = |port: u16| json!([{ "port": port, "protocol": "TCP" }]);
    let expected = json!([
        { "ports": port(WEBHOOK_PORT) },
        { "ports": port(HEALTH_PORT) },
        { "ports": port(METRICS_PORT), "from": [{ "namespaceSelector": {} }] },
    ]);
    assert_eq!(spec["ingress"], expected);
}
