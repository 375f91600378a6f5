//! Reads the objects that `up` shows.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use steersman::resource::custom_resource;
use steersman_api::Family;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time;

pub const POLL_INTERVAL: Duration = Duration::from_millis(500);
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Sentences of the simulators about what they do, such as a change of the load.
pub type Notes = UnboundedSender<String>;

/// Reads one namespace.
pub struct Observer {
    families: [(Family, Api<DynamicObject>); 4],
    pods: Api<Pod>,
    events: Api<Event>,
}

impl Observer {
    pub fn new(client: &Client, namespace: &str) -> Self {
        let of_family = |family| (family, objects(client, family, namespace));
        let [llsd, dgdr, va] = [Family::Llsd, Family::Dgdr, Family::Va].map(of_family);
        Self {
            families: [llsd, dgdr, va, (Family::Dgd, graphs(client, namespace))],
            pods: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client.clone(), namespace),
        }
    }

    /// The objects of every family. `None` in place of a family: its list failed.
    pub async fn objects(&self) -> Vec<(Family, Option<Vec<DynamicObject>>)> {
        let mut families = Vec::new();
        for (family, api) in &self.families {
            families.push((*family, list(api).await));
        }
        families
    }

    pub async fn pods(&self) -> Option<Vec<Pod>> {
        list(&self.pods).await
    }

    pub async fn events(&self) -> Option<Vec<Event>> {
        list(&self.events).await
    }
}

/// The objects of a family in their storage version.
pub fn objects(client: &Client, family: Family, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&custom_resource(family).gvk()))
}

pub fn graphs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let family = Family::Dgd;
    let kind = GroupVersionKind::gvk(family.group(), family.storage_version(), family.kind());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, family.plural()))
}

/// None if the list fails or times out. Without the timeout it could hang when a process of the cluster has exited, which
/// the caller checks.
pub async fn list<K: Clone + DeserializeOwned + Debug>(api: &Api<K>) -> Option<Vec<K>> {
    time::timeout(LIST_TIMEOUT, api.list(&ListParams::default())).await.ok()?.ok().map(|list| list.items)
}
