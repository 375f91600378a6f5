//! Shows what happens: a line each time a server, a request or a pod changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use steersman::controllers::stored_kind;
use steersman_api::Family;
use steersman_testkit::Cluster;
use steersman_testkit::process::Process;
use tokio::time;

/// How often the pods are looked at, and how long a look may take.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// Prints the state of every server, request and pod in `namespace` whenever it changes, until a program of the cluster ends.
pub async fn changes(cluster: &mut Cluster, operator: &mut Process, namespace: &str) -> Result<()> {
    let client = cluster.admin().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let objects = [Family::Llsd, Family::Dgdr].map(|family| {
        let stored = ApiResource::from_gvk(&stored_kind(family));
        (family, Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &stored))
    });
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        cluster.ensure_running()?;
        operator.ensure_running()?;
        let mut seen = Vec::new();
        for (family, objects) in &objects {
            for object in listed(objects).await {
                seen.push((format!("{} {:<31}", family.short_name(), object.name_any()), told(&object)));
            }
        }
        for pod in listed(&pods).await {
            seen.push((format!("pod {:<32}", pod.name_any()), state(&pod)));
        }
        for (name, state) in seen {
            if known.get(&name) != Some(&state) {
                println!("{name} {state}");
                known.insert(name, state);
            }
        }
        time::sleep(LOOK_EVERY).await;
    }
}

/// Bounded: a call can hang because a program has just died, which only looking at the programs can tell.
async fn listed<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Vec<K> {
    match time::timeout(LOOK_LIMIT, api.list(&ListParams::default())).await {
        Ok(Ok(listed)) => listed.items,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// The phase of an object, and why it is not another.
fn told(object: &DynamicObject) -> String {
    let status = &object.data["status"];
    let phase = status["phase"].as_str().unwrap_or("new");
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let open = conditions.filter(|known| known["status"] == "False");
    // Where one condition sums the others up, it says it best.
    let why = open.max_by_key(|known| known["type"] == "Succeeded").and_then(|known| known["message"].as_str());
    format!("{phase:<22} {}", why.unwrap_or_default())
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
