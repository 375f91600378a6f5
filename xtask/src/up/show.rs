//! Prints a line each time one of our objects, a graph or a pod changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use steersman::resource::custom_resource;
use steersman_api::Family;
use steersman_testkit::{Cluster, Operator};
use tokio::time;

pub const POLL_INTERVAL: Duration = Duration::from_millis(500);
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Prints the state of every object and pod in `namespace` whenever it changes. Returns an error when a
/// process of the cluster or the operator exits.
pub async fn changes(cluster: &mut Cluster, operator: &mut Operator, namespace: &str) -> Result<()> {
    let client = cluster.admin().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut objects: Vec<_> = [Family::Llsd, Family::Dgdr, Family::Va]
        .map(|family| (family, self::objects(&client, family, namespace)))
        .into();
    objects.push((Family::Dgd, graphs(&client, namespace)));
    let mut printed_states: BTreeMap<String, String> = BTreeMap::new();
    loop {
        cluster.ensure_running()?;
        operator.ensure_running()?;
        let mut states = BTreeMap::new();
        let mut all_listed = true;
        for (family, objects) in &objects {
            let found = list(objects).await;
            all_listed &= found.is_some();
            for object in found.unwrap_or_default() {
                let state = match family {
                    Family::Va => replicas_line(&object.data["status"]),
                    Family::Dgd => graph_line(&object.data["status"]),
                    Family::Llsd | Family::Dgdr => phase_line(&object.data["status"]),
                };
                states.insert(format!("{:<4} {:<34}", family.short_name(), object.name_any()), state);
            }
        }
        let found = list(&pods).await;
        all_listed &= found.is_some();
        for pod in found.unwrap_or_default() {
            states.insert(format!("pod  {:<34}", pod.name_any()), pod_line(&pod));
        }
        for (name, state) in &states {
            if printed_states.get(name) != Some(state) {
                println!("{name} {state}");
                printed_states.insert(name.clone(), state.clone());
            }
        }
        // An object counts as deleted only if all lists succeeded.
        printed_states.retain(|name, _| {
            let exists = states.contains_key(name) || !all_listed;
            if !exists {
                println!("{name} deleted");
            }
            exists
        });
        time::sleep(POLL_INTERVAL).await;
    }
}

/// The objects of a family in their storage version.
pub fn objects(client: &Client, family: Family, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&custom_resource(family).gvk()))
}

pub fn graphs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let family = Family::Dgd;
    let kind = GroupVersionKind::gvk(family.group(), family.storage_version(), family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}

/// None if the list fails or times out. Without the timeout it could hang when a process of the cluster has exited, which
/// the caller checks.
pub async fn list<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Option<Vec<K>> {
    time::timeout(LIST_TIMEOUT, api.list(&ListParams::default())).await.ok()?.ok().map(|list| list.items)
}

/// The phase of an object, and the message of an unmet condition.
fn phase_line(status: &Value) -> String {
    let phase = status["phase"].as_str().unwrap_or("new");
    let part = status["profilingPhase"].as_str().map_or_else(String::new, |part| format!(": {part}"));
    format!("{:<26} {}", format!("{phase}{part}"), blocking_message(status).unwrap_or_default())
}

/// The decided number of replicas, and the reason.
fn replicas_line(status: &Value) -> String {
    let wanted = &status["desiredOptimizedAlloc"];
    let number =
        |value: &Value| value["numReplicas"].as_i64().map_or_else(|| "?".to_owned(), |count| count.to_string());
    let change = format!("has {}, wants {}", number(&status["currentAlloc"]), number(wanted));
    let why = wanted["lastUpdate"]["reason"].as_str().or_else(|| blocking_message(status)).unwrap_or_default();
    format!("{change:<26} {why}")
}

/// The state of a graph, which this program simulates.
fn graph_line(status: &Value) -> String {
    format!("{:<26} (simulated)", status["state"].as_str().unwrap_or("new"))
}

fn blocking_message(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unmet = conditions.filter(|condition| condition["status"] == "False");
    // `Succeeded` summarizes the other conditions, so it is preferred.
    unmet.max_by_key(|condition| condition["type"] == "Succeeded").and_then(|condition| condition["message"].as_str())
}

/// The columns of `kubectl get pods`, and the node.
pub fn pod_line(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "Unknown".to_owned() };
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers.clone().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let phase = status.phase.clone().unwrap_or_default();
    let ready = containers.clone().filter(|container| container.ready).count();
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let node_text = node.map_or_else(|| unschedulable(pod), |node| format!("on {node}"));
    format!("{ready}/{all} {:<22} {node_text}", waiting.unwrap_or(phase))
}

fn unschedulable(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodScheduled")
        .find_map(|condition| condition.message.clone())
        .unwrap_or_default()
}
