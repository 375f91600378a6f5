//! Stores the pods of profiling Jobs and of graphs, with the fields that explain why they do not start.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, ListParams};
use kube::runtime::watcher;
use steersman_plan::pods::ObservedPod;
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::store::{Change, RawObject, Record, SMALL_PAGE, Scope, Store, SyncState};
use tokio_util::sync::CancellationToken;

use crate::pods::observe;

/// Label of every pod of a Job, with the name of the Job.
pub const OF_JOB: &str = "batch.kubernetes.io/job-name";
/// Label of every pod of a graph, with the name of the graph.
pub const OF_GRAPH: &str = "nvidia.com/dynamo-graph-deployment-name";

/// The pods whose Job or graph can be one of ours.
pub struct PodStore {
    /// Label with the name of the Job or graph.
    label: &'static str,
    /// Label selector of the watch: a cluster has many Jobs that are not ours.
    followed: &'static str,
    store: Store<PodRecord>,
}

#[derive(Clone, Debug, PartialEq)]
struct PodRecord {
    /// The Job or graph.
    of: NamespacedName,
    pod: ObservedPod,
}

impl Record for PodRecord {
    fn owner(&self) -> Option<&str> {
        Some(&self.of.name)
    }
}

impl PodStore {
    pub fn new(label: &'static str, followed: &'static str) -> Self {
        // Pods are read without the store before its first list, which may differ from what was read.
        Self { label, followed, store: Store::reporting_first_list() }
    }

    /// The pods of one Job or graph, by name. Read from the API server before the store is synced.
    pub async fn get(&self, server: &Server, of: &NamespacedName) -> Result<Vec<ObservedPod>, CallError> {
        if self.store.sync_state() != SyncState::Synced {
            return self.fetch(server, of).await;
        }
        Ok(self.store.owned_by(of).into_iter().map(|record| record.pod).collect())
    }

    /// Reads the first pods of one Job or graph from the API server, because the watch of pods may be behind that of Jobs or graphs.
    pub async fn fetch(&self, server: &Server, of: &NamespacedName) -> Result<Vec<ObservedPod>, CallError> {
        let api: Api<RawObject> =
            Api::namespaced_with(server.client.clone(), &of.namespace, &ApiResource::erase::<Pod>(&()));
        let wanted = ListParams::default().labels(&format!("{}={}", self.label, of.name)).limit(SMALL_PAGE);
        let listed = server.call(api.list(&wanted)).await?;
        Ok(listed.items.iter().filter_map(|pod| Some(observe(&pod.parse()?))).collect())
    }

    /// Follows the pods until `stop`, and reports each Job or graph whose pods have changed.
    pub async fn follow(
        &self,
        server: &Server,
        scope: &Scope,
        enqueue: impl Fn(NamespacedName),
        stop: CancellationToken,
    ) {
        let config = watcher::Config::default().labels(self.followed).page_size(SMALL_PAGE);
        let changed = |change: Change<PodRecord>| change.owners().into_iter().for_each(&enqueue);
        let api: Api<RawObject> = scope.api(server, &ApiResource::erase::<Pod>(&()));
        let follow = self.store.follow(api, "Pod", config, |pod| self.trim(&pod.parse()?), changed);
        stop.run_until_cancelled(follow).await;
    }

    /// None if the pod names no Job or graph.
    fn trim(&self, pod: &Pod) -> Option<PodRecord> {
        let of = NamespacedName::new(pod.namespace()?, pod.labels().get(self.label)?);
        let mut pod = observe(pod);
        // Readiness and earlier runs are not reported, so a change of them must not enqueue a request.
        for container in &mut pod.containers {
            (container.ready, container.last_terminated) = (false, None);
        }
        Some(PodRecord { of, pod })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::runtime::watcher::Event;
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
    fn only_job_with_changed_pods_is_reported() {
        let pods = PodStore::new(OF_JOB, names::LABEL_PROFILED);
        let receive = |event| -> BTreeSet<NamespacedName> {
            let changes = pods.store.receive(event, &|pod| pods.trim(pod));
            changes.iter().flat_map(Change::owners).collect()
        };
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        receive(Event::Init);
        receive(Event::InitApply(pod("a", "profile-qwen", waiting("ContainerCreating"))));
        receive(Event::InitApply(pod("b", "profile-llama", waiting("ContainerCreating"))));
        assert_eq!(receive(Event::InitDone), places(&["profile-llama", "profile-qwen"]));
        assert_eq!(receive(Event::Apply(pod("a", "profile-qwen", waiting("ContainerCreating")))), places(&[]));
        assert_eq!(receive(Event::Apply(pod("a", "profile-qwen", waiting("ErrImagePull")))), places(&["profile-qwen"]));
        let unlabelled = Pod { metadata: Default::default(), ..pod("c", "", waiting("ErrImagePull")) };
        assert_eq!(receive(Event::Apply(unlabelled)), places(&[]));
        assert_eq!(
            receive(Event::Delete(pod("a", "profile-qwen", waiting("ErrImagePull")))),
            places(&["profile-qwen"])
        );
    }
}
