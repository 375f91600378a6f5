//! A fresh namespace for one test. It is never deleted: deletion would only keep the controllers busy, and the objects of a
//! failed test stay available for debugging.

use std::fmt::Debug;

use anyhow::{Context, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace as Object, Pod, ServiceAccount};
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Flavour};
use crate::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour};
use crate::wait;

/// A namespace with a client of the administrator.
pub struct Namespace {
    name: String,
    admin: Client,
}

impl Cluster {
    /// Creates a namespace whose name starts with `prefix`, and waits until pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        self.namespace_with_annotations(prefix, &[]).await
    }

    /// Creates a namespace with annotations, such as those that set the behaviour of its pods (see [`crate::pod_behaviour`]).
    pub async fn namespace_with_annotations(&self, prefix: &str, annotations: &[(&str, &str)]) -> Result<Namespace> {
        let admin = self.admin().await?;
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let metadata = ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let object = Object { metadata, ..Object::default() };
        let created = Api::<Object>::all(admin.clone()).create(&PostParams::default(), &object).await?;
        let namespace = Namespace { name: created.name_any(), admin };
        if self.description().flavour != Flavour::Bare {
            self.wait_for_default_account(&namespace.name).await?;
        }
        Ok(namespace)
    }

    /// Waits until pods can be created in `namespace`.
    pub async fn wait_for_default_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        wait::until(accounts, "default", "exists", wait::TIMEOUT, |_| true)
            .await
            .context("pods cannot be created before the namespace has its default service account")?;
        Ok(())
    }
}

impl Namespace {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// API of a kind in this namespace, as the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.api_as(&self.admin)
    }

    /// API of a kind in this namespace, as the user of `client`.
    pub fn api_as<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(client.clone(), &self.name)
    }

    /// Applies manifests to this namespace.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        crate::apply::apply_manifests(&self.admin, Some(&self.name), manifests).await?;
        Ok(())
    }

    /// Reads an object as JSON, as the administrator.
    pub async fn get<K>(&self, name: &str) -> Result<Option<Value>>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        Ok(self.api::<K>().get_opt(name).await?.map(|found| json!(found)))
    }

    /// Sets the behaviour of pods that are created from now on. With `None`, they run.
    pub async fn set_pod_behaviour(&self, behaviour: Option<PodBehaviour>) -> Result<()> {
        let value = behaviour.map(PodBehaviour::annotation_value);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { BEHAVIOUR_ANNOTATION: value } } }));
        let namespaces: Api<Object> = Api::all(self.admin.clone());
        namespaces.patch(&self.name, &PatchParams::default(), &patch).await?;
        // The admission policy reads namespaces from a cache. A dry run shows when it has the new annotation.
        let container = json!({ "name": "main", "image": "example.com/main:1" });
        let probe: Pod = serde_json::from_value(json!({ "metadata": { "generateName": "probe-" },
            "spec": { "containers": [container] } }))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let pods = self.api::<Pod>();
        wait::eventually("new pods get the annotation of their namespace", async || {
            let made = pods.create(&dry_run, &probe).await.ok()?;
            (made.annotations().get(BEHAVIOUR_ANNOTATION).map(String::as_str) == value).then_some(())
        })
        .await
    }

    /// Waits for an event with this reason, and returns its type and message.
    pub async fn wait_for_event(&self, reason: &str) -> Result<(String, String)> {
        let events: Api<Event> = self.api();
        wait::eventually(&format!("an event with reason {reason}"), async || {
            let listed = events.list(&ListParams::default()).await.ok()?;
            let found = listed.items.into_iter().find(|event| event.reason.as_deref() == Some(reason))?;
            Some((found.type_.unwrap_or_default(), found.message.unwrap_or_default()))
        })
        .await
    }
}
