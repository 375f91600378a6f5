//! The pods of profiling Jobs and of graphs, as far as they say why they do not get on.
//! Comes in: pods by the label that names their Job or graph; goes out: those of one as small records, and whose have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::store::Scope;
use steersman_runtime::store::watching::follow;
use tokio_util::sync::CancellationToken;

use crate::pods::{ended, unscheduled, waiting};

/// On every pod of a Job, which it names.
pub const OF_JOB: &str = "batch.kubernetes.io/job-name";
/// On every pod of a graph, which it names.
pub const OF_GRAPH: &str = "nvidia.com/dynamo-graph-deployment-name";

/// By name of the pod.
type Records = BTreeMap<String, ObservedPod>;

/// The pods whose Job or graph can be one of ours.
pub struct Pods {
    /// Names the Job or graph.
    label: &'static str,
    /// A label that the pods carry of those that can be ours: a cluster has many other Jobs.
    followed: &'static str,
    /// By namespace and value of the label. None: not listed yet.
    known: Mutex<Option<BTreeMap<NamespacedName, Records>>>,
}

impl Pods {
    pub fn new(label: &'static str, followed: &'static str) -> Self {
        Self { label, followed, known: Mutex::default() }
    }

    /// Those of one Job or graph, by name. Asked for while no watch has told.
    pub async fn seen(&self, server: &Server, of: &NamespacedName) -> Result<Vec<ObservedPod>, CallError> {
        let listed = self.known().as_ref().map(|known| known.get(of).cloned().unwrap_or_default());
        match listed {
            Some(records) => Ok(records.into_values().collect()),
            None => self.ask(server, of).await,
        }
    }

    /// The same as they are now: a watch may be behind that of others.
    pub async fn ask(&self, server: &Server, of: &NamespacedName) -> Result<Vec<ObservedPod>, CallError> {
        let api: Api<Pod> = Api::namespaced(server.client.clone(), &of.namespace);
        let wanted = ListParams::default().labels(&format!("{}={}", self.label, of.name));
        Ok(server.call(api.list(&wanted)).await?.items.iter().map(record).collect())
    }

    /// Follows them until `stop`, and tells of each Job or graph whose pods are not as they were.
    pub async fn follow(&self, server: &Server, scope: &Scope, tell: impl Fn(NamespacedName), stop: CancellationToken) {
        let config = watcher::Config::default().labels(self.followed);
        let mut incoming = BTreeMap::new();
        let follow = follow(scope.typed(server), "Pod", config, |event| {
            self.take_in(event, &mut incoming).into_iter().for_each(&tell);
        });
        stop.run_until_cancelled(follow).await;
    }

    fn take_in(&self, event: Event<Pod>, incoming: &mut BTreeMap<NamespacedName, Records>) -> BTreeSet<NamespacedName> {
        match event {
            Event::Init => {
                incoming.clear();
                BTreeSet::new()
            }
            Event::InitApply(pod) => {
                if let Some(of) = self.of(&pod) {
                    incoming.entry(of).or_default().insert(pod.name_any(), record(&pod));
                }
                BTreeSet::new()
            }
            Event::InitDone => {
                let now = std::mem::take(incoming);
                let before = self.known().replace(now.clone()).unwrap_or_default();
                let all = before.keys().chain(now.keys());
                all.filter(|of| before.get(*of) != now.get(*of)).cloned().collect()
            }
            Event::Apply(pod) => self.change(&pod, Some(record(&pod))),
            Event::Delete(pod) => self.change(&pod, None),
        }
    }

    fn change(&self, pod: &Pod, now: Option<ObservedPod>) -> BTreeSet<NamespacedName> {
        let Some(of) = self.of(pod) else { return BTreeSet::new() };
        let mut known = self.known();
        // A list always comes first.
        let Some(known) = known.as_mut() else { return BTreeSet::new() };
        let records = known.entry(of.clone()).or_default();
        let before = match now.clone() {
            Some(now) => records.insert(pod.name_any(), now),
            None => records.remove(&pod.name_any()),
        };
        if records.is_empty() {
            known.remove(&of);
        }
        (before != now).then_some(of).into_iter().collect()
    }

    /// The Job or graph that a pod belongs to.
    fn of(&self, pod: &Pod) -> Option<NamespacedName> {
        Some(NamespacedName::new(pod.namespace()?, pod.labels().get(self.label)?))
    }

    fn known(&self) -> MutexGuard<'_, Option<BTreeMap<NamespacedName, Records>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(pod: &Pod) -> ObservedPod {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let before = status.init_container_statuses.iter().flatten();
    ObservedPod {
        name: pod.name_any(),
        phase: status.phase.clone().unwrap_or_default(),
        unscheduled: unscheduled(status),
        terminated: status.reason.clone().map(|reason| (reason, status.message.clone().unwrap_or_default())),
        containers: before.chain(status.container_statuses.iter().flatten()).map(container).collect(),
    }
}

fn container(status: &ContainerStatus) -> ObservedContainer {
    let state = status.state.as_ref();
    ObservedContainer {
        name: status.name.clone(),
        image: status.image.clone(),
        waiting: waiting(state).map(|(reason, message)| Waiting { reason, message }),
        terminated: ended(state).map(|(exit_code, reason, message)| Terminated { exit_code, reason, message }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steersman_plan::dynamo::names;

    use super::*;

    fn pod(name: &str, job: &str, state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "team-a", "labels": { OF_JOB: job } },
            "status": { "phase": "Pending", "containerStatuses": [{ "name": "profiler", "image": "planner:1", "imageID": "",
                "ready": false, "restartCount": 0, "state": state }] },
        }))
        .unwrap()
    }

    fn places(names: &[&str]) -> BTreeSet<NamespacedName> {
        names.iter().map(|name| NamespacedName::new("team-a", *name)).collect()
    }

    #[test]
    fn a_job_is_told_of_when_its_pods_change_and_no_other() {
        let pods = Pods::new(OF_JOB, names::LABEL_PROFILED);
        let mut incoming = BTreeMap::new();
        let mut hear = |event| pods.take_in(event, &mut incoming);
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        hear(Event::Init);
        hear(Event::InitApply(pod("a", "profile-qwen", waiting("ContainerCreating"))));
        hear(Event::InitApply(pod("b", "profile-llama", waiting("ContainerCreating"))));
        assert_eq!(hear(Event::InitDone), places(&["profile-llama", "profile-qwen"]));
        assert_eq!(hear(Event::Apply(pod("a", "profile-qwen", waiting("ContainerCreating")))), places(&[]));
        assert_eq!(hear(Event::Apply(pod("a", "profile-qwen", waiting("ErrImagePull")))), places(&["profile-qwen"]));
        let nobody = Pod { metadata: Default::default(), ..pod("c", "", waiting("ErrImagePull")) };
        assert_eq!(hear(Event::Apply(nobody)), places(&[]));
        assert_eq!(hear(Event::Delete(pod("a", "profile-qwen", waiting("ErrImagePull")))), places(&["profile-qwen"]));
    }

    #[test]
    fn a_record_says_how_a_container_waits_or_ended() {
        let seen = record(&pod("a", "profile-qwen", json!({ "terminated": { "exitCode": 3, "reason": "Error" } })));
        let ended = Terminated { exit_code: 3, reason: "Error".into(), message: String::new() };
        assert_eq!(seen.containers[0].terminated, Some(ended));
        assert_eq!((seen.phase.as_str(), seen.unscheduled), ("Pending", None));
    }
}
