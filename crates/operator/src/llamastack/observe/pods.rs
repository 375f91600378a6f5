//! Stores the parts of the servers' pods that explain why a pod is not ready. An object is reconciled when the problem of its
//! pods changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource};
use kube::runtime::watcher;
use steersman_plan::llamastack::pod_problem;
use steersman_plan::pods::{ObservedPod, StartupProblem};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::store::{Change, RawObject, Record, SMALL_PAGE, Scope, Store, SyncState};
use tokio_util::sync::CancellationToken;

use crate::pods::observe as observe_pod;

const SERVERS: &str = "app=llama-stack";
/// Names the object that the pod belongs to.
const INSTANCE: &str = "app.kubernetes.io/instance";

pub struct PodWatch {
    store: Store<PodRecord>,
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    /// The problem of each object whose pods are held up.
    problems: BTreeMap<NamespacedName, StartupProblem>,
    /// The first start of the pods of each object.
    starts: BTreeMap<NamespacedName, Timestamp>,
    /// Objects that were looked up before the first list was complete.
    early: BTreeSet<NamespacedName>,
}

#[derive(Clone, Debug, PartialEq)]
struct PodRecord {
    /// Name of the LlamaStackDistribution.
    object: String,
    created: Option<Timestamp>,
    /// Start of the containers. None: they do not run.
    started: Option<Timestamp>,
    pod: ObservedPod,
}

impl Record for PodRecord {
    fn owner(&self) -> Option<&str> {
        Some(&self.object)
    }

    fn inherit(&mut self, before: &Self) {
        self.pod.carry_pull_causes(&before.pod);
    }
}

impl Default for PodWatch {
    fn default() -> Self {
        // Later changes are compared with the problems of the first list.
        Self { store: Store::reporting_first_list(), objects: Mutex::default() }
    }
}

impl PodWatch {
    /// The newest first. None before the first list is complete; the object is enqueued then.
    pub fn observe(&self, object: &NamespacedName) -> Option<Vec<ObservedPod>> {
        // The lock keeps `take_early` from running between the check and the insertion.
        let mut objects = self.objects();
        if self.store.sync_state() != SyncState::Synced {
            objects.early.insert(object.clone());
            return None;
        }
        Some(self.newest_first(object))
    }

    /// The first start of the pods that run.
    pub fn oldest_start(&self, object: &NamespacedName) -> Option<Timestamp> {
        self.store.owned_by(object).iter().filter_map(|record| record.started).min()
    }

    /// Called when the object is deleted.
    pub fn forget(&self, object: &NamespacedName) {
        self.objects().early.remove(object);
    }

    /// Follows the pods until `stop`.
    pub async fn follow(
        &self,
        server: &Server,
        scope: &Scope,
        enqueue: impl Fn(NamespacedName),
        stop: CancellationToken,
    ) {
        let config = watcher::Config::default().labels(SERVERS).page_size(SMALL_PAGE);
        let changed = |change| self.affected(&change).into_iter().for_each(&enqueue);
        let api: Api<RawObject> = scope.api(server, &ApiResource::erase::<Pod>(&()));
        let follow = self.store.follow(api, "Pod", config, |pod| record(&pod.parse()?), changed);
        let early = async {
            self.store.synced().await;
            self.take_early().into_iter().for_each(&enqueue);
        };
        stop.run_until_cancelled(async { tokio::join!(follow, early) }).await;
    }

    /// The objects to reconcile after a change of a pod: those whose pods now have another problem or none any more, and
    /// those whose oldest pod has left, which may have been the last with an earlier value of a Secret.
    fn affected(&self, change: &Change<PodRecord>) -> Vec<NamespacedName> {
        let Objects { problems, starts, .. } = &mut *self.objects();
        let is_affected = |object: &NamespacedName| {
            let problem = pod_problem::find(&self.newest_first(object));
            let has_new_problem = replace(problems, object, problem.clone()) != problem;
            let start = self.oldest_start(object);
            let before = replace(starts, object, start);
            has_new_problem || (before.is_some() && before < start)
        };
        change.owners().into_iter().filter(is_affected).collect()
    }

    fn take_early(&self) -> BTreeSet<NamespacedName> {
        std::mem::take(&mut self.objects().early)
    }

    fn newest_first(&self, object: &NamespacedName) -> Vec<ObservedPod> {
        let mut records = self.store.owned_by(object);
        records.sort_by_key(|record| std::cmp::Reverse(record.created));
        records.into_iter().map(|record| record.pod).collect()
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets or removes a value, and returns the one before.
fn replace<V>(values: &mut BTreeMap<NamespacedName, V>, object: &NamespacedName, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => values.insert(object.clone(), value),
        None => values.remove(object),
    }
}

/// The start of the first container, which reads Secrets. A clock of a node that is slow must not make a pod older than it is.
fn started(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let is_init = status.init_container_statuses.as_ref().is_some_and(|statuses| !statuses.is_empty());
    let statuses = if is_init { &status.init_container_statuses } else { &status.container_statuses };
    let starts = statuses.iter().flatten().filter_map(|status| {
        let state = status.state.as_ref()?;
        let running = state.running.as_ref().and_then(|running| running.started_at.clone());
        // An ended container of the server reads its Secrets at its next start; an init container has handed them on.
        let ended = state.terminated.as_ref().filter(|_| is_init).and_then(|ended| ended.started_at.clone());
        running.or(ended).map(|time| time.0)
    });
    let first = starts.min()?;
    Some(pod.creation_timestamp().map_or(first, |created| first.max(created.0)))
}

/// None for pods that explain nothing: a pod without the label of its object, being deleted, or ended.
fn record(pod: &Pod) -> Option<PodRecord> {
    let object = pod.labels().get(INSTANCE)?.clone();
    let created = pod.creation_timestamp().map(|time| time.0);
    let started = started(pod);
    let leaves = pod.metadata.deletion_timestamp.is_some();
    let pod = observe_pod(pod);
    let has_ended = matches!(pod.phase.as_str(), "Succeeded" | "Failed");
    (!leaves && !has_ended).then_some(PodRecord { object, created, started, pod })
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, instance: &str, second: u32, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "team-a", "creationTimestamp": format!("2026-11-15T23:00:{second:02}Z"),
                "labels": { "app": "llama-stack", INSTANCE: instance } },
            "spec": { "containers": [{ "name": "llama-stack", "image": "starter:1" }] },
            "status": status,
        }))
        .unwrap()
    }

    fn with_state(state: Value) -> Value {
        json!({ "phase": "Pending", "containerStatuses": [{ "name": "llama-stack", "image": "docker.io/starter:1",
            "imageID": "", "ready": false, "restartCount": 0, "state": state }] })
    }

    fn waiting(reason: &str, message: &str) -> Value {
        with_state(json!({ "waiting": { "reason": reason, "message": message } }))
    }

    fn starter() -> NamespacedName {
        NamespacedName::new("team-a", "starter")
    }

    fn receive(pods: &PodWatch, event: Event<Pod>) -> BTreeSet<NamespacedName> {
        pods.store.receive(event, &record).iter().flat_map(|change| pods.affected(change)).collect()
    }

    fn receive_list(pods: &PodWatch, list: Vec<Pod>) -> BTreeSet<NamespacedName> {
        receive(pods, Event::Init);
        for pod in list {
            receive(pods, Event::InitApply(pod));
        }
        receive(pods, Event::InitDone)
    }

    #[test]
    fn object_is_enqueued_only_if_problem_changed() {
        let pods = PodWatch::default();
        receive_list(&pods, vec![]);
        let apply = |status| receive(&pods, Event::Apply(pod("a", "starter", 0, status))).len();
        assert_eq!(apply(waiting("ContainerCreating", "")), 0);
        assert_eq!(apply(waiting("ErrImagePull", "not found")), 1);
        assert_eq!(apply(waiting("ImagePullBackOff", "Back-off pulling image \"starter:1\"")), 0, "the same");
        assert_eq!(apply(waiting("ErrImagePull", "no basic auth credentials")), 1);
        assert_eq!(apply(with_state(json!({ "running": {} }))), 1, "it is over");
        let crash = json!({ "terminated": { "exitCode": 1, "reason": "Error" } });
        assert_eq!(apply(with_state(crash.clone())), 1);
        let mut again = with_state(json!({ "running": {} }));
        again["containerStatuses"][0]["lastState"] = crash;
        assert_eq!(apply(again), 0, "until it is ready it has not got any further");
        let other = pod("b", "other", 0, waiting("ErrImagePull", "x"));
        assert_eq!(receive(&pods, Event::Apply(other)), [NamespacedName::new("team-a", "other")].into());
    }

    #[test]
    fn newest_pod_comes_first_and_leaving_never() {
        let mut leaving = pod("c", "starter", 3, waiting("c", ""));
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        let ended = pod("d", "starter", 4, json!({ "phase": "Failed" }));
        let list =
            vec![pod("b", "starter", 1, waiting("b", "")), pod("a", "starter", 2, waiting("a", "")), leaving, ended];
        let pods = PodWatch::default();
        receive_list(&pods, list);
        let names = || -> Vec<String> { pods.observe(&starter()).unwrap().into_iter().map(|pod| pod.name).collect() };
        assert_eq!(names(), ["a", "b"]);
        receive(&pods, Event::Delete(pod("a", "starter", 2, json!({}))));
        assert_eq!(names(), ["b"]);
    }

    #[test]
    fn early_lookup_is_unknown_and_enqueued_later() {
        let pods = PodWatch::default();
        assert_eq!(pods.observe(&starter()), None);
        receive(&pods, Event::Init);
        assert_eq!(pods.observe(&starter()), None);
        receive(&pods, Event::InitDone);
        assert_eq!(pods.take_early(), [starter()].into());
        assert_eq!(pods.observe(&starter()), Some(vec![]));
        assert_eq!(pods.take_early(), [].into());
    }

    #[test]
    fn relist_removes_pods_and_carries_pull_causes() {
        let pods = PodWatch::default();
        let failing = |name, instance| pod(name, instance, 0, waiting("ErrImagePull", "not found"));
        let gone = NamespacedName::new("team-a", "gone");
        let listed = receive_list(&pods, vec![failing("a", "starter"), failing("b", "gone")]);
        assert_eq!(listed, [gone.clone(), starter()].into());
        let problem = || pod_problem::find(&pods.observe(&starter()).unwrap());
        let before = problem();
        let pause = pod("a", "starter", 0, waiting("ImagePullBackOff", "Back-off pulling image \"x\""));
        assert_eq!(receive_list(&pods, vec![pause]), [gone].into());
        assert_eq!(problem(), before);
        assert_eq!(pods.store.len(), 1);
        assert_eq!(pods.objects().problems.len(), 1);
    }

    fn at(second: u32) -> Value {
        json!(format!("2026-11-15T23:00:{second:02}Z"))
    }

    fn running(second: u32) -> Value {
        with_state(json!({ "running": { "startedAt": at(second) } }))
    }

    #[test]
    fn start_is_that_of_the_first_container() {
        let mut with_init = running(30);
        with_init["initContainerStatuses"] = json!([
            { "name": "b", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "terminated": { "exitCode": 0, "startedAt": at(20) } } },
            { "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "terminated": { "exitCode": 0, "startedAt": at(15) } } }]);
        let ended = with_state(json!({ "terminated": { "exitCode": 1, "startedAt": at(15) } }));
        for (status, created, expected) in [
            (running(20), 10, Some(20)),
            (running(5), 10, Some(10)),
            (waiting("CreateContainerConfigError", "secret not found"), 10, None),
            (ended, 10, None),
            (with_init, 10, Some(15)),
        ] {
            let record = record(&pod("a", "starter", created, status.clone())).unwrap();
            assert_eq!(json!(record.started), expected.map_or(Value::Null, at), "{status}");
        }
    }

    #[test]
    fn object_is_enqueued_when_its_oldest_pod_leaves() {
        let pods = PodWatch::default();
        receive_list(&pods, vec![pod("old", "starter", 1, running(2))]);
        let new = |status| receive(&pods, Event::Apply(pod("new", "starter", 10, status))).len();
        assert_eq!((new(json!({})), new(running(12))), (0, 0));
        assert_eq!(json!(pods.oldest_start(&starter())), at(2));
        let mut leaving = pod("old", "starter", 1, running(2));
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        assert_eq!(receive(&pods, Event::Apply(leaving)), [starter()].into());
        assert_eq!(json!(pods.oldest_start(&starter())), at(12));
        assert_eq!(receive(&pods, Event::Delete(pod("new", "starter", 10, json!({})))).len(), 0, "no pod is left");
        assert!(pods.objects().starts.is_empty());
    }
}
