//! A LlamaStackDistribution with the real llama-stack server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::real_node::network::send;
use steersman_testkit::real_node::scenario::{MODEL, NAMESPACE, SERVER};

use crate::env::{objects, shared, wait_for_status};

/// Pause between two requests during a rollout.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);

#[tokio::test]
async fn real_server_answers_across_spec_change() {
    let Some(shared) = shared().await else { return };
    let cluster = shared.cluster;
    cluster.apply(SERVER).await.unwrap();
    let ready = |status: &serde_json::Value| status["phase"] == "Ready";
    wait_for_status(cluster, Family::Llsd, "stack", "is Ready", ready).await;
    let url = cluster.service_url(NAMESPACE, "stack-service").await.unwrap();
    let model = cluster.wait_for_model(&url, MODEL).await.unwrap();
    let text = cluster.chat(&url, &model).await.unwrap();
    assert!(!text.trim().is_empty(), "{text:?}");

    // Requests go on, each on a new connection, while the spec changes and the new pods take over.
    let stop = Arc::new(AtomicBool::new(false));
    let requests = cluster.in_network({
        let (stop, url) = (stop.clone(), url.clone());
        async move || {
            let (mut answered, mut failed) = (0_u32, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                match send(&url, "/v1/models", None).await {
                    Ok((status, _)) if status.is_success() => answered += 1,
                    other => failed.push(format!("{other:?}")),
                }
                tokio::time::sleep(REQUEST_INTERVAL).await;
            }
            (answered, failed)
        }
    });
    let change = async {
        let servers = objects(cluster, Family::Llsd).await;
        let before = servers.get("stack").await.unwrap().metadata.generation;
        let disabled = json!({ "spec": { "disabled": ["eval"] } });
        servers.patch("stack", &PatchParams::default(), &Patch::Merge(disabled)).await.unwrap();
        assert!(servers.get("stack").await.unwrap().metadata.generation > before, "the spec has not changed");
        cluster.wait_for_rollout(NAMESPACE, "stack", 1).await.unwrap();
        wait_for_status(cluster, Family::Llsd, "stack", "is Ready again", ready).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (requests, ()) = tokio::join!(requests, change);
    let (answered, failed) = requests.unwrap();
    assert!(failed.is_empty(), "{} of {} requests failed: {:#?}", failed.len(), answered, failed.first());
    assert!(answered > 20, "only {answered} requests were sent");
    cluster.chat(&url, &model).await.unwrap();
}
