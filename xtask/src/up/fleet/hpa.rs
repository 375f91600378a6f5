//! Simulates the HPA of each workload: reads the desired replicas from Prometheus, as a metrics adapter does, and scales.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::Cluster;
use tokio::time;

use crate::up::observe::Notes;

/// Shorter than the 15 seconds of a real HPA, so that users see the effect soon.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// Never returns, except with an error.
pub async fn simulate(cluster: &Cluster, admin: &Client, namespace: &str, notes: &Notes) -> Result<()> {
    let workloads: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
    // The label `namespace` is that of the operator's pod, as with a ServiceMonitor, so the metric's own label is renamed.
    let query = format!("wva_desired_replicas{{exported_namespace=\"{namespace}\",target_kind=\"Deployment\"}}");
    loop {
        time::sleep(SYNC_INTERVAL).await;
        // A real HPA does not scale either while Prometheus is unavailable.
        let Ok(Value::Array(series)) = cluster.query(&query).await else { continue };
        for (name, wanted) in series.iter().filter_map(wanted) {
            let Ok(scale) = workloads.get_scale(name).await else { continue };
            let current = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
            if current != wanted {
                notes.send(format!("the HPA scales {name} from {current} to {wanted} replicas"))?;
                let patch = Patch::Merge(json!({ "spec": { "replicas": wanted } }));
                // An error is ignored: the next iteration tries again.
                let _ = workloads.patch_scale(name, &PatchParams::default(), &patch).await;
            }
        }
    }
}

/// The name of the workload of a series, and its desired replicas.
fn wanted(series: &Value) -> Option<(&str, i32)> {
    let value = series["value"][1].as_str()?.parse::<f64>().ok().filter(|value| (0.0..1000.0).contains(value))?;
    Some((series["metric"]["target_name"].as_str()?, value.ceil() as i32))
}
