//! The pods of the attacker's variant answer scrapes with more than can be read, or not at all.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::json;
use steersman_testkit::{condition, wait};

use crate::fake_servers::Behaviour;
use crate::network::{pod_metrics, serves};
use crate::tenants::{HostileCase, Tenant, variant, workload};

/// Pods of the attacker, more than the operator scrapes at a time.
const PODS: usize = 48;

/// Ports that the operator scrapes.
const PORTS: [u16; 2] = [8000, 30_000];

const LINE: &str = "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n";

/// Waits until this number of pods of the tenant's workloads is ready, and returns their addresses.
pub async fn pod_addresses(tenant: &Tenant, count: usize) -> Vec<String> {
    let pods = tenant.namespace.api::<Pod>();
    let addresses = wait::eventually("the pods of the workload run", async || {
        let listed = pods.list(&ListParams::default().labels("app in (model,claims)")).await.ok()?;
        let ready = listed.items.into_iter().filter(steersman_testkit::pod_behaviour::is_ready);
        let addresses: Vec<String> = ready.filter_map(|pod| pod.status?.pod_ip).collect();
        (addresses.len() >= count).then_some(addresses)
    });
    addresses.await.unwrap()
}

/// Endless metrics at full speed, one line per second, an endless line, ten megabytes, many samples, and silence.
fn behaviours() -> Vec<Behaviour> {
    vec![
        Behaviour::Hangs,
        Behaviour::Endless(LINE, Duration::ZERO),
        Behaviour::Endless(LINE, Duration::from_secs(1)),
        Behaviour::Endless("x", Duration::ZERO),
        serves(LINE.repeat(10 * 1024 * 1024 / LINE.len())),
        serves(LINE.repeat(10_000)),
        Behaviour::Hangs,
        Behaviour::Hangs,
    ]
}

/// The pods of another namespace are scraped meanwhile, and decide about their own variant.
#[tokio::test]
async fn hostile_metrics_delay_no_decision() {
    let Some(case) = HostileCase::open("metrics").await else { return };
    case.attacker.apply(workload("model", PODS, json!({}))).await.unwrap();
    let addresses = pod_addresses(&case.attacker, PODS).await;
    let behaviours = behaviours();
    for (number, address) in addresses.iter().enumerate() {
        for port in PORTS {
            let behaviour = behaviours[number % behaviours.len()].clone();
            case.env.network.inside.set(&format!("{address}:{port}"), behaviour);
        }
    }
    case.attacker.apply(variant("model", json!({}))).await.unwrap();
    case.expect_victim_served().await;
    case.expect_victim_scaled_up().await;
    let hostile = case.attacker.read(&variant("model", json!({}))).await;
    assert_ne!(condition(&hostile, "MetricsAvailable")["status"], "True", "{hostile:#}");
}

impl HostileCase {
    /// Saturates the pod of the victim's variant, and waits until more replicas are desired.
    pub async fn expect_victim_scaled_up(&self) {
        let own = variant("model", json!({ "accelerator": "H100" }));
        self.victim.apply(own.clone()).await.unwrap();
        for address in pod_addresses(&self.victim, 1).await {
            self.env.network.inside.set(&format!("{address}:{}", PORTS[0]), serves(pod_metrics(0.95, 20)));
        }
        let time = self.env.expect_in_time("more replicas are desired", async || {
            let status = self.victim.read(&own).await["status"].take();
            (status["desiredOptimizedAlloc"]["numReplicas"].as_i64()? > 1).then_some(())
        });
        println!("the victim of {} is scaled up within {:?}", self.attacker.name(), time.await);
    }
}
