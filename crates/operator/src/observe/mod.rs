//! Reading: the only place where the cluster is looked at.
//! Comes in: a client; goes out: a `Seen` of plain data for the plan.

pub mod cache;
pub mod dynamo;
pub mod llamastack;
pub mod named;
pub mod oci;
mod pods;
pub mod preflight;
pub mod prometheus;
pub mod served;
pub mod variant;
pub mod watching;

use kube::Resource;
use kube::core::GroupVersionKind;

/// The kind of a type.
fn gvk<K: Resource<DynamicType = ()>>() -> GroupVersionKind {
    GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()))
}
