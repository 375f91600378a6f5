//! Plays whoever runs graphs.
//! Comes in: DynamoGraphDeployments; goes out: a status that says pending at first, and after a while successful.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use steersman_testkit::graphs;
use tokio::time;

use super::show::{self, LOOK_EVERY, listed};

/// How long a graph takes until all of it serves.
const STARTS: Duration = Duration::from_secs(6);

/// Without end.
pub async fn play(admin: Client, namespace: &str) -> Result<()> {
    let api = show::graphs(&admin, namespace);
    let mut since: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        for graph in listed(&api).await.unwrap_or_default() {
            let began = *since.entry(graph.uid().unwrap_or_default()).or_insert_with(Instant::now);
            let state = graph.data["status"]["state"].as_str();
            let next = match state {
                None => Some(("pending", "Resources not ready: no pod is ready")),
                Some("pending") if began.elapsed() >= STARTS => Some(("successful", "All resources are ready")),
                // Another state is what somebody at a terminal wants to see.
                Some(_) => None,
            };
            if let Some((state, why)) = next {
                let told = graphs::is(&api, &graph.name_any(), state, why, &components(&graph, state)).await;
                // A graph can go while it is looked at.
                let _ = told;
            }
        }
        time::sleep(LOOK_EVERY).await;
    }
}

/// Of the status: all of what the spec wants, or nothing yet.
fn components(graph: &DynamicObject, state: &str) -> Value {
    let wanted = graph.data["spec"]["components"].as_array().into_iter().flatten();
    let each = wanted.filter_map(|component| {
        let replicas = component["replicas"].as_u64().unwrap_or(1);
        let available = if state == "successful" { replicas } else { 0 };
        let told = json!({ "replicas": replicas, "availableReplicas": available });
        Some((component["name"].as_str()?.to_owned(), told))
    });
    Value::Object(each.collect::<Map<_, _>>())
}
