//! The graphs that requests have led to. Their API may be absent, and may come and go.
//! Comes in: whether the API is served, and what its watch brings; goes out: the graph of a name as a small record, and which
//! requests should look again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use steersman_api::Family;
use steersman_plan::dynamo::{ObservedGraph, names};
use steersman_reconcile::NamespacedName;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::store::Scope;
use steersman_runtime::store::references::is_name;
use steersman_runtime::store::served::{self, Optional};
use steersman_runtime::store::watching::follow;
use tokio::sync::watch as news;
use tokio_util::sync::CancellationToken;

/// The graphs of all requests carry it, and of nobody else.
const OF_REQUESTS: &str = "dgdr.nvidia.com/name";

/// What came of looking for a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Graph(ObservedGraph),
    Absent,
    /// Nobody can say: the cluster does not serve graphs, or not in the version that they are asked for in.
    Unserved,
}

impl Found {
    pub fn graph(self) -> Option<ObservedGraph> {
        match self {
            Self::Graph(graph) => Some(graph),
            Self::Absent | Self::Unserved => None,
        }
    }
}

/// What is known of graphs that were made for requests.
#[derive(Default)]
pub struct Graphs {
    known: Mutex<BTreeMap<NamespacedName, ObservedGraph>>,
    /// The requests whose graph is not there. The API may come, and with it what can be created.
    awaiting: Mutex<BTreeSet<NamespacedName>>,
    /// The API is known not to be served. A server may answer for it a moment longer, and nobody would look again.
    unserved: AtomicBool,
}

impl Graphs {
    /// The graph of a name. What the watch does not know is asked for: it may lag, may not be there, and sees no graph but
    /// those of requests; and that a graph is absent ends a request for good.
    pub async fn seen(&self, server: &Server, place: &NamespacedName, by: &NamespacedName) -> Result<Found, CallError> {
        if let Some(known) = self.known().get(place) {
            return Ok(Found::Graph(known.clone()));
        }
        // Users choose it, and what is no name would be a path.
        if !is_name(&place.name) {
            return Ok(Found::Absent);
        }
        // Before anything is asked: what comes meanwhile wakes it.
        self.awaiting().insert(by.clone());
        if self.unserved.load(Ordering::Acquire) {
            return Ok(Found::Unserved);
        }
        let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &place.namespace, &resource());
        match server.call(api.get_opt(&place.name)).await {
            Ok(Some(graph)) => {
                self.forget(by);
                Ok(Found::Graph(graph_seen(&graph)))
            }
            Ok(None) => Ok(Found::Absent),
            // That an object is absent is answered in another way; here its whole path is.
            Err(CallError::Answered { code: 404, .. }) => Ok(Found::Unserved),
            Err(error) => Err(error),
        }
    }

    /// The request is gone.
    pub fn forget(&self, request: &NamespacedName) {
        self.awaiting().remove(request);
    }

    /// The request that a graph was made for.
    pub fn request(&self, graph: &NamespacedName) -> Option<NamespacedName> {
        self.known().get(graph).and_then(|known| request(&graph.namespace, known))
    }

    /// Follows the API and its objects until `stop`.
    pub async fn follow(&self, server: &Server, scope: &Scope, wake: impl Fn(NamespacedName), stop: CancellationToken) {
        let api = Optional {
            group: Family::Dgd.group(),
            version: Family::Dgd.storage_version(),
            crd: Family::Dgd.crd_name(),
        };
        let (tell, heard) = news::channel(false);
        let told = |served: bool| {
            tracing::info!(served, "whether the cluster has DynamoGraphDeployments");
            self.unserved.store(!served, Ordering::Release);
            tell.send_replace(served);
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = served::follow(server, &api, told) => {}
            () = self.keep(server, scope, &wake, heard) => {}
        }
    }

    async fn keep(
        &self,
        server: &Server,
        scope: &Scope,
        wake: &impl Fn(NamespacedName),
        mut heard: news::Receiver<bool>,
    ) {
        loop {
            let served = *heard.borrow_and_update();
            if served {
                tokio::select! {
                    () = self.watch(server, scope, wake) => {}
                    _ = heard.changed() => {}
                }
            } else {
                // With the API its objects are gone, or out of sight.
                self.replace(BTreeMap::new()).into_iter().for_each(wake);
                if heard.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    async fn watch(&self, server: &Server, scope: &Scope, wake: &impl Fn(NamespacedName)) {
        let resource = resource();
        let config = watcher::Config::default().labels(OF_REQUESTS);
        let mut incoming = BTreeMap::new();
        follow(scope.api(server, &resource), &resource.kind, config, |event: Event<DynamicObject>| {
            self.take_in(event, &mut incoming).into_iter().for_each(wake);
        })
        .await;
    }

    fn take_in(
        &self,
        event: Event<DynamicObject>,
        incoming: &mut BTreeMap<NamespacedName, ObservedGraph>,
    ) -> BTreeSet<NamespacedName> {
        match event {
            Event::Init => incoming.clear(),
            Event::InitApply(object) => _ = incoming.insert(place(&object), graph_seen(&object)),
            Event::InitDone => {
                let mut concerned = self.replace(std::mem::take(incoming));
                concerned.append(&mut self.awaiting());
                return concerned;
            }
            Event::Apply(object) => return self.change(place(&object), Some(graph_seen(&object))),
            Event::Delete(object) => return self.change(place(&object), None),
        }
        BTreeSet::new()
    }

    fn change(&self, place: NamespacedName, now: Option<ObservedGraph>) -> BTreeSet<NamespacedName> {
        let mut known = self.known();
        let before = match now.clone() {
            Some(now) => known.insert(place.clone(), now),
            None => known.remove(&place),
        };
        if before == now {
            return BTreeSet::new();
        }
        before.iter().chain(&now).filter_map(|graph| request(&place.namespace, graph)).collect()
    }

    /// A complete list: what is not in it is gone.
    fn replace(&self, now: BTreeMap<NamespacedName, ObservedGraph>) -> BTreeSet<NamespacedName> {
        let before = std::mem::replace(&mut *self.known(), now.clone());
        let places = before.keys().chain(now.keys()).filter(|place| before.get(*place) != now.get(*place));
        let of = |place: &NamespacedName| {
            [before.get(place), now.get(place)].into_iter().flatten().cloned().collect::<Vec<_>>()
        };
        places.flat_map(|place| of(place).into_iter().filter_map(|graph| request(&place.namespace, &graph))).collect()
    }

    fn awaiting(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.awaiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, ObservedGraph>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(Family::Dgd.group(), Family::Dgd.storage_version(), Family::Dgd.kind());
    ApiResource::from_gvk_with_plural(&kind, Family::Dgd.plural())
}

fn place(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// A graph is made where its request is.
fn request(namespace: &str, graph: &ObservedGraph) -> Option<NamespacedName> {
    let here = graph.labels.get(names::LABEL_NAMESPACE).is_none_or(|named| named == namespace);
    graph.labels.get(names::LABEL_NAME).filter(|_| here).map(|name| NamespacedName::new(namespace, name))
}

fn graph_seen(object: &DynamicObject) -> ObservedGraph {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array();
    let unready = conditions.into_iter().flatten().find(|known| known["type"] == "Ready" && known["status"] == "False");
    ObservedGraph {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        api_version: resource().api_version,
        created: object.creation_timestamp().map(|time| time.0),
        labels: object.labels().clone(),
        annotations: object.annotations().clone(),
        state: status["state"].as_str().map(str::to_owned),
        unready: unready.and_then(|known| known["message"].as_str()).map(str::to_owned),
        replicas: sum(status, "replicas"),
        available: sum(status, "availableReplicas"),
    }
}

/// Over its components, which v1alpha1 calls services.
fn sum(status: &Value, field: &str) -> i32 {
    let components = ["components", "services"].into_iter().find_map(|name| status[name].as_object());
    let numbers = components.into_iter().flatten().filter_map(|(_, component)| component[field].as_i64());
    i32::try_from(numbers.sum::<i64>()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
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
    fn a_record_has_the_sums_over_components_and_what_it_waits_for() {
        let seen = graph_seen(&graph("qwen-dgd", "qwen", "pending"));
        assert_eq!((seen.replicas, seen.available), (3, 1));
        assert_eq!((seen.state.as_deref(), seen.unready.as_deref()), (Some("pending"), Some("decode waits")));
        assert_eq!(seen.api_version, "nvidia.com/v1beta1");
    }

    #[test]
    fn a_request_is_woken_when_something_changes_that_it_looks_at() {
        let graphs = Graphs::default();
        let change = |object: &DynamicObject| graphs.change(place(object), Some(graph_seen(object)));
        let woken = BTreeSet::from([NamespacedName::new("team-a", "qwen")]);
        assert_eq!(change(&graph("qwen-dgd", "qwen", "pending")), woken);
        assert_eq!(change(&graph("qwen-dgd", "qwen", "pending")), BTreeSet::new());
        assert_eq!(change(&graph("qwen-dgd", "qwen", "successful")), woken);
        assert_eq!(graphs.request(&NamespacedName::new("team-a", "qwen-dgd")), woken.first().cloned());
        assert_eq!(graphs.replace(BTreeMap::new()), woken, "a list without it says that it is gone");
    }
}
