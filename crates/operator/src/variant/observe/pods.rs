//! Stores small records of the pods that may belong to a scale target.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_plan::variant::TargetName;
use steersman_plan::variant::target::{APPS, DEPLOYMENT, GROUPS, LEADER_WORKER_SET};
use steersman_runtime::apply::controller;
use steersman_runtime::store::Record;

use super::targets;
use crate::variant::prometheus::FleetPod;

const GROUP_NAME_LABEL: &str = "leaderworkerset.sigs.k8s.io/name";
const WORKER_INDEX_LABEL: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const REPLICA_SET: &str = "ReplicaSet";

/// Owners of ReplicaSets, and the pod label with the hash that ends the name of the ReplicaSet. It identifies the owner
/// without reading the ReplicaSet, and shows that a ReplicaSet has no owner.
const REPLICA_SET_OWNERS: [(&str, &str, &str); 2] =
    [("pod-template-hash", APPS, DEPLOYMENT), ("rollouts-pod-template-hash", "argoproj.io", "Rollout")];

/// Size from which unused entries are removed on insertion.
const PRUNE_SIZE: usize = 1 << 12;

/// Names of scale targets and namespaces, shared by their pods, which are the most numerous objects.
#[derive(Default)]
pub struct NameCache {
    targets: Mutex<BTreeSet<Arc<TargetName>>>,
    namespaces: Mutex<BTreeSet<Arc<str>>>,
}

impl NameCache {
    /// Removes entries without pods.
    pub fn tidy(&self) {
        tidy(&self.targets);
        tidy(&self.namespaces);
    }
}

fn shared<T: ?Sized + Ord>(known: &Mutex<BTreeSet<Arc<T>>>, one: impl AsRef<T> + Into<Arc<T>>) -> Arc<T> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = known.get(one.as_ref()) {
        return shared.clone();
    }
    let shared = one.into();
    known.insert(shared.clone());
    // Without objects there is no reconcile to remove them.
    if known.len() >= PRUNE_SIZE && known.len().is_power_of_two() {
        known.retain(|one| Arc::strong_count(one) > 1);
    }
    shared
}

fn tidy<T: ?Sized + Ord>(known: &Mutex<BTreeSet<Arc<T>>>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|one| Arc::strong_count(one) > 1);
}

impl Record for FleetPod {
    fn name(&self) -> Option<Arc<str>> {
        Some(self.name.clone())
    }
}

/// `None` if the pod has ended, is being deleted, or belongs to nothing that can be scaled.
pub fn pod(object: &DynamicObject, names: &NameCache) -> Option<Arc<FleetPod>> {
    let status = &object.data["status"];
    let ended = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    if ended || object.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (target, worker) = owner(object)?;
    let target = shared(&names.targets, Arc::new(target));
    // The node has accepted the pod, and not only its creator a node.
    let started = status["startTime"].as_str().and_then(|time| time.parse().ok());
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|known| known["type"] == "Ready" && known["status"] == "True");
    Some(Arc::new(FleetPod {
        namespace: shared(&names.namespaces, object.namespace().unwrap_or_default()),
        name: object.name_any().into(),
        target,
        ip: status["podIP"].as_str().and_then(|ip| ip.parse().ok()),
        ready: ready.is_some(),
        ready_since: ready.and_then(|known| known["lastTransitionTime"].as_str()?.parse().ok()),
        started,
        gpus: started.map_or(0, |_| targets::gpus(&object.data["spec"])),
        worker,
    }))
}

/// The scale target, and whether the pod is a worker of a group.
fn owner(object: &DynamicObject) -> Option<(TargetName, bool)> {
    let labels = object.labels();
    if let Some(group) = labels.get(GROUP_NAME_LABEL) {
        let leads = labels.get(WORKER_INDEX_LABEL).is_none_or(|place| place == "0");
        return Some((TargetName::new(GROUPS, LEADER_WORKER_SET, group), !leads));
    }
    // A pod without a controller may still match the selector of a scale target.
    let Some(owner) = controller(object) else { return Some((TargetName::default(), false)) };
    let group = TargetName::group_of(&owner.api_version);
    let target = match owner.kind.as_str() {
        "Job" | "DaemonSet" | "Node" => None,
        REPLICA_SET => {
            let made = REPLICA_SET_OWNERS.iter().find_map(|(label, group, kind)| {
                let maker = owner.name.strip_suffix(labels.get(*label)?.as_str())?.strip_suffix('-')?;
                Some(TargetName::new(group, kind, maker))
            });
            Some(made.unwrap_or_else(|| TargetName::new(group, REPLICA_SET, &owner.name)))
        }
        kind => Some(TargetName::new(group, kind, &owner.name)),
    };
    Some((target?, false))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn a_pod(labels: Value, owner: [&str; 3], status: Value) -> Option<Arc<FleetPod>> {
        let [api_version, kind, name] = owner;
        let owner = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": true });
        let object = json!({
            "metadata": { "name": "p", "labels": labels, "ownerReferences": [owner] }, "status": status,
        });
        pod(&serde_json::from_value(object).unwrap(), &NameCache::default())
    }

    fn owner_of(labels: Value, owner: [&str; 3]) -> Option<TargetName> {
        a_pod(labels, owner, json!({})).filter(|found| !found.worker).map(|found| TargetName::clone(&found.target))
    }

    #[test]
    fn pod_belongs_to_owner_of_replica_set() {
        let set = ["apps/v1", "ReplicaSet", "llama-decode-5f6c"];
        for (label, value, expected) in [
            ("pod-template-hash", "5f6c", TargetName::new("apps", "Deployment", "llama-decode")),
            ("rollouts-pod-template-hash", "5f6c", TargetName::new("argoproj.io", "Rollout", "llama-decode")),
            // A ReplicaSet without an owner is the scale target itself, even if its pods have such a label for another reason.
            ("app", "llama", TargetName::new("apps", "ReplicaSet", "llama-decode-5f6c")),
            ("pod-template-hash", "decode", TargetName::new("apps", "ReplicaSet", "llama-decode-5f6c")),
        ] {
            assert_eq!(owner_of(json!({ label: value }), set), Some(expected), "{label}={value}");
        }
        for (api_version, group) in [("apps/v1", "apps"), ("apps.kruise.io/v1beta1", "apps.kruise.io")] {
            let expected = TargetName::new(group, "StatefulSet", "llama");
            assert_eq!(owner_of(json!({}), [api_version, "StatefulSet", "llama"]), Some(expected));
        }
        let expected = TargetName::new("", "ReplicationController", "old");
        assert_eq!(owner_of(json!({}), ["v1", "ReplicationController", "old"]), Some(expected));
    }

    #[test]
    fn only_leader_pods_of_groups_count() {
        let member = |place: &str| json!({ GROUP_NAME_LABEL: "llama", WORKER_INDEX_LABEL: place });
        let leader = owner_of(member("0"), ["apps/v1", "StatefulSet", "llama"]);
        assert_eq!(leader, Some(TargetName::new(GROUPS, LEADER_WORKER_SET, "llama")));
        assert_eq!(owner_of(member("1"), ["apps/v1", "StatefulSet", "llama-0"]), None);
    }

    #[test]
    fn ended_pods_and_job_pods_are_ignored() {
        let status = json!({ "phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-11-16T06:00:00Z",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T06:01:00Z" }] });
        let set = ["apps/v1", "ReplicaSet", "a-1"];
        let living = a_pod(json!({}), set, status).unwrap();
        assert_eq!((living.ip, living.ready, living.started.is_some()), ("10.0.0.1".parse().ok(), true, true));
        assert_eq!(living.ready_since, "2026-11-16T06:01:00Z".parse().ok());
        assert_eq!(a_pod(json!({}), set, json!({ "phase": "Failed" })), None);
        assert_eq!(a_pod(json!({}), ["batch/v1", "Job", "a-1"], json!({ "phase": "Running" })), None);
    }

    /// A pod may name any node. The GPUs count that a node has accepted to run.
    #[test]
    fn gpus_count_once_a_node_has_accepted_the_pod() {
        let names = NameCache::default();
        let gpus = |labels: Value, status: Value| {
            let container = json!({ "resources": { "limits": { "nvidia.com/gpu": "4" } } });
            let object = json!({ "metadata": { "name": "p", "labels": labels },
                "spec": { "nodeName": "n", "containers": [container, container] }, "status": status });
            pod(&serde_json::from_value(object).unwrap(), &names).unwrap().gpus
        };
        let accepted = json!({ "phase": "Pending", "startTime": "2026-11-16T06:00:00Z" });
        assert_eq!(gpus(json!({}), accepted.clone()), 8);
        assert_eq!(gpus(json!({}), json!({ "phase": "Pending" })), 0);
        assert_eq!(gpus(json!({ GROUP_NAME_LABEL: "llama", WORKER_INDEX_LABEL: "1" }), accepted), 8, "of a worker");
    }

    #[test]
    fn pods_of_one_workload_share_its_name() {
        let owners = NameCache::default();
        let a_pod = |name: &str| {
            let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u",
                "controller": true });
            let object = json!({ "metadata": { "name": name, "ownerReferences": [owner] } });
            pod(&serde_json::from_value(object).unwrap(), &owners).unwrap()
        };
        let (one, two) = (a_pod("s-0"), a_pod("s-1"));
        assert!(Arc::ptr_eq(&one.target, &two.target));
        drop(one);
        owners.tidy();
        assert!(Arc::ptr_eq(&two.target, &a_pod("s-2").target));
        drop(two);
        owners.tidy();
        assert!(owners.targets.lock().unwrap().is_empty());
    }
}
