//! The pods of workloads, as small records.
//! Comes in: a pod; goes out: whose it is and where it is reached, while it lives.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use steersman_api::variant::v1alpha1::ScaleTargetRef;

use super::targets::{LEADER_WORKER_SET, STATEFUL_SET};
use crate::apply::controller;
use crate::observe::prometheus::PodPlace;

const GROUP_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const PLACE_IN_GROUP: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const REPLICA_SET: &str = "ReplicaSet";

/// There are more pods than of anything else: a pass shares what is known of them, and copies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    kind: Kind,
    pub place: Arc<PodPlace>,
}

/// Of its controller, or of the group that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    ReplicaSet,
    StatefulSet,
    Group,
    Other(Box<str>),
}

/// None: it has ended, is on its way out, or belongs to nothing that can be scaled.
pub fn pod(object: &DynamicObject) -> Option<Pod> {
    let status = &object.data["status"];
    let ended = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    if ended || object.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (kind, target) = owner(object)?;
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let place = PodPlace {
        namespace: object.namespace().unwrap_or_default().into(),
        name: object.name_any().into(),
        target: target.into(),
        ip: status["podIP"].as_str().and_then(|ip| ip.parse().ok()),
        ready: conditions.into_iter().any(|known| known["type"] == "Ready" && known["status"] == "True"),
        started: status["startTime"].as_str().and_then(|time| time.parse().ok()),
    };
    Some(Pod { kind, place: Arc::new(place) })
}

fn owner(object: &DynamicObject) -> Option<(Kind, String)> {
    if let Some(group) = object.labels().get(GROUP_NAME) {
        // The leader speaks for its group: a replica is a group.
        let leads = object.labels().get(PLACE_IN_GROUP).is_none_or(|place| place == "0");
        return leads.then(|| (Kind::Group, group.clone()));
    }
    let owner = controller(object)?;
    match owner.kind.as_str() {
        // Named after its workload and a hash.
        REPLICA_SET => Some((Kind::ReplicaSet, owner.name.rsplit_once('-')?.0.to_owned())),
        "Job" | "DaemonSet" | "Node" => None,
        STATEFUL_SET => Some((Kind::StatefulSet, owner.name.clone())),
        kind => Some((Kind::Other(kind.into()), owner.name.clone())),
    }
}

impl Pod {
    pub fn is_of(&self, target: &ScaleTargetRef) -> bool {
        let by_kind = match target.kind.as_str() {
            STATEFUL_SET => self.kind == Kind::StatefulSet,
            LEADER_WORKER_SET => self.kind == Kind::Group,
            kind => match &self.kind {
                Kind::ReplicaSet => true,
                Kind::Other(own) => **own == *kind,
                Kind::StatefulSet | Kind::Group => false,
            },
        };
        by_kind && *self.place.target == *target.name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn a_pod(labels: Value, kind: &str, name: &str, status: Value) -> Option<Pod> {
        let owner = json!({ "apiVersion": "a/v1", "kind": kind, "name": name, "uid": "u", "controller": true });
        pod(&serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": labels, "ownerReferences": [owner] }, "status": status,
        }))
        .unwrap())
    }

    fn target(kind: &str, name: &str) -> ScaleTargetRef {
        ScaleTargetRef { api_version: None, kind: kind.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_pod_belongs_to_the_workload_above_its_replica_set() {
        let found = a_pod(json!({}), "ReplicaSet", "llama-decode-5f6c", json!({ "phase": "Running" })).unwrap();
        assert!(found.is_of(&target("Deployment", "llama-decode")) && found.is_of(&target("Rollout", "llama-decode")));
        assert!(!found.is_of(&target("StatefulSet", "llama-decode")) && !found.is_of(&target("Deployment", "llama")));
        let found = a_pod(json!({}), "StatefulSet", "llama", json!({})).unwrap();
        assert!(found.is_of(&target("StatefulSet", "llama")) && !found.is_of(&target("Deployment", "llama")));
    }

    #[test]
    fn of_a_group_only_the_leader_counts() {
        let member = |place: &str| json!({ GROUP_NAME: "llama", PLACE_IN_GROUP: place });
        let leader = a_pod(member("0"), "StatefulSet", "llama", json!({})).unwrap();
        assert!(leader.is_of(&target("LeaderWorkerSet", "llama")) && !leader.is_of(&target("StatefulSet", "llama")));
        assert_eq!(a_pod(member("1"), "StatefulSet", "llama-0", json!({})), None);
    }

    #[test]
    fn only_the_living_count() {
        let status = json!({ "phase": "Running", "podIP": "10.0.0.1", "startTime": "2026-11-16T06:00:00Z",
            "conditions": [{ "type": "Ready", "status": "True" }] });
        let living = a_pod(json!({}), "ReplicaSet", "a-1", status).unwrap().place;
        assert_eq!((living.ip, living.ready, living.started.is_some()), ("10.0.0.1".parse().ok(), true, true));
        assert_eq!(a_pod(json!({}), "ReplicaSet", "a-1", json!({ "phase": "Failed" })), None);
        assert_eq!(a_pod(json!({}), "Job", "a-1", json!({ "phase": "Running" })), None);
    }
}
