//! Shows what happens: a line each time an object of ours, a graph or a pod changes.

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

/// How often the pods are looked at, and how long a look may take.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// Prints the state of every object and pod in `namespace` whenever it changes, until a program of the cluster ends.
pub async fn changes(cluster: &mut Cluster, operator: &mut Operator, namespace: &str) -> Result<()> {
    let client = cluster.admin().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut objects: Vec<_> = [Family::Llsd, Family::Dgdr, Family::Va]
        .map(|family| (family, self::objects(&client, family, namespace)))
        .into();
    objects.push((Family::Dgd, graphs(&client, namespace)));
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        cluster.ensure_running()?;
        operator.ensure_running()?;
        let mut seen = BTreeMap::new();
        let mut whole = true;
        for (family, objects) in &objects {
            let found = listed(objects).await;
            whole &= found.is_some();
            for object in found.unwrap_or_default() {
                let told = match family {
                    Family::Va => decided(&object.data["status"]),
                    Family::Dgd => played(&object.data["status"]),
                    Family::Llsd | Family::Dgdr => told(&object.data["status"]),
                };
                seen.insert(format!("{:<4} {:<34}", family.short_name(), object.name_any()), told);
            }
        }
        let found = listed(&pods).await;
        whole &= found.is_some();
        for pod in found.unwrap_or_default() {
            seen.insert(format!("pod  {:<34}", pod.name_any()), state(&pod));
        }
        for (name, state) in &seen {
            if known.get(name) != Some(state) {
                println!("{name} {state}");
                known.insert(name.clone(), state.clone());
            }
        }
        // What was not heard of is not gone.
        known.retain(|name, _| {
            let there = seen.contains_key(name) || !whole;
            if !there {
                println!("{name} gone");
            }
            there
        });
        time::sleep(LOOK_EVERY).await;
    }
}

/// In the version in which they are stored.
pub fn objects(client: &Client, family: Family, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&custom_resource(family).gvk()))
}

pub fn graphs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let family = Family::Dgd;
    let kind = GroupVersionKind::gvk(family.group(), family.storage_version(), family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}

/// Bounded: a call can hang because a program has just died, which only looking at the programs can tell. None: there was
/// no answer.
pub async fn listed<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Option<Vec<K>> {
    time::timeout(LOOK_LIMIT, api.list(&ListParams::default())).await.ok()?.ok().map(|listed| listed.items)
}

/// The phase of an object, and why it is not another.
fn told(status: &Value) -> String {
    let phase = status["phase"].as_str().unwrap_or("new");
    let part = status["profilingPhase"].as_str().map_or_else(String::new, |part| format!(": {part}"));
    format!("{:<26} {}", format!("{phase}{part}"), open(status).unwrap_or_default())
}

/// The number that was decided on, and why.
fn decided(status: &Value) -> String {
    let wanted = &status["desiredOptimizedAlloc"];
    let number =
        |value: &Value| value["numReplicas"].as_i64().map_or_else(|| "?".to_owned(), |count| count.to_string());
    let change = format!("has {}, wants {}", number(&status["currentAlloc"]), number(wanted));
    let why = wanted["lastUpdate"]["reason"].as_str().or_else(|| open(status)).unwrap_or_default();
    format!("{change:<26} {why}")
}

/// The status that this program has given it.
fn played(status: &Value) -> String {
    format!("{:<26} (played)", status["state"].as_str().unwrap_or("new"))
}

fn open(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let open = conditions.filter(|known| known["status"] == "False");
    // Where one condition sums the others up, it says it best.
    open.max_by_key(|known| known["type"] == "Succeeded").and_then(|known| known["message"].as_str())
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
    format!("{ready}/{all} {:<22} {place}", waiting.unwrap_or(phase))
}

fn unschedulable(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodScheduled")
        .find_map(|condition| condition.message.clone())
        .unwrap_or_default()
}
