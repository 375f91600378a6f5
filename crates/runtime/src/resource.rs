//! A custom resource that has a controller.

use std::fmt;

use kube::Resource;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;

use crate::rbac::Rule;

/// A custom resource in its stored version, which its controller reads because that needs no conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomResource {
    /// The short name for `kubectl get`, which is the name of the controller as well.
    pub short_name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub crd_name: &'static str,
}

impl CustomResource {
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::gvk(self.group, self.version, self.kind)
    }

    pub fn api_resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&self.gvk(), self.plural)
    }

    /// The access of a controller to its own objects. The names of the subresources are given whole, because rules are
    /// constants.
    pub fn controller_rules(&self, status: &'static str, finalizers: &'static str) -> Vec<Rule> {
        let rule = |resource, verbs, why| Rule::namespaced(self.group, resource, verbs, why);
        vec![
            rule(self.plural, &["get", "list", "watch"], "watch the objects that it reconciles"),
            rule(status, &["update"], "write the status of its objects"),
            // Needed in clusters that check who may block a deletion, such as OpenShift.
            rule(finalizers, &["update"], "set its objects as owners of their children"),
        ]
    }
}

impl fmt::Display for CustomResource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.short_name)
    }
}

/// The kind of a typed resource.
pub fn gvk_of<K: Resource<DynamicType = ()>>() -> GroupVersionKind {
    GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()))
}
