//! Reads workloads of kinds that are not watched, by their scale subresource.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::core::response::reason;
use kube::discovery;
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::client::{CallError, Server};

/// A workload, as far as its scale describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleRecord {
    pub replicas: Option<i32>,
    pub status_replicas: Option<i32>,
    /// Label selector of its pods.
    pub selector: Option<String>,
}

impl ScaleRecord {
    /// Whether there should be pods. Zero replicas in the status prove nothing, because some controllers never set it.
    pub fn runs(&self) -> bool {
        self.status_replicas.unwrap_or_default().max(self.replicas.unwrap_or(1)) > 0
    }
}

/// The pods that a selector selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedPods {
    Names(Vec<String>),
    /// The scale has no selector.
    NoSelector,
    /// The list of the pods failed, for this cause.
    Unknown(String),
}

/// Reads scales. Caches the resource of each kind that has them, which does not change while its API is served.
#[derive(Default)]
pub struct Scales {
    scalable: Mutex<HashMap<GroupVersionKind, ApiResource>>,
}

/// A kind, as the API server lists it.
enum Discovered {
    NotServed,
    /// Without the scale subresource.
    Unscalable,
    Scalable(ApiResource),
}

/// Kinds whose API did not answer in time during one snapshot. They are not read again: each further read would take as long,
/// and use up the time of the other kinds.
#[derive(Default)]
pub struct SlowKinds {
    kinds: Mutex<HashSet<GroupVersionKind>>,
}

impl SlowKinds {
    fn kinds(&self) -> MutexGuard<'_, HashSet<GroupVersionKind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, kind: &GroupVersionKind) -> bool {
        self.kinds().contains(kind)
    }

    /// Renders the cause of a failed read.
    fn explain(&self, kind: &GroupVersionKind, error: &CallError) -> String {
        if matches!(error, CallError::TooSlow { .. }) {
            self.kinds().insert(kind.clone());
        }
        error.to_string()
    }
}

impl Scales {
    /// Reads a workload; `None` if there is no such workload. Ready replicas are not part of a scale: they are counted by the
    /// pods.
    pub async fn read(
        &self,
        server: &Server,
        kind: &GroupVersionKind,
        key: &NamespacedName,
        slow_kinds: &SlowKinds,
    ) -> Lookup<Option<ScaleRecord>> {
        if slow_kinds.contains(kind) {
            return Lookup::Unknown(format!(
                "not read, because the API {} did not answer in time for another object of kind {}; check the server of \
                 that API",
                kind.api_version(),
                kind.kind
            ));
        }
        let resource = match self.resource(server, kind).await {
            Ok(Discovered::Scalable(resource)) => resource,
            Ok(Discovered::Unscalable) => {
                let kind = &kind.kind;
                return Lookup::Unknown(format!(
                    "kind {kind} has no scale subresource; set spec.scaleTargetRef to an object that has one"
                ));
            }
            Ok(Discovered::NotServed) => return Lookup::Unknown(not_served(kind)),
            Err(error) => return Lookup::Unknown(slow_kinds.explain(kind, &error)),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &key.namespace, &resource);
        match server.call(api.get_scale(&key.name)).await {
            Ok(scale) => Lookup::Known(Some(ScaleRecord {
                replicas: scale.spec.and_then(|spec| spec.replicas),
                status_replicas: scale.status.as_ref().map(|status| status.replicas),
                // An empty selector would select all pods.
                selector: scale.status.and_then(|status| status.selector).filter(|selector| !selector.is_empty()),
            })),
            // The subresource exists, so that only the object can be missing. Its CRD may have changed meanwhile, and is
            // looked up again at the next read.
            Err(CallError::Answered { code: 404, reason, .. }) if reason == reason::NOT_FOUND => {
                self.scalable().remove(kind);
                Lookup::Known(None)
            }
            // The API server does not know the path any more.
            Err(CallError::Answered { code: 404, .. }) => {
                self.scalable().remove(kind);
                Lookup::Unknown(not_served(kind))
            }
            Err(error @ CallError::Answered { code: 403, .. }) => {
                let right = format!("{}/scale of group {:?}", resource.plural, kind.group);
                Lookup::Unknown(format!("{error}; allow Steersman's service account to get {right}"))
            }
            Err(error) => Lookup::Unknown(slow_kinds.explain(kind, &error)),
        }
    }

    /// Selects pods of a namespace. The API server may answer from its cache, because a snapshot may be a moment old.
    pub async fn select(&self, server: &Server, namespace: &str, selector: Option<&str>) -> SelectedPods {
        let Some(selector) = selector else { return SelectedPods::NoSelector };
        let pods: Api<Pod> = Api::namespaced(server.client.clone(), namespace);
        let wanted = ListParams::default().labels(selector).match_any();
        match server.call(pods.list_metadata(&wanted)).await {
            Ok(listed) => SelectedPods::Names(listed.items.iter().map(ResourceExt::name_any).collect()),
            Err(error) => SelectedPods::Unknown(error.to_string()),
        }
    }

    async fn resource(&self, server: &Server, kind: &GroupVersionKind) -> Result<Discovered, CallError> {
        if let Some(known) = self.scalable().get(kind) {
            return Ok(Discovered::Scalable(known.clone()));
        }
        let found = server.call(async {
            match discovery::pinned_kind(&server.client, kind).await {
                Err(kube::Error::Discovery(_)) => Ok(None),
                found => found.map(Some),
            }
        });
        match found.await {
            Ok(Some((resource, capabilities))) => {
                if !capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "scale") {
                    return Ok(Discovered::Unscalable);
                }
                self.scalable().insert(kind.clone(), resource.clone());
                Ok(Discovered::Scalable(resource))
            }
            Ok(None) | Err(CallError::Answered { code: 404, .. }) => Ok(Discovered::NotServed),
            Err(error) => Err(error),
        }
    }

    fn scalable(&self) -> MutexGuard<'_, HashMap<GroupVersionKind, ApiResource>> {
        self.scalable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_served(kind: &GroupVersionKind) -> String {
    format!(
        "the cluster does not serve kind {} of {}; check kind (it is case-sensitive) and apiVersion in \
         spec.scaleTargetRef",
        kind.kind,
        kind.api_version()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_slow_kind_is_not_read_again() {
        let (slow, other) = (GroupVersionKind::gvk("a", "v1", "Slow"), GroupVersionKind::gvk("a", "v1", "Other"));
        let slow_kinds = SlowKinds::default();
        slow_kinds.explain(
            &other,
            &CallError::Answered { code: 500, reason: String::new(), fields: Box::default(), message: String::new() },
        );
        assert!(!slow_kinds.contains(&other));
        slow_kinds.explain(&slow, &CallError::TooSlow { address: String::new(), limit: Duration::ZERO });
        assert_eq!((slow_kinds.contains(&slow), slow_kinds.contains(&other)), (true, false));
    }
}
