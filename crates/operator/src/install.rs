//! Renders `deploy/install.yaml`: everything that a cluster needs to run the operator, in one file.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::admission::{self, WebhookRenderError};
use crate::crds::{self, CrdRenderError, WEBHOOK_SERVICE};
use crate::installation::{HEALTH_PORT, METRICS_PORT, NAME, NAMESPACE, WEBHOOK_PORT, labels};
use crate::network_policy::{self, NetworkPolicyRenderError};
use crate::rbac::{self, RbacRenderError};

/// Image of the shipped Deployment. It names no registry: whoever installs Steersman sets the one that has the image.
pub const IMAGE: &str = concat!("steersman:", env!("CARGO_PKG_VERSION"));

/// User and group of the image.
pub const USER: u32 = 65_532;

const HEADER: &str = "\
# Generated from the code; do not edit it in the repository. `cargo xtask check` fails if this file differs.
#
# Installs Steersman with the CRDs and webhooks of all families:
#   kubectl apply --server-side -f deploy/install.yaml
# The image has no registry. Push it to yours (`cargo xtask image --push`), then replace its name, here or while applying:
#   sed 's|steersman:VERSION|REGISTRY/steersman:VERSION|' deploy/install.yaml | kubectl apply --server-side -f -
";

#[derive(Debug, thiserror::Error)]
pub enum InstallRenderError {
    #[error(transparent)]
    Crd(#[from] CrdRenderError),
    #[error(transparent)]
    Rbac(#[from] RbacRenderError),
    #[error(transparent)]
    NetworkPolicy(#[from] NetworkPolicyRenderError),
    #[error(transparent)]
    Webhook(#[from] WebhookRenderError),
    #[error("cannot serialize a manifest as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser_error::Error),
    #[error("a manifest does not have the fields of its kind: {0}")]
    Manifest(#[from] serde_json::Error),
}

/// The file `deploy/install.yaml`. The namespace comes first, and the webhooks last: until their server runs, they reject
/// objects.
pub fn file() -> Result<String, InstallRenderError> {
    let mut parts = vec![rbac::manifests()?];
    for family in steersman_api::crds::FAMILIES {
        parts.push(crds::file(family)?);
    }
    parts.extend(workload()?);
    parts.push(admission::file()?);
    let documents: Vec<String> = parts.iter().map(|part| without_comments(part)).collect();
    Ok(HEADER.replace("VERSION", env!("CARGO_PKG_VERSION")) + &documents.join("---\n"))
}

/// The documents of the Deployment and of the objects around it, without roles, CRDs and webhook configurations.
pub fn workload() -> Result<Vec<String>, InstallRenderError> {
    Ok(vec![
        without_comments(&network_policy::file()?),
        yaml::<Service>(service())?,
        yaml::<PodDisruptionBudget>(disruption_budget())?,
        yaml::<Deployment>(deployment())?,
    ])
}

/// The manifest as YAML. The type checks the names of its fields.
fn yaml<T: DeserializeOwned + Serialize>(manifest: Value) -> Result<String, InstallRenderError> {
    let typed: T = serde_json::from_value(manifest)?;
    Ok(serde_saphyr::to_string(&typed)?)
}

/// Drops the comments before the first line of a file: they are about that file alone.
fn without_comments(file: &str) -> String {
    let body = file.lines().skip_while(|line| line.starts_with('#') || *line == "---");
    body.map(|line| format!("{line}\n")).collect()
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE, "labels": labels() })
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(WEBHOOK_SERVICE),
        "spec": {
            "selector": labels(),
            "ports": [{ "name": "webhooks", "port": 443, "protocol": "TCP", "targetPort": WEBHOOK_PORT }],
        },
    })
}

/// A drain of nodes leaves one replica, which serves the webhooks.
fn disruption_budget() -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(NAME),
        "spec": {
            "minAvailable": 1,
            "selector": { "matchLabels": labels() },
            // A replica that does not become ready must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

/// Two replicas: one leads, both serve the webhooks.
fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME),
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels() },
            "template": { "metadata": { "labels": labels() }, "spec": pod() },
        },
    })
}

fn pod() -> Value {
    json!({
        "serviceAccountName": NAME,
        // Longer than the operator needs to finish its reconciles and to release the Lease.
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": labels() },
        }],
        "containers": [container()],
    })
}

fn container() -> Value {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "health" } });
    json!({
        "name": NAME,
        "image": IMAGE,
        // Metrics need a token of an account that may read them.
        "args": ["run", format!("--metrics-address=0.0.0.0:{METRICS_PORT}")],
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            { "name": "OPERATOR_IMAGE", "value": IMAGE },
        ],
        "ports": [
            { "name": "webhooks", "containerPort": WEBHOOK_PORT, "protocol": "TCP" },
            { "name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" },
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "512Mi" } },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    })
}
