//! Applies the ConfigMaps of the VariantAutoscaling example before the operator starts, with the address of the local
//! Prometheus.

use std::fs;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman::installation;
use steersman_testkit::{Cluster, apply};

pub const EXAMPLE: &str = "examples/variant/settings.yaml";

/// The ConfigMap with the address of Prometheus.
const MAIN_CONFIG_MAP: &str = "workload-variant-autoscaler-variantautoscaling-config";

/// Short, so that users see changes soon.
const RECONCILE_INTERVAL: &str = "10s";

pub async fn apply(cluster: &Cluster, admin: &Client) -> Result<()> {
    let manifests =
        fs::read_to_string(crate::root().join(EXAMPLE)).with_context(|| format!("cannot read {EXAMPLE}"))?;
    apply::apply_manifests(admin, Some(installation::NAMESPACE), &manifests).await?;
    let url = cluster.description().prometheus_url.as_ref().context("this cluster has no Prometheus")?;
    let overrides = json!({ "data": {
        "GLOBAL_OPT_INTERVAL": RECONCILE_INTERVAL,
        "PROMETHEUS_BASE_URL": url,
        "PROMETHEUS_CA_CERT": fs::read_to_string(cluster.certificate_authority())?,
    } });
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), installation::NAMESPACE);
    maps.patch(MAIN_CONFIG_MAP, &PatchParams::default(), &Patch::Merge(overrides)).await?;
    Ok(())
}
