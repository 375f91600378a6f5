//! Plays the HPA of every VariantAutoscaling's workload.
//! Comes in: the number that the operator publishes, read from Prometheus as an HPA's adapter would; goes out: replicas.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::Cluster;
use tokio::time;

/// An HPA looks every 15 seconds.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Without end.
pub async fn play(cluster: &Cluster, admin: &Client, namespace: &str) -> Result<()> {
    let workloads: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
    // The operator's own label gives way to that of its pod, as with a ServiceMonitor.
    let number = format!("wva_desired_replicas{{exported_namespace=\"{namespace}\",target_kind=\"Deployment\"}}");
    loop {
        time::sleep(LOOK_EVERY).await;
        // While Prometheus does not answer, an HPA does nothing either.
        let Ok(Value::Array(series)) = cluster.query(&number).await else { continue };
        for (name, wanted) in series.iter().filter_map(wanted) {
            let Ok(scale) = workloads.get_scale(name).await else { continue };
            let has = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
            if has != wanted {
                println!("played: the HPA of {name} goes from {has} to {wanted} replicas");
                let patch = Patch::Merge(json!({ "spec": { "replicas": wanted } }));
                // Nothing is lost if it fails: it is looked at again.
                let _ = workloads.patch_scale(name, &PatchParams::default(), &patch).await;
            }
        }
    }
}

/// The workload of a series, and its number.
fn wanted(series: &Value) -> Option<(&str, i32)> {
    let value = series["value"][1].as_str()?.parse::<f64>().ok().filter(|value| (0.0..1000.0).contains(value))?;
    Some((series["metric"]["target_name"].as_str()?, value.ceil() as i32))
}
