//! Renders `deploy/network-policy.yaml`, which limits the ports of the operator's pods.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;

use crate::installation::{HEALTH_PORT, METRICS_PORT, NAME, NAMESPACE, WEBHOOK_PORT, labels};

const HEADER: &str = "\
# Generated from the code; do not edit it in the repository. `cargo xtask check` fails if this file differs.
#
# Pods of the operator accept connections on these ports only:
# - 9443, the webhooks: from everywhere. API servers run outside the pod network, so no selector matches them. If you know their
#   addresses, add them to this rule, and nobody else reaches the webhooks:
#     from:
#     - ipBlock: {cidr: 10.0.0.0/28}
# - 8081, health: from everywhere. Kubelets send probes from the addresses of their nodes.
# - 8080, metrics: from pods of the cluster. By default the operator serves metrics on a loopback address, which this rule does
#   not open.
";

#[derive(Debug, thiserror::Error)]
#[error("cannot serialize the NetworkPolicy as YAML: {0}")]
pub struct NetworkPolicyRenderError(#[from] serde_saphyr::ser_error::Error);

/// The file `deploy/network-policy.yaml`.
pub fn file() -> Result<String, NetworkPolicyRenderError> {
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&policy())?))
}

fn policy() -> NetworkPolicy {
    let pods_of_the_cluster =
        NetworkPolicyPeer { namespace_selector: Some(LabelSelector::default()), ..NetworkPolicyPeer::default() };
    let metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    };
    let spec = NetworkPolicySpec {
        pod_selector: Some(LabelSelector { match_labels: Some(labels()), match_expressions: None }),
        policy_types: Some(vec!["Ingress".to_owned()]),
        ingress: Some(vec![
            rule(WEBHOOK_PORT, None),
            rule(HEALTH_PORT, None),
            rule(METRICS_PORT, Some(vec![pods_of_the_cluster])),
        ]),
        egress: None,
    };
    NetworkPolicy { metadata, spec: Some(spec) }
}

/// Accepts connections to the port. `from` is absent for every source.
fn rule(port: u16, from: Option<Vec<NetworkPolicyPeer>>) -> NetworkPolicyIngressRule {
    let port = NetworkPolicyPort {
        port: Some(IntOrString::Int(port.into())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    };
    NetworkPolicyIngressRule { ports: Some(vec![port]), from }
}
