//! Builds the children of one object, in the order in which they must be written.

pub mod adoption;
pub mod ca;
pub mod configmap;
mod container;
pub mod network;
mod pod;
pub mod scaling;

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube_core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, VolumeStorage};
use steersman_reconcile::{ADOPTED_LABEL, Write, WriteOp};

use super::annotations::{KEEP_VOLUME, is_on};
use super::resolution::Setup;
use super::snapshot::{ObservedObject, ObservedRoute, Snapshot};
use super::{fields, names};

pub use container::resources;
pub use pod::{CONFIG_HASH, STORAGE_VOLUME, TRUST_HASH, mount_paths, template, volume_names};

/// The storage version: the garbage collector must find the owner even when older versions are no longer served.
const API_VERSION: &str = "llamastack.io/v1alpha2";
pub const STORAGE_SIZE: &str = "10Gi";
/// Lets pods run as any user on OpenShift. The shipped role does not permit Steersman to read or bind it; an administrator
/// can add that.
pub const ANY_USER_ROLE: &str = "system:openshift:scc:anyuid";

pub fn writes(snapshot: &Snapshot, setup: &Setup) -> Vec<WriteOp> {
    let object = &snapshot.object;
    let spec = &object.spec;
    let config = setup.config.as_ref();
    let written = config.and_then(|config| Some((config, config.text.as_deref()?)));
    let ours = written.map(|(config, _)| config.name.as_str());
    let kept = configmap::retained(snapshot, ours, &setup.mounts(&object.name));
    let exposed = |way: bool| fields::exposed(spec).filter(|_| way);
    let claim = fields::storage(spec).map(|storage| {
        let mut claim = volume_claim(object, storage);
        if is_on(object, KEEP_VOLUME) {
            claim.metadata.owner_references = None;
            return WriteOp::Unowned(Write::CreateOnce(claim));
        }
        WriteOp::Owned(Write::CreateOnce(claim))
    });
    let before = [
        Some(account(object)),
        snapshot.any_user.then(|| Write::Apply(role_binding(object))),
        // The policy precedes the server, which is otherwise reachable by anyone in between.
        network::policy(snapshot).map(Write::Apply),
        setup.bundle.as_ref().map(|bundle| Write::Apply(ca::config_map(object, &bundle.text))),
        written.map(|(config, text)| Write::Apply(configmap::generated(object, &config.name, &config.hash, text))),
    ];
    let after = [
        Some(Write::Apply(deployment(snapshot, setup))),
        // The Service follows the Deployment: if that is rejected, the Service must not lead to a port without a
        // listener.
        Some(Write::Apply(network::service(object))),
        fields::autoscaling(spec).map(|autoscaling| Write::Apply(scaling::autoscaler(object, autoscaling))),
        scaling::disruption_budget(object).map(Write::Apply),
        // The Route precedes the Ingress: routers derive a Route from an Ingress, and the older of two Routes gets the
        // host.
        exposed(snapshot.route != ObservedRoute::NotServed).map(|expose| Write::Apply(network::route(object, expose))),
        exposed(!snapshot.route.answered()).map(|expose| Write::Apply(network::ingress(object, expose))),
    ];
    let kept = kept.into_iter().map(|map| Write::CreateOnce(configmap::unchanged(object, map)));
    let owned = before.into_iter().flatten().chain(after.into_iter().flatten()).chain(kept).map(WriteOp::Owned);
    claim.into_iter().chain(owned).collect()
}

/// Written even while nothing else is: it holds the pull secrets that reading the image's labels may need.
pub fn account(object: &ObservedObject) -> Write {
    Write::Apply(child::<ServiceAccount>(object, names::service_account(&object.name), json!({})))
}

fn volume_claim(object: &ObservedObject, storage: &VolumeStorage) -> DynamicObject {
    let size = storage.size.clone().unwrap_or_else(|| Quantity(STORAGE_SIZE.to_owned()));
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } });
    child::<PersistentVolumeClaim>(object, names::volume_claim(&object.name), json!({ "spec": spec }))
}

fn role_binding(object: &ObservedObject) -> DynamicObject {
    let data = json!({
        "roleRef": { "apiGroup": ClusterRole::GROUP, "kind": ClusterRole::KIND, "name": ANY_USER_ROLE },
        "subjects": [{ "kind": ServiceAccount::KIND, "name": names::service_account(&object.name),
            "namespace": object.namespace }],
    });
    child::<RoleBinding>(object, names::role_binding(&object.name), data)
}

fn deployment(snapshot: &Snapshot, setup: &Setup) -> DynamicObject {
    let object = &snapshot.object;
    let mut spec = json!({
        "selector": matching(names::selector(&object.name)),
        "strategy": strategy(&object.spec),
        "template": template(snapshot, setup),
    });
    if let Some(replicas) = scaling::replicas(snapshot) {
        spec["replicas"] = replicas.into();
    }
    let mut deployment = child::<Deployment>(object, names::deployment(&object.name), json!({ "spec": spec }));
    if let Some(kept) = adoption::adopted_template(snapshot, setup) {
        deployment.data["spec"]["template"] = kept.live.template.clone();
        deployment.metadata.labels.get_or_insert_default().insert(ADOPTED_LABEL.to_owned(), kept.label);
        // The kept template is from the snapshot. A change since then must be a conflict, not be undone.
        deployment.metadata.resource_version.clone_from(&kept.live.resource_version);
    }
    deployment
}

/// A claim can be mounted on one node only, so the old pod must end first. `rollingUpdate` is explicit although it is
/// the default: a change to Recreate removes only fields that we own, and is rejected while `rollingUpdate` is set.
fn strategy(spec: &LlamaStackDistributionSpec) -> Value {
    if fields::storage(spec).is_some() {
        return json!({ "type": "Recreate" });
    }
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } })
}

fn matching(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), ..Default::default() }
}

/// A child with the labels of its instance, and of its component if it has one.
fn labelled_child<K: Resource>(
    object: &ObservedObject,
    name: String,
    component: Option<&str>,
    data: Value,
) -> DynamicObject {
    let mut child = child::<K>(object, name, data);
    child.metadata.labels = Some(names::labels_of(&object.name, component));
    child
}

fn child<K: Resource>(object: &ObservedObject, name: String, data: Value) -> DynamicObject {
    let owner = OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Family::Llsd.kind().to_owned(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    DynamicObject {
        types: Some(TypeMeta { api_version: K::API_VERSION.to_owned(), kind: K::KIND.to_owned() }),
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(object.namespace.clone()),
            labels: Some(names::labels()),
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        data,
    }
}
