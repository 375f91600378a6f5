//! The attacker's variant claims more GPUs than the cluster has. The limiter divides the GPUs among all tenants.

use serde_json::json;

use super::hostile_metrics::pod_addresses;
use crate::network::{pod_metrics, serves};
use crate::tenants::{HostileCase, variant, workload};

/// Replicas of the attacker, whose pods request no GPU.
const REPLICAS: usize = 5;

/// GPUs count that pods request, not those that a spec claims.
#[tokio::test]
async fn claimed_accelerators_starve_nobody() {
    let Some(case) = HostileCase::open("claims").await else { return };
    case.attacker.apply(workload("claims", REPLICAS, json!({}))).await.unwrap();
    for address in pod_addresses(&case.attacker, REPLICAS).await {
        case.env.network.inside.set(&format!("{address}:8000"), serves(pod_metrics(0.99, 100)));
    }
    let claim = json!({ "accelerator": "H100", "acceleratorCount": 1_000, "variantCost": "0.01" });
    let claims = variant("claims", claim);
    case.attacker.apply(claims.clone()).await.unwrap();
    case.env
        .expect_in_time("the claim is decided on", async || {
            let status = case.attacker.read(&claims).await["status"].take();
            status["desiredOptimizedAlloc"]["numReplicas"].as_i64().map(|_| ())
        })
        .await;
    case.expect_victim_served().await;
    case.expect_victim_scaled_up().await;
}
