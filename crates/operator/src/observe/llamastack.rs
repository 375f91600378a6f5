//! What a pass over a LlamaStackDistribution reads.
//! Comes in: the object; goes out: its children as plain facts for the plan and as they are for the applier.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use steersman_api::Family;
use steersman_api::llamastack::v1alpha1::LlamaStackDistribution;
use steersman_plan::llamastack::{
    ClaimSeen, DeploymentSeen, ObjectSeen, ReplicasOwner, Seen, ServerSeen, Settings, names,
};

use crate::apply::{Legacy, Live, Owner};
use crate::client::{CallError, Server};
use crate::controllers::{Observed, PassError};

/// The family's field manager.
pub const MANAGER: &str = "steersman/llamastack";

/// Found by the label that the Go operator put on the same children.
const CHILDREN: &str = "app.kubernetes.io/managed-by=llama-stack-operator";

/// The kind and the version that the controller reads.
pub fn kind() -> GroupVersionKind {
    GroupVersionKind::gvk(Family::Llsd.group(), "v1alpha1", Family::Llsd.kind())
}

/// Reads only.
pub async fn observe(
    server: &Server,
    settings: &Settings,
    object: &DynamicObject,
) -> Result<Observed<Seen>, PassError> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let described = || format!("LlamaStackDistribution {namespace}/{name}");
    let typed: LlamaStackDistribution = serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .map_err(|cause| PassError::Unreadable { object: described(), cause })?;
    let mut live = Live::default();
    let (deployments, services, claims, accounts) = tokio::try_join!(
        list::<Deployment>(server, &namespace),
        list::<Service>(server, &namespace),
        list::<PersistentVolumeClaim>(server, &namespace),
        list::<ServiceAccount>(server, &namespace),
    )?;
    for (kind, objects) in [deployments, services, claims, accounts] {
        objects.into_iter().for_each(|object| live.insert(&kind, object));
    }
    let owner = Owner {
        kind: kind(),
        namespace: namespace.clone(),
        name: name.clone(),
        uid: object.uid().unwrap_or_default(),
        legacy: Some(Legacy::llama_stack(&name)),
    };
    let seen = Seen {
        now: Timestamp::now(),
        settings: settings.clone(),
        object: ObjectSeen {
            name: name.clone(),
            namespace,
            uid: owner.uid.clone(),
            generation: object.metadata.generation,
            deleting: object.metadata.deletion_timestamp.is_some(),
            spec: typed.spec,
            status: typed.status,
        },
        deployment: live
            .get(&gvk::<Deployment>(), &names::deployment(&name))
            .and_then(|object| deployment_seen(object, &name)),
        volume_claim: live.get(&gvk::<PersistentVolumeClaim>(), &names::volume_claim(&name)).and_then(claim_seen),
        service: live.get(&gvk::<Service>(), &names::service(&name)).is_some(),
        server: ServerSeen::NotAsked,
    };
    Ok(Observed { owner, seen, live })
}

fn gvk<K: Resource<DynamicType = ()>>() -> GroupVersionKind {
    GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()))
}

async fn list<K: Resource<DynamicType = ()>>(
    server: &Server,
    namespace: &str,
) -> Result<(GroupVersionKind, Vec<DynamicObject>), CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), namespace, &ApiResource::erase::<K>(&()));
    let listed = server.call(api.list(&ListParams::default().labels(CHILDREN))).await?;
    Ok((gvk::<K>(), listed.items))
}

fn deployment_seen(object: &DynamicObject, owner: &str) -> Option<DeploymentSeen> {
    let typed: Deployment = serde_json::to_value(object).and_then(serde_json::from_value).ok()?;
    let status = typed.status.unwrap_or_default();
    Some(DeploymentSeen {
        generation: typed.metadata.generation,
        observed_generation: status.observed_generation,
        replicas: typed.spec.and_then(|spec| spec.replicas),
        replicas_owner: replicas_owner(object.managed_fields(), owner),
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
    })
}

/// An earlier operator's claim on the field is ours to take over; anyone else's is not.
fn replicas_owner(fields: &[ManagedFieldsEntry], object: &str) -> ReplicasOwner {
    let legacy = Legacy::llama_stack(object);
    let other = fields.iter().find_map(|entry| {
        let manager = entry.manager.as_deref()?;
        let owns = entry.fields_v1.as_ref()?.0.pointer("/f:spec/f:replicas").is_some();
        (owns && manager != MANAGER && !legacy.managers.iter().any(|known| known == manager))
            .then(|| manager.to_owned())
    });
    other.map_or(ReplicasOwner::Ours, ReplicasOwner::Other)
}

fn claim_seen(object: &DynamicObject) -> Option<ClaimSeen> {
    let typed: PersistentVolumeClaim = serde_json::to_value(object).and_then(serde_json::from_value).ok()?;
    let requests = typed.spec.and_then(|spec| spec.resources).and_then(|resources| resources.requests);
    Some(ClaimSeen {
        phase: typed.status.and_then(|status| status.phase),
        size: requests.and_then(|requests| requests.get("storage").cloned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_stranger_owns_the_replicas() {
        let entry = |manager: &str, fields: serde_json::Value| -> ManagedFieldsEntry {
            serde_json::from_value(json!({ "manager": manager, "operation": "Apply", "fieldsV1": fields })).unwrap()
        };
        let replicas = || json!({ "f:spec": { "f:replicas": {} } });
        let ours = [MANAGER, "manager", "starter"];
        for manager in ours {
            assert_eq!(replicas_owner(&[entry(manager, replicas())], "starter"), ReplicasOwner::Ours, "{manager}");
        }
        let template = entry("kubectl", json!({ "f:spec": { "f:template": {} } }));
        assert_eq!(replicas_owner(&[template], "starter"), ReplicasOwner::Ours);
        let scaled = [entry(MANAGER, replicas()), entry("kube-controller-manager", replicas())];
        assert_eq!(replicas_owner(&scaled, "starter"), ReplicasOwner::Other("kube-controller-manager".into()));
    }
}
