//! The pods of servers, as far as they say why they are not ready, kept up to date by a watch beside the passes.
//! Comes in: pods by their label; goes out: those of one object as small records, and which objects should look again because
//! what holds their pods up is another thing now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};
use steersman_plan::llamastack::trouble::{self, Trouble};
use steersman_plan::llamastack::{ObservedContainer, ObservedPod};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::Server;
use steersman_runtime::store::Scope;
use steersman_runtime::store::watching::follow;
use tokio_util::sync::CancellationToken;

use crate::pods::{ended, unscheduled, waiting};

const SERVERS: &str = "app=llama-stack";
/// Names the object that the pod belongs to.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Clones know the same.
#[derive(Clone, Default)]
pub struct Pods(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    by_object: BTreeMap<NamespacedName, Records>,
    /// What a new list has brought so far.
    incoming: Vec<Trimmed>,
    listed: bool,
    /// Objects that were looked at before the first list was complete.
    early: BTreeSet<NamespacedName>,
}

/// By name of the pod, with the time of its creation.
type Records = BTreeMap<String, (Option<Timestamp>, ObservedPod)>;

/// What is kept of a pod: a hundredth of it.
struct Trimmed {
    /// Of its object.
    place: NamespacedName,
    name: String,
    created: Option<Timestamp>,
    /// None: it says nothing about the pods that are to stay, because it leaves or has ended.
    seen: Option<ObservedPod>,
}

impl Pods {
    /// The newest first. None: not known yet; the object is woken once it is.
    pub fn seen(&self, place: &NamespacedName) -> Option<Vec<ObservedPod>> {
        let mut known = self.known();
        if !known.listed {
            known.early.insert(place.clone());
            return None;
        }
        Some(known.by_object.get(place).map(newest_first).unwrap_or_default())
    }

    /// The object is gone.
    pub fn forget(&self, place: &NamespacedName) {
        self.known().early.remove(place);
    }

    /// Follows the pods until `stop`. A watch that breaks is told of and begun again.
    pub async fn follow(&self, server: &Server, scope: &Scope, wake: impl Fn(NamespacedName), stop: CancellationToken) {
        let config = watcher::Config::default().labels(SERVERS);
        let follow = follow(scope.typed(server), "Pod", config, |event| {
            let concerned = self.known().take_in(event);
            concerned.into_iter().for_each(&wake);
        });
        stop.run_until_cancelled(follow).await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The objects whose pods are held up by something else than before.
    fn take_in(&mut self, event: Event<Pod>) -> BTreeSet<NamespacedName> {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply(pod) => self.incoming.extend(trimmed(&pod)),
            Event::InitDone => return self.replace(),
            Event::Apply(pod) => return trimmed(&pod).map(|pod| self.change(pod)).unwrap_or_default(),
            Event::Delete(pod) => {
                let gone = trimmed(&pod).map(|pod| Trimmed { seen: None, ..pod });
                return gone.map(|pod| self.change(pod)).unwrap_or_default();
            }
        }
        BTreeSet::new()
    }

    fn change(&mut self, pod: Trimmed) -> BTreeSet<NamespacedName> {
        let place = pod.place.clone();
        let before = self.trouble(&place);
        let records = self.by_object.entry(place.clone()).or_default();
        put(records, pod);
        if records.is_empty() {
            self.by_object.remove(&place);
        }
        let changed = self.trouble(&place) != before;
        changed.then_some(place).into_iter().collect()
    }

    /// A complete list: what is not in it is gone.
    fn replace(&mut self) -> BTreeSet<NamespacedName> {
        let held_up = self.troubles();
        let mut before = std::mem::take(&mut self.by_object);
        for pod in std::mem::take(&mut self.incoming).into_iter().filter(|pod| pod.seen.is_some()) {
            let known = before.get_mut(&pod.place).and_then(|known| known.remove_entry(&pod.name));
            let records = self.by_object.entry(pod.place.clone()).or_default();
            // What is carried from word to word is carried across a new list, too.
            records.extend(known);
            put(records, pod);
        }
        self.listed = true;
        let now = self.troubles();
        let changed = held_up.keys().chain(now.keys()).filter(|place| held_up.get(*place) != now.get(*place));
        let changed: BTreeSet<NamespacedName> = changed.cloned().collect();
        changed.into_iter().chain(std::mem::take(&mut self.early)).collect()
    }

    fn troubles(&self) -> BTreeMap<NamespacedName, Trouble> {
        self.by_object.keys().filter_map(|place| Some((place.clone(), self.trouble(place)?))).collect()
    }

    fn trouble(&self, place: &NamespacedName) -> Option<Trouble> {
        trouble::find(&newest_first(self.by_object.get(place)?))
    }
}

fn newest_first(records: &Records) -> Vec<ObservedPod> {
    let mut records: Vec<_> = records.iter().collect();
    records.sort_by_key(|(name, (created, _))| (std::cmp::Reverse(*created), *name));
    records.into_iter().map(|(_, (_, pod))| pod.clone()).collect()
}

/// None: it names no object.
fn trimmed(pod: &Pod) -> Option<Trimmed> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let stays = pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"));
    Some(Trimmed {
        place: NamespacedName::new(pod.namespace()?, pod.labels().get(INSTANCE)?),
        name: pod.name_any(),
        created: pod.creation_timestamp().map(|time| time.0),
        seen: stays.then(|| record(pod)),
    })
}

fn put(records: &mut Records, pod: Trimmed) {
    let Some(now) = pod.seen else {
        records.remove(&pod.name);
        return;
    };
    let now = match records.get(&pod.name) {
        Some((_, before)) => trouble::carried(before, now),
        None => now,
    };
    records.insert(pod.name, (pod.created, now));
}

fn record(pod: &Pod) -> ObservedPod {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let before = status.init_container_statuses.iter().flatten().map(|status| container(pod, status, true));
    let beside = status.container_statuses.iter().flatten().map(|status| container(pod, status, false));
    ObservedPod { unscheduled: unscheduled(status), containers: before.chain(beside).collect() }
}

fn container(pod: &Pod, status: &ContainerStatus, init: bool) -> ObservedContainer {
    let state = status.state.as_ref();
    ObservedContainer {
        name: status.name.clone(),
        image: asked_for(pod, status, init),
        init,
        ready: status.ready,
        waiting: waiting(state),
        ended: ended(state).or_else(|| ended(status.last_state.as_ref())),
    }
}

/// As the spec has it: the status may name the same image in other words.
fn asked_for(pod: &Pod, status: &ContainerStatus, init: bool) -> String {
    let spec = pod.spec.as_ref();
    let list =
        spec.map(|spec| if init { spec.init_containers.as_deref().unwrap_or_default() } else { &spec.containers });
    let named = list.unwrap_or_default().iter().find(|container| container.name == status.name);
    named.and_then(|container| container.image.clone()).unwrap_or_else(|| status.image.clone())
}

#[cfg(test)]
mod tests {
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

    fn listed(pods: Vec<Pod>) -> Known {
        let mut known = Known::default();
        known.take_in(Event::Init);
        for pod in pods {
            known.take_in(Event::InitApply(pod));
        }
        known.take_in(Event::InitDone);
        known
    }

    #[test]
    fn an_object_is_woken_when_something_else_holds_its_pods_up_and_only_then() {
        let mut known = listed(vec![]);
        let mut apply = |status| known.take_in(Event::Apply(pod("a", "starter", 0, status))).len();
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
        assert_eq!(known.take_in(Event::Apply(other)), [NamespacedName::new("team-a", "other")].into());
    }

    #[test]
    fn records_say_what_the_spec_asks_for_and_why_there_is_no_node() {
        let mut unscheduled = pod(
            "a",
            "starter",
            0,
            json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" }] }),
        );
        assert_eq!(record(&unscheduled).unscheduled.as_deref(), Some("0/1 nodes"));
        unscheduled.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].reason =
            Some("SchedulingGated".to_owned());
        assert_eq!(record(&unscheduled).unscheduled, None, "somebody holds it back on purpose");
        let seen = record(&pod("a", "starter", 0, waiting("ErrImagePull", "x")));
        assert_eq!((seen.containers[0].image.as_str(), seen.containers[0].init), ("starter:1", false));
    }

    #[test]
    fn the_newest_pod_comes_first_and_one_that_leaves_or_has_ended_not_at_all() {
        let mut leaving = pod("c", "starter", 3, waiting("c", ""));
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        let ended = pod("d", "starter", 4, json!({ "phase": "Failed" }));
        let pods =
            vec![pod("b", "starter", 1, waiting("b", "")), pod("a", "starter", 2, waiting("a", "")), leaving, ended];
        let pods = Pods(Arc::new(Mutex::new(listed(pods))));
        let reasons = |pods: &Pods| -> Vec<String> {
            pods.seen(&starter()).unwrap().iter().map(|pod| pod.containers[0].waiting.clone().unwrap().0).collect()
        };
        assert_eq!(reasons(&pods), ["a", "b"]);
        pods.known().take_in(Event::Delete(pod("a", "starter", 2, json!({}))));
        assert_eq!(reasons(&pods), ["b"]);
    }

    #[test]
    fn who_looks_before_the_list_is_complete_sees_nothing_and_is_woken_then() {
        let pods = Pods::default();
        assert_eq!(pods.seen(&starter()), None);
        pods.known().take_in(Event::Init);
        assert_eq!(pods.seen(&starter()), None);
        assert_eq!(pods.known().take_in(Event::InitDone), [starter()].into());
        assert_eq!(pods.seen(&starter()), Some(vec![]));
    }

    #[test]
    fn what_a_new_list_no_longer_has_is_gone_and_what_was_carried_stays() {
        let mut known = listed(vec![
            pod("a", "starter", 0, waiting("ErrImagePull", "not found")),
            pod("gone", "gone", 0, waiting("ErrImagePull", "x")),
        ]);
        let before = known.trouble(&starter());
        known.take_in(Event::Init);
        known.take_in(Event::InitApply(pod(
            "a",
            "starter",
            0,
            waiting("ImagePullBackOff", "Back-off pulling image \"x\""),
        )));
        let concerned = known.take_in(Event::InitDone);
        assert_eq!(concerned, [NamespacedName::new("team-a", "gone")].into());
        assert_eq!(known.trouble(&starter()), before);
        assert_eq!(known.by_object.len(), 1);
    }
}
