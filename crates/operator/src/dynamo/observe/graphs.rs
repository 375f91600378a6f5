//! Keeps the DynamoGraphDeployments of requests. Clusters may lack their API.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use serde_json::Value;
use steersman_api::Family;
use steersman_plan::dynamo::{ObservedGraph, names};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::store::references::is_name;
use steersman_runtime::store::served::Optional;
use steersman_runtime::store::{Change, Record, SMALL_PAGE, Scope, Store, SyncState};
use tokio_util::sync::CancellationToken;

const API: Optional =
    Optional { group: Family::Dgd.group(), version: Family::Dgd.storage_version(), crd: Family::Dgd.crd_name() };

/// Result of the search for a graph.
pub enum GraphLookup {
    Graph(ObservedGraph),
    Absent,
    /// The cluster does not serve graphs, or not in the version that we read, so that a graph may exist.
    Unserved,
}

/// The graphs that were created for requests.
pub struct Graphs {
    store: Store<GraphRecord>,
    /// The requests whose graph was not in the store. They are enqueued when the API is served and listed, because graphs can
    /// be created from then on.
    awaiting: Mutex<BTreeSet<NamespacedName>>,
}

#[derive(Clone, Debug, PartialEq)]
struct GraphRecord {
    /// Name of the request that the graph was created for. Both are in the same namespace.
    request: Option<String>,
    graph: ObservedGraph,
}

impl Record for GraphRecord {
    fn owner(&self) -> Option<&str> {
        self.request.as_deref()
    }
}

impl Default for Graphs {
    fn default() -> Self {
        // Graphs are read without the store before its first list, which may differ from what was read.
        Self { store: Store::reporting_first_list(), awaiting: Mutex::default() }
    }
}

impl Graphs {
    /// Finds the graph of a request. A graph that is not in the store is read from the API server, because a request whose
    /// graph is absent fails for good, and because the watch may lag, may be forbidden, and sees no graph without our label.
    pub async fn find(
        &self,
        server: &Server,
        graph: &NamespacedName,
        request: &NamespacedName,
    ) -> Result<GraphLookup, CallError> {
        if let Some(known) = self.store.with(graph, |record| record.graph.clone()) {
            return Ok(GraphLookup::Graph(known));
        }
        // Users choose the name. An invalid one could be the path of another resource.
        if !is_name(&graph.name) {
            return Ok(GraphLookup::Absent);
        }
        // Before the read, so that a list that completes meanwhile enqueues the request.
        self.awaiting().insert(request.clone());
        // The API server may answer for a removed API a moment longer, and no event would correct that answer.
        if self.store.sync_state() == SyncState::NotServed {
            return Ok(GraphLookup::Unserved);
        }
        let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &graph.namespace, &resource());
        match server.call(api.get_opt(&graph.name)).await {
            Ok(Some(graph)) => {
                // Before the first list, a deletion of the graph is no change of the store: the list enqueues the request.
                if self.store.sync_state() == SyncState::Synced {
                    self.forget(request);
                }
                Ok(GraphLookup::Graph(observed(&graph)))
            }
            Ok(None) => Ok(GraphLookup::Absent),
            // A missing object is `None`; here the API server does not know the path.
            Err(CallError::Answered { code: 404, .. }) => Ok(GraphLookup::Unserved),
            Err(error) => Err(error),
        }
    }

    /// Drops a request that no longer exists.
    pub fn forget(&self, request: &NamespacedName) {
        self.awaiting().remove(request);
    }

    /// The request that a graph was created for.
    pub fn request(&self, graph: &NamespacedName) -> Option<NamespacedName> {
        let request = self.store.with(graph, |record| record.request.clone()).flatten()?;
        Some(NamespacedName::new(graph.namespace.as_str(), request))
    }

    /// Follows the API and its objects until `stop`, and enqueues each request whose graph has changed.
    pub async fn follow(
        &self,
        server: &Server,
        scope: &Scope,
        enqueue: impl Fn(NamespacedName),
        stop: CancellationToken,
    ) {
        let resource = resource();
        let changed = |change: Change<GraphRecord>| change.owners().into_iter().for_each(&enqueue);
        let follow = || async {
            let config = watcher::Config::default().labels(names::LABEL_NAME).page_size(SMALL_PAGE);
            let watch = self.store.follow(scope.api(server, &resource), &resource.kind, config, record, &changed);
            tokio::join!(watch, self.enqueue_awaiting(&enqueue));
        };
        stop.run_until_cancelled(self.store.follow_while_served(server, &API, follow, &changed)).await;
    }

    /// Waits for the list.
    async fn enqueue_awaiting(&self, enqueue: impl Fn(NamespacedName)) {
        self.store.synced().await;
        let awaiting = std::mem::take(&mut *self.awaiting());
        awaiting.into_iter().for_each(enqueue);
    }

    fn awaiting(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.awaiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(API.group, API.version, Family::Dgd.kind());
    ApiResource::from_gvk_with_plural(&kind, Family::Dgd.plural())
}

fn record(object: &DynamicObject) -> Option<GraphRecord> {
    Some(GraphRecord { request: request(object), graph: observed(object) })
}

/// The request that the labels name. A graph is in the namespace of its request.
fn request(graph: &DynamicObject) -> Option<String> {
    let (namespace, labels) = (graph.namespace()?, graph.labels());
    if labels.get(names::LABEL_NAMESPACE).is_some_and(|named| *named != namespace) {
        return None;
    }
    labels.get(names::LABEL_NAME).cloned()
}

fn observed(graph: &DynamicObject) -> ObservedGraph {
    let status = &graph.data["status"];
    let conditions = status["conditions"].as_array();
    let unready = conditions.into_iter().flatten().find(|known| known["type"] == "Ready" && known["status"] == "False");
    ObservedGraph {
        name: graph.name_any(),
        uid: graph.uid().unwrap_or_default(),
        api_version: resource().api_version,
        created: graph.creation_timestamp().map(|time| time.0),
        labels: graph.labels().clone(),
        annotations: graph.annotations().clone(),
        state: status["state"].as_str().map(str::to_owned),
        unready: unready.and_then(|known| known["message"].as_str()).map(str::to_owned),
        replicas: sum(status, "replicas"),
        available: sum(status, "availableReplicas"),
    }
}

/// Sums a field over the components, which v1alpha1 calls services.
fn sum(status: &Value, field: &str) -> i32 {
    let components = ["components", "services"].into_iter().find_map(|name| status[name].as_object());
    let numbers = components.into_iter().flatten().filter_map(|(_, component)| component[field].as_i64());
    i32::try_from(numbers.sum::<i64>()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn graph(name: &str, request: &str, state: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
            "metadata": { "name": name, "namespace": "team-a", "uid": "u", "labels": names::labels(request, "team-a") },
            "status": { "state": state, "components": {
                "Frontend": { "replicas": 1, "availableReplicas": 1 }, "decode": { "replicas": 2 } },
                "conditions": [{ "type": "Ready", "status": "False", "message": "decode waits" }] },
        }))
        .unwrap()
    }

    #[test]
    fn record_sums_components_and_keeps_unready_message() {
        let observed = observed(&graph("qwen-dgd", "qwen", "pending"));
        assert_eq!((observed.replicas, observed.available), (3, 1));
        assert_eq!((observed.state.as_deref(), observed.unready.as_deref()), (Some("pending"), Some("decode waits")));
        assert_eq!(observed.api_version, "nvidia.com/v1beta1");
    }

    #[test]
    fn changed_graph_concerns_its_request() {
        let graphs = Graphs::default();
        let concerned = |event: Event<DynamicObject>| {
            let changes = graphs.store.receive(event, &record);
            changes.iter().flat_map(Change::owners).collect::<BTreeSet<_>>()
        };
        let request = BTreeSet::from([NamespacedName::new("team-a", "qwen")]);
        assert_eq!(concerned(Event::Apply(graph("qwen-dgd", "qwen", "pending"))), request);
        assert_eq!(concerned(Event::Apply(graph("qwen-dgd", "qwen", "pending"))), BTreeSet::new());
        assert_eq!(concerned(Event::Apply(graph("qwen-dgd", "qwen", "successful"))), request);
        assert_eq!(graphs.request(&NamespacedName::new("team-a", "qwen-dgd")), request.first().cloned());
        assert_eq!(concerned(Event::InitDone), request, "the first list does not contain the graph");
        let mut foreign = graph("qwen-dgd", "qwen", "pending");
        foreign.metadata.namespace = Some("team-b".to_owned());
        assert_eq!(concerned(Event::Apply(foreign)), BTreeSet::new(), "its labels name another namespace");
    }

    #[test]
    fn awaiting_request_is_enqueued_once_api_is_listed() {
        let (graphs, request) = (Graphs::default(), NamespacedName::new("team-a", "qwen"));
        let enqueued = Mutex::new(Vec::new());
        graphs.store.not_served();
        graphs.store.relist();
        graphs.awaiting().insert(request.clone());
        let mut enqueue = std::pin::pin!(graphs.enqueue_awaiting(|request| enqueued.lock().unwrap().push(request)));
        assert_eq!(enqueue.as_mut().now_or_never(), None);
        graphs.store.receive(Event::InitDone, &record);
        assert_eq!(enqueue.as_mut().now_or_never(), Some(()));
        assert_eq!((enqueued.lock().unwrap().as_slice(), graphs.awaiting().len()), (&[request][..], 0));
    }
}
