//! Keeps the Routes of LlamaStackDistributions. OpenShift has them; other clusters may lack their API.

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
use steersman_runtime::store::cache::{Cache, Watched};
use steersman_runtime::store::served::Optional;
use steersman_runtime::store::{Scope, while_served};
use tokio::sync::watch;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::CHILDREN;

/// The CRD of Routes. OpenShift serves them without one.
pub const ROUTES: &str = "routes.route.openshift.io";

const API: Optional = Optional { group: Route::GROUP, version: Route::VERSION, crd: ROUTES };

/// Longest wait of a reconcile until it is known whether the cluster has Routes.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Access to Routes.
pub fn rules() -> Vec<Rule> {
    let rule = |resource, verbs, why| Rule::namespaced(Route::GROUP, resource, verbs, why);
    vec![
        rule(
            "routes",
            &["get", "list", "watch", "create", "patch", "delete"],
            "expose servers of LlamaStackDistributions on OpenShift",
        ),
        // OpenShift requires it for host names that users choose.
        rule("routes/custom-host", &["create", "update"], "set the host names that users choose for Routes"),
    ]
}

#[derive(Clone)]
enum RouteApi {
    /// It is not known yet whether the cluster has Routes, or their first list is not complete. Reconciles of exposed
    /// objects wait until it is, for at most [`MAX_WAIT`].
    Unknown,
    NotServed,
    Served(Arc<Cache>),
}

/// By default nothing is followed, and there are no Routes.
pub struct Routes {
    state: watch::Sender<RouteApi>,
    /// The objects that are reached through a Route or, without Routes, through an Ingress.
    exposed: Mutex<BTreeSet<NamespacedName>>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { state: watch::Sender::new(RouteApi::NotServed), exposed: Mutex::default() }
    }
}

impl Routes {
    /// For callers that run [`Routes::follow`]: reconciles wait for the first answer.
    pub fn followed() -> Self {
        Self { state: watch::Sender::new(RouteApi::Unknown), exposed: Mutex::default() }
    }

    /// The state of an object's Route. Adds all Routes of the object to `live`.
    pub async fn observe(
        &self,
        server: &Server,
        place: &NamespacedName,
        uid: &str,
        exposed: bool,
        live: &mut Live,
    ) -> Result<ObservedRoute, CallError> {
        if exposed {
            self.exposed().insert(place.clone());
            // An Ingress that is created before that would have to be deleted again. The sender is ours, so that waiting
            // cannot fail.
            let _ = self.state.subscribe().wait_for(|state| !matches!(state, RouteApi::Unknown)).await;
        } else {
            self.forget(place);
        }
        let RouteApi::Served(cache) = self.state.borrow().clone() else { return Ok(ObservedRoute::NotServed) };
        let (kind, name) = (kind(), names::route(&place.name));
        let found = cache.children(server, &place.namespace, uid, &[(kind.clone(), name.clone())]).await?;
        found.of(&kind).for_each(|route| live.insert(&kind, route.clone()));
        Ok(found.get(&kind, &name).map_or(ObservedRoute::Unanswered, observe_route))
    }

    pub fn forget(&self, place: &NamespacedName) {
        self.exposed().remove(place);
    }

    /// Follows the API and its objects until `stop`.
    pub async fn follow(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let late = async {
            time::sleep(MAX_WAIT).await;
            if self.end_wait(context) {
                tracing::warn!(
                    seconds = MAX_WAIT.as_secs(),
                    "cannot determine whether the cluster has Routes; assuming that it has none"
                );
            }
            std::future::pending::<()>().await;
        };
        let not_served = || self.set(RouteApi::NotServed, context);
        let follow = || async {
            let cache = Arc::new(Cache::new(vec![Watched { kind: kind(), labels: CHILDREN, naming: None }]));
            let watch = cache.follow(&context.server, scope, |touched| {
                context.queue.enqueue(NamespacedName::new(touched.namespace, touched.owner));
            });
            let synced = async {
                cache.synced().await;
                self.set(RouteApi::Served(cache.clone()), context);
            };
            tokio::join!(watch, synced);
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = late => {}
            () = while_served(&context.server, &API, not_served, follow) => {}
        }
        // Reconciles in progress must not wait any longer.
        self.end_wait(context);
    }

    /// Enqueues the exposed objects if Routes appear or disappear.
    fn set(&self, state: RouteApi, context: &ReconcileContext) {
        let served = matches!(state, RouteApi::Served(_));
        let before = matches!(self.state.send_replace(state), RouteApi::Served(_));
        if served != before {
            self.exposed().iter().cloned().for_each(|object| context.queue.enqueue(object));
        }
    }

    /// Assumes that there are no Routes if that is not known yet. Returns whether it was unknown.
    fn end_wait(&self, context: &ReconcileContext) -> bool {
        let unknown = matches!(*self.state.borrow(), RouteApi::Unknown);
        if unknown {
            self.set(RouteApi::NotServed, context);
        }
        unknown
    }

    fn exposed(&self) -> MutexGuard<'_, BTreeSet<NamespacedName>> {
        self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn kind() -> GroupVersionKind {
    GroupVersionKind::gvk(Route::GROUP, Route::VERSION, Route::KIND)
}

/// A Route is admitted if one router admits it.
fn observe_route(route: &DynamicObject) -> ObservedRoute {
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
        let text = |key: &str| known[key].as_str().unwrap_or_default().to_owned();
        ObservedRoute::Refused(format!("{}: {}", text("reason"), text("message")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_admitting_router_is_enough() {
        let observed = |ingress: Value| {
            let route = json!({ "metadata": { "name": "starter-route" }, "status": { "ingress": ingress } });
            observe_route(&serde_json::from_value(route).unwrap())
        };
        let entry = |host: &str, status: &str| {
            json!({ "host": host, "conditions": [{ "type": "Admitted", "status": status,
                "reason": "HostAlreadyClaimed", "message": "route other has it" }] })
        };
        assert_eq!(observed(Value::Null), ObservedRoute::Unanswered);
        assert_eq!(observed(json!([{ "host": "a" }])), ObservedRoute::Unanswered);
        assert_eq!(observed(json!([entry("a", "Unknown")])), ObservedRoute::Unanswered);
        let refused = ObservedRoute::Refused("HostAlreadyClaimed: route other has it".into());
        assert_eq!(observed(json!([entry("a", "False")])), refused);
        assert_eq!(
            observed(json!([entry("a", "False"), entry("b", "True")])),
            ObservedRoute::Admitted { host: "b".into() }
        );
    }
}
