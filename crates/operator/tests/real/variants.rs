//! A VariantAutoscaling of Dynamo's engine simulator, whose metrics Prometheus scrapes in the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use steersman_api::Family;
use steersman_testkit::real_node::network::send;
use steersman_testkit::real_node::scenario::{MODEL, NAMESPACE, VARIANT, chat_request};

use crate::env::{shared, wait_for_status};

/// Concurrent requests: more than the simulator runs at once.
const CLIENTS: usize = 24;

/// Length of the answers. It determines for how long a request occupies the engine.
const ANSWER_TOKENS: u32 = 400;

#[tokio::test]
async fn real_load_raises_and_lowers_replicas() {
    let Some(shared) = shared().await else { return };
    let cluster = shared.cluster;
    cluster.apply(VARIANT).await.unwrap();
    let wants = |count: i64| move |status: &Value| status["desiredOptimizedAlloc"]["numReplicas"] == count;
    wait_for_status(cluster, Family::Va, "engine", "wants 1 replica without load", wants(1)).await;

    let url = cluster.service_url(NAMESPACE, "engine").await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let load = cluster.in_network({
        let stop = stop.clone();
        async move || {
            let client = || async {
                let mut answered = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let response = send(&url, "/v1/chat/completions", Some(chat_request(MODEL, ANSWER_TOKENS))).await;
                    answered += u32::from(response.is_ok_and(|(status, _)| status.is_success()));
                }
                answered
            };
            futures::future::join_all((0..CLIENTS).map(|_| client())).await.into_iter().sum::<u32>()
        }
    });
    let rise = async {
        let raised = wait_for_status(cluster, Family::Va, "engine", "wants 2 replicas under load", wants(2)).await;
        stop.store(true, Ordering::Relaxed);
        raised
    };
    let (answered, raised) = tokio::join!(load, rise);
    assert!(answered.unwrap() > 0, "no request was answered");
    assert_eq!(raised["decision"]["decidedBy"], "signal", "{raised:#}");
    wait_for_status(cluster, Family::Va, "engine", "wants 1 replica after the load", wants(1)).await;
}
