//! The attacker wants more GPUs than the cluster has: by replicas that no node has room for, and by numbers that it writes to the
//! status of its object. The limiter divides the GPUs among all tenants.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::tenants::{HostileCase, objects, variant, workload};

/// GPUs of one replica. A node has eight.
const GPUS: &str = "64";

const REPLICAS: usize = 40;

/// The status of a decision for a thousand replicas.
fn written_status() -> Value {
    let now = jiff::Timestamp::now();
    json!({ "status": { "currentAlloc": { "numReplicas": 1_000 },
        "desiredOptimizedAlloc": { "numReplicas": 1_000, "accelerator": "H100", "lastRunTime": now } } })
}

/// The victim's variant grows meanwhile.
#[tokio::test]
async fn unschedulable_replicas_and_written_statuses_starve_nobody() {
    let Some(case) = HostileCase::open("status").await else { return };
    let resources = json!({ "requests": { "nvidia.com/gpu": GPUS }, "limits": { "nvidia.com/gpu": GPUS } });
    let (unschedulable, unreadable) = (
        variant("claims", json!({ "accelerator": "H100", "variantCost": "0.01" })),
        variant(
            "nothing",
            json!({ "accelerator": "H100", "modelID": "n",
            "scaleTargetRef": { "apiVersion": "example.com/v1", "kind": "Nothing", "name": "nothing" } }),
        ),
    );
    case.attacker.apply(workload("claims", REPLICAS, resources)).await.unwrap();
    for claim in [&unschedulable, &unreadable] {
        case.attacker.apply(claim.clone()).await.unwrap();
    }
    let write = async || {
        for claim in [&unschedulable, &unreadable] {
            let (name, patch) = (claim["metadata"]["name"].as_str().unwrap(), Patch::Merge(written_status()));
            let own = objects(&case.attacker.client, case.attacker.name(), claim);
            own.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
    };
    write().await;
    case.env
        .expect_in_time("the operator has decided on the written number", async || {
            let status = case.attacker.read(&unschedulable).await["status"].take();
            (!status["decision"].is_null()).then_some(())
        })
        .await;
    let repeated = async {
        let mut ticks = interval(Duration::from_millis(300));
        loop {
            ticks.tick().await;
            write().await;
        }
    };
    tokio::select! {
        () = repeated => {}
        () = async { case.expect_victim_served().await; case.expect_victim_scaled_up().await } => {}
    }
}
