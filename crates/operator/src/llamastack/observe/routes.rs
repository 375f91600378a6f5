//! Routes, where the cluster has them: OpenShift does, and the API may come and go.
//! Comes in: whether the API is served, and what its watch brings; goes out: the Route of an object, and which objects should
//! look again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::Resource;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;
use steersman_plan::llamastack::{ObservedRoute, Route, names};
use steersman_reconcile::NamespacedName;
use steersman_runtime::apply::Live;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::controller::ReconcileContext;
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::Scope;
use steersman_runtime::store::cache::{Cache, Watched};
use steersman_runtime::store::served::{self, Optional};
use tokio::sync::watch;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::CHILDREN;

/// The CRD of Routes. OpenShift serves them without one.
pub const ROUTES: &str = "routes.route.openshift.io";

const API: Optional = Optional { group: Route::GROUP, version: Route::VERSION, crd: ROUTES };

/// How long objects wait at the start, at most, until it is known whether there are Routes.
const LATE: Duration = Duration::from_secs(5);

/// What Routes need.
pub fn rules() -> Vec<Rule> {
    let rule = |resource, verbs, why| Rule::namespaced(Route::GROUP, resource, verbs, why);
    vec![
        rule(
            "routes",
            &["get", "list", "watch", "create", "patch", "delete"],
            "expose servers of LlamaStackDistributions on OpenShift",
        ),
        // OpenShift asks for it where a host name is not one of its own choice.
        rule("routes/custom-host", &["create", "update"], "give Routes the host names that their users ask for"),
    ]
}

#[derive(Clone)]
enum State {
    /// Nobody has an answer yet, but somebody asks.
    Asked,
    Absent,
    /// With all that there are.
    Served(Arc<Cache>),
}

/// What is known of Routes. As made by default nobody asks, and there are none.
pub struct Routes {
    state: watch::Sender<State>,
    /// The objects whose way from outside depends on it.
    exposed: Mutex<BTreeSet<NamespacedName>>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::Absent), exposed: Mutex::default() }
    }
}

impl Routes {
    /// For whoever runs [`Routes::follow`] beside: objects wait for the first answer.
    pub fn followed() -> Self {
        Self { state: watch::Sender::new(State::Asked), exposed: Mutex::default() }
    }

    /// What became of an object's Route; all that it has are put beside its other children.
    pub async fn seen(
        &self,
        server: &Server,
        place: &NamespacedName,
        uid: &str,
        exposed: bool,
        live: &mut Live,
    ) -> Result<ObservedRoute, CallError> {
        if exposed {
            self.exposed().insert(place.clone());
            // An Ingress made in haste would have to go again. The sender is ours, so that waiting cannot fail.
            let _ = self.state.subscribe().wait_for(|state| !matches!(state, State::Asked)).await;
        } else {
            self.forget(place);
        }
        let State::Served(cache) = self.state.borrow().clone() else { return Ok(ObservedRoute::NotServed) };
        let (kind, name) = (kind(), names::route(&place.name));
        let found = cache.children(server, &place.namespace, uid, &[(kind.clone(), name.clone())]).await?;
        found.of(&kind).for_each(|route| live.insert(&kind, route.clone()));
        Ok(found.get(&kind, &name).map_or(ObservedRoute::Unanswered, route_seen))
    }

    pub fn forget(&self, place: &NamespacedName) {
        self.exposed().remove(place);
    }

    /// Follows the API and its objects until `stop`.
    pub async fn follow(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let (tell, heard) = watch::channel(None);
        let late = async {
            time::sleep(LATE).await;
            if self.know_at_last(context) {
                tracing::warn!(seconds = LATE.as_secs(), "it is not known yet whether the cluster has Routes");
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = late => {}
            () = served::follow(&context.server, &API, |served| { tell.send_replace(Some(served)); }) => {}
            () = self.keep(context, scope, heard) => {}
        }
        // Passes under way end, too.
        self.know_at_last(context);
    }

    async fn keep(&self, context: &ReconcileContext, scope: &Scope, mut heard: watch::Receiver<Option<bool>>) {
        loop {
            let served = *heard.borrow_and_update();
            match served {
                None => {}
                Some(false) => self.know(State::Absent, context),
                Some(true) => {
                    let cache = Arc::new(Cache::new(vec![Watched { kind: kind(), labels: CHILDREN, naming: None }]));
                    let changes = cache.follow(&context.server, scope, |touched| {
                        context.queue.enqueue(NamespacedName::new(touched.namespace, touched.owner));
                    });
                    let listed = async {
                        cache.synced().await;
                        self.know(State::Served(cache.clone()), context);
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        () = changes => {}
                        () = listed => {}
                        _ = heard.changed() => {}
                    }
                    continue;
                }
            }
            if heard.changed().await.is_err() {
                return;
            }
        }
    }

    fn know(&self, state: State, context: &ReconcileContext) {
        let served = matches!(state, State::Served(_));
        let before = matches!(self.state.send_replace(state), State::Served(_));
        if served != before {
            tracing::info!(served, "whether the cluster has Routes");
            self.exposed().iter().cloned().for_each(|place| context.queue.enqueue(place));
        }
    }

    /// Whether nothing was known until now.
    fn know_at_last(&self, context: &ReconcileContext) -> bool {
        let asked = matches!(*self.state.borrow(), State::Asked);
        if asked {
            self.know(State::Absent, context);
        }
        asked
    }

    fn exposed(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn kind() -> GroupVersionKind {
    GroupVersionKind::gvk(Route::GROUP, Route::VERSION, Route::KIND)
}

/// One router that admits it is enough.
fn route_seen(route: &DynamicObject) -> ObservedRoute {
    let entries = || route.data["status"]["ingress"].as_array().into_iter().flatten();
    let admission = |entry: &'_ Value| -> Option<Value> {
        entry["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Admitted").cloned()
    };
    let admitted = entries().find(|entry| admission(entry).is_some_and(|known| known["status"] == "True"));
    if let Some(host) = admitted.and_then(|entry| entry["host"].as_str()) {
        return ObservedRoute::Admitted { host: host.to_owned() };
    }
    let refused = entries().filter_map(admission).find(|known| known["status"] == "False");
    refused.map_or(ObservedRoute::Unanswered, |known| {
        let said = |key: &str| known[key].as_str().unwrap_or_default().to_owned();
        ObservedRoute::Refused(format!("{}: {}", said("reason"), said("message")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_router_that_admits_a_route_is_enough() {
        let seen = |ingress: Value| {
            let route = json!({ "metadata": { "name": "starter-route" }, "status": { "ingress": ingress } });
            route_seen(&serde_json::from_value(route).unwrap())
        };
        let entry = |host: &str, status: &str| {
            json!({ "host": host, "conditions": [{ "type": "Admitted", "status": status,
                "reason": "HostAlreadyClaimed", "message": "route other has it" }] })
        };
        assert_eq!(seen(Value::Null), ObservedRoute::Unanswered);
        assert_eq!(seen(json!([{ "host": "a" }])), ObservedRoute::Unanswered);
        assert_eq!(seen(json!([entry("a", "Unknown")])), ObservedRoute::Unanswered);
        let refused = ObservedRoute::Refused("HostAlreadyClaimed: route other has it".into());
        assert_eq!(seen(json!([entry("a", "False")])), refused);
        assert_eq!(
            seen(json!([entry("a", "False"), entry("b", "True")])),
            ObservedRoute::Admitted { host: "b".into() }
        );
    }
}
