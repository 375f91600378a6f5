//! The namespace of one test, for families with admission webhooks. Each family adds its own methods in `test_namespace`.

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::{Client, Resource};
use steersman_testkit::Namespace;

use crate::env::{self, TestEnv};

pub struct TestNamespace {
    pub env: &'static TestEnv,
    pub admin: Client,
    pub namespace: Namespace,
}

impl TestNamespace {
    /// Creates a namespace. None if the cluster is not built; the test is then listed as skipped.
    pub async fn create(prefix: &str) -> Option<Self> {
        let env = env::test_env().await?;
        let admin = env.cluster.admin().await.unwrap();
        let namespace = env.cluster.namespace(prefix).await.unwrap();
        Some(Self { env, admin, namespace })
    }

    /// The same as `open` of the family, in a namespace without admission webhooks.
    pub async fn without_admission(prefix: &str) -> Option<Self> {
        let ns = Self::open(prefix).await?;
        env::disable_admission(&ns.admin, ns.name()).await;
        Some(ns)
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.namespace.api()
    }
}
