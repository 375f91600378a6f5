//! The namespaces in which objects are read.

use kube::Resource;
use kube::api::{Api, ApiResource};
use kube::core::{DynamicResourceScope, NamespaceResourceScope};

use crate::client::Server;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Cluster,
    Namespace(String),
}

impl Scope {
    pub fn api<K>(&self, server: &Server, resource: &ApiResource) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match self {
            Self::Cluster => Api::all_with(server.client.clone(), resource),
            Self::Namespace(name) => Api::namespaced_with(server.client.clone(), name, resource),
        }
    }

    /// API of a built-in kind in this scope.
    pub fn typed<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, server: &Server) -> Api<K> {
        match self {
            Self::Cluster => Api::all(server.client.clone()),
            Self::Namespace(name) => Api::namespaced(server.client.clone(), name),
        }
    }
}
