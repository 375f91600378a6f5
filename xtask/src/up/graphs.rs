//! Simulates the operator of DynamoGraphDeployments: the status of a graph is `pending` first, and `successful` after a
//! while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use steersman_testkit::fake_graphs;
use tokio::time;

use super::observe::{self, POLL_INTERVAL, list};

/// Time until all components of a graph are available.
const START_DURATION: Duration = Duration::from_secs(6);

/// Never returns, except with an error.
pub async fn simulate(admin: Client, namespace: &str) -> Result<()> {
    let api = observe::graphs(&admin, namespace);
    let mut since: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        for graph in list(&api).await.unwrap_or_default() {
            let began = *since.entry(graph.uid().unwrap_or_default()).or_insert_with(Instant::now);
            let state = graph.data["status"]["state"].as_str();
            let next = match state {
                None => Some(("pending", "Resources not ready: no pod is ready")),
                Some("pending") if began.elapsed() >= START_DURATION => Some(("successful", "All resources are ready")),
                // A user may have set another state by hand; it is kept.
                Some(_) => None,
            };
            if let Some((state, why)) = next {
                // An error is ignored: the graph may have been deleted.
                let _ = fake_graphs::set_status(&api, &graph.name_any(), state, why, &components(&graph, state)).await;
            }
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// The components of the status: all replicas are available if the graph is `successful`, otherwise none.
fn components(graph: &DynamicObject, state: &str) -> Value {
    let wanted = graph.data["spec"]["components"].as_array().into_iter().flatten();
    let each = wanted.filter_map(|component| {
        let replicas = component["replicas"].as_u64().unwrap_or(1);
        let available = if state == "successful" { replicas } else { 0 };
        let component_status = json!({ "replicas": replicas, "availableReplicas": available });
        Some((component["name"].as_str()?.to_owned(), component_status))
    });
    Value::Object(each.collect::<Map<_, _>>())
}
