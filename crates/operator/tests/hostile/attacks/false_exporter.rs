//! The attacker runs pods that look like DCGM exporters and report GPUs that do not exist.

use std::fmt::Write;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use steersman_testkit::wait;

use crate::env::{GPU_NODES, PLAIN_NODES};
use crate::network::serves;
use crate::tenants::{HostileCase, request};

/// GPUs that each exporter reports.
const CLAIMED_GPUS: usize = 1_000;

fn metrics() -> String {
    let mut text = String::new();
    for gpu in 0..CLAIMED_GPUS {
        writeln!(text, "DCGM_FI_DEV_GPU_TEMP{{gpu=\"{gpu}\",modelName=\"NVIDIA B200\"}} 40").unwrap();
        writeln!(text, "DCGM_FI_DEV_FB_FREE{{gpu=\"{gpu}\"}} 180000").unwrap();
    }
    text
}

/// Runs an exporter on every node, as the GPU operator does.
fn exporters() -> Value {
    let labels = json!({ "app": "nvidia-dcgm-exporter", "app.kubernetes.io/name": "dcgm-exporter" });
    let containers = json!([{ "name": "exporter", "image": "example.com/dcgm-exporter:1" }]);
    json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "nvidia-dcgm-exporter" }, "spec": {
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } } } })
}

/// The victim's request gets the GPUs of the nodes, and the exporters are not even asked.
#[tokio::test]
async fn exporters_of_tenants_are_not_believed() {
    let Some(case) = HostileCase::open("exporter").await else { return };
    case.attacker.apply(exporters()).await.unwrap();
    let pods = case.attacker.namespace.api::<Pod>();
    let addresses = wait::eventually("an exporter runs on every node", async || {
        let listed = pods.list(&ListParams::default()).await.ok()?;
        let address = |pod: Pod| pod.status.filter(|status| status.phase.as_deref() == Some("Running"))?.pod_ip;
        let addresses: Vec<String> = listed.items.into_iter().filter_map(address).collect();
        (addresses.len() == (GPU_NODES + PLAIN_NODES) as usize).then_some(addresses)
    });
    let addresses = addresses.await.unwrap();
    for address in &addresses {
        case.env.network.inside.set(&format!("{address}:9400"), serves(metrics()));
    }
    let mut undescribed = request("undescribed");
    undescribed["spec"].as_object_mut().unwrap().remove("hardware");
    case.victim.apply(undescribed.clone()).await.unwrap();
    let time = case.env.expect_in_time("the GPUs of the nodes are discovered", async || {
        let discovered = case.victim.read(&undescribed).await;
        let hardware = &discovered["spec"]["hardware"];
        let (sku, total) = (&hardware["gpuSku"], &hardware["totalGpus"]);
        assert!(sku.is_null() || (sku, total) == (&json!("h100_sxm"), &json!(GPU_NODES * 8)), "false GPUs: {hardware}");
        hardware["gpuSku"].is_string().then_some(())
    });
    println!("GPUs are discovered within {:?}", time.await);
    case.expect_victim_served().await;
    let asked = case.env.network.inside.hosts();
    assert!(!addresses.iter().any(|address| asked.contains(&format!("{address}:9400"))), "an exporter was asked");
}
