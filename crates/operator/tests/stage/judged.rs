//! A namespace for one test of a family whose objects are judged. What users of the family do and see there is in its
//! `scene`.

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::{Client, Resource};
use steersman_testkit::Namespace;

use crate::world::{self, World};

pub struct Scene {
    pub world: &'static World,
    pub admin: Client,
    pub namespace: Namespace,
}

impl Scene {
    /// None (after saying so) where no cluster is to be had.
    pub async fn bare(prefix: &str) -> Option<Self> {
        let world = world::world().await?;
        let admin = world.cluster.admin().await.unwrap();
        let namespace = world.cluster.namespace(prefix).await.unwrap();
        Some(Self { world, admin, namespace })
    }

    /// As the family opens its scenes, where nobody is asked before objects are stored.
    pub async fn unjudged(prefix: &str) -> Option<Self> {
        let scene = Self::open(prefix).await?;
        world::unjudge(&scene.admin, scene.name()).await;
        Some(scene)
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.namespace.all()
    }
}
