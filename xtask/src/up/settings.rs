//! The settings of VariantAutoscalings, as the example has them, with the Prometheus that runs here.
//! Comes in: the cluster; goes out: ConfigMaps in the operator's namespace, before it starts.

use std::fs;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use steersman::installation;
use steersman_testkit::{Cluster, apply};

pub const EXAMPLE: &str = "examples/variant/settings.yaml";

/// The one of the maps that says where Prometheus is.
const MAIN: &str = "workload-variant-autoscaler-variantautoscaling-config";

/// Nobody wants to sit before a screen for long.
const LOOK_EVERY: &str = "10s";

pub async fn apply(cluster: &Cluster, admin: &Client) -> Result<()> {
    let manifests =
        fs::read_to_string(crate::root().join(EXAMPLE)).with_context(|| format!("cannot read {EXAMPLE}"))?;
    apply::manifests(admin, Some(installation::NAMESPACE), &manifests).await?;
    let url = cluster.description().prometheus_url.as_ref().context("this cluster has no Prometheus")?;
    let here = json!({ "data": {
        "GLOBAL_OPT_INTERVAL": LOOK_EVERY,
        "PROMETHEUS_BASE_URL": url,
        "PROMETHEUS_CA_CERT_PATH": cluster.certificate_authority(),
        // It lets everybody in.
        "PROMETHEUS_TOKEN_PATH": null,
    } });
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), installation::NAMESPACE);
    maps.patch(MAIN, &PatchParams::default(), &Patch::Merge(here)).await?;
    Ok(())
}
