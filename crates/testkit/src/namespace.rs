//! A fresh namespace for one test. It stays until the cluster ends: deleting it would only keep the controllers busy, and
//! what a failed test left in it can be looked at.

use anyhow::{Context, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace as Object, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Resource, ResourceExt};

use crate::cluster::{Cluster, Flavour};
use crate::wait;

/// A namespace of its own, seen by the administrator.
pub struct Namespace {
    name: String,
    admin: Client,
}

impl Cluster {
    /// Makes a namespace whose name starts with `prefix` and waits until pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        self.namespace_with(prefix, &[]).await
    }

    /// The same with annotations, such as those that steer its pods (see [`crate::play`]).
    pub async fn namespace_with(&self, prefix: &str, annotations: &[(&str, &str)]) -> Result<Namespace> {
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
        if self.description().flavour == Flavour::Full {
            self.wait_for_default_account(&namespace.name).await?;
        }
        Ok(namespace)
    }

    /// Waits until pods can be created in `namespace`.
    pub async fn wait_for_default_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        wait::until(accounts, "default", "exists", wait::LIMIT, |_| true)
            .await
            .context("pods cannot be created before the namespace has its default service account")?;
        Ok(())
    }
}

impl Namespace {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All objects of a kind in this namespace, seen by the administrator.
    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.seen_by(&self.admin)
    }

    /// All objects of a kind in this namespace, seen by the owner of `client`.
    pub fn seen_by<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(client.clone(), &self.name)
    }

    /// Applies manifests into this namespace.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        crate::apply::manifests(&self.admin, Some(&self.name), manifests).await?;
        Ok(())
    }
}
