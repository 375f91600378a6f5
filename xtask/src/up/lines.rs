//! Prints a line each time one of our objects, a graph or a pod changes.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time;

use super::object_state::object_state;
use super::observe::{Observer, POLL_INTERVAL};

/// Prints the state of every object and pod whenever it changes, and the notes of the simulators. Ends with the error of
/// `ensure_running`.
pub async fn show(
    mut ensure_running: impl FnMut() -> Result<()>,
    observer: &Observer,
    mut notes: UnboundedReceiver<String>,
) -> Result<()> {
    let mut printed_states: BTreeMap<String, String> = BTreeMap::new();
    loop {
        ensure_running()?;
        let mut states = BTreeMap::new();
        let mut all_listed = true;
        for (family, objects) in observer.objects().await {
            all_listed &= objects.is_some();
            for object in objects.unwrap_or_default() {
                let state = object_state(family, &object.data["status"]);
                let part = state.part.map_or_else(String::new, |part| format!(": {part}"));
                let text = format!("{:<26} {}", format!("{}{part}", state.phase), state.reason);
                states.insert(format!("{:<4} {:<34}", family.short_name(), object.name_any()), text);
            }
        }
        let pods = observer.pods().await;
        all_listed &= pods.is_some();
        for pod in pods.unwrap_or_default() {
            states.insert(format!("pod  {:<34}", pod.name_any()), pod_line(&pod));
        }
        while let Ok(note) = notes.try_recv() {
            println!("simulated: {note}");
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
