//! Shows what pods do: a line each time one of them changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use steersman_testkit::Cluster;
use tokio::time;

/// How often the pods are looked at, and how long a look may take.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// Prints the state of every pod in `namespace` whenever it changes, until a program of the cluster ends.
pub async fn pods(cluster: &mut Cluster, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin().await?, namespace);
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        cluster.ensure_running()?;
        // Bounded: a call can hang because a program has just died, which only the line above can tell.
        let listed = match time::timeout(LOOK_LIMIT, pods.list(&ListParams::default())).await {
            Ok(Ok(listed)) => listed.items,
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        for pod in listed {
            let (name, state) = (pod.name_any(), state(&pod));
            if known.get(&name) != Some(&state) {
                println!("pod {name:<32} {state}");
                known.insert(name, state);
            }
        }
        time::sleep(LOOK_EVERY).await;
    }
}

/// What `kubectl get pods` shows in its columns, and the node.
fn state(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "Unknown".to_owned() };
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers.clone().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let phase = status.phase.clone().unwrap_or_default();
    let ready = containers.clone().filter(|container| container.ready).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let place = node.map_or_else(|| unschedulable(pod), |node| format!("on {node}"));
    format!("{ready}/{all} {:<18} {place}", waiting.unwrap_or(phase))
}

fn unschedulable(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodScheduled")
        .find_map(|condition| condition.message.clone())
        .unwrap_or_default()
}
