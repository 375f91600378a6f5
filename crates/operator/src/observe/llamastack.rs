//! What a pass over a LlamaStackDistribution reads.
//! Comes in: the object; goes out: its children as plain facts for the plan and as they are for the applier.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_api::llamastack::convert::beyond_v1alpha1;
use steersman_api::llamastack::v1alpha1::{LlamaStackDistribution, LlamaStackDistributionStatus};
use steersman_plan::ADOPTED;
use steersman_plan::llamastack::{
    ClaimSeen, DeploymentSeen, ObjectSeen, ReplicasOwner, Seen, ServerSeen, Settings, names,
};

use super::cache::Watched;
use crate::apply::{Legacy, Owner, is_managed_by};
use crate::controllers::{Observed, PassError, Tools, stored_kind};

/// The family's field manager.
pub const MANAGER: &str = "steersman/llamastack";

/// Found by the label that the Go operator put on the same children.
const CHILDREN: &str = "app.kubernetes.io/managed-by=llama-stack-operator";

/// The version that the plan is made from.
const PLANNED: &str = "v1alpha1";

/// The kinds of children.
pub fn children() -> Vec<Watched> {
    let kinds = [gvk::<Deployment>(), gvk::<Service>(), gvk::<PersistentVolumeClaim>(), gvk::<ServiceAccount>()];
    kinds.map(|kind| Watched { kind, labels: CHILDREN }).to_vec()
}

/// Reads only.
pub async fn observe(tools: &Tools, settings: &Settings, object: &DynamicObject) -> Result<Observed<Seen>, PassError> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let typed = planned(object)?;
    let owner = Owner {
        kind: stored_kind(Family::Llsd),
        namespace: namespace.clone(),
        name: name.clone(),
        uid: object.uid().unwrap_or_default(),
        legacy: Some(Legacy::llama_stack(&name)),
    };
    let named = [
        (gvk::<Deployment>(), names::deployment(&name)),
        (gvk::<Service>(), names::service(&name)),
        (gvk::<PersistentVolumeClaim>(), names::volume_claim(&name)),
        (gvk::<ServiceAccount>(), names::service_account(&name)),
    ];
    let mut live = tools.cache.children(&namespace, &owner.uid, &named);
    // A claim that users made beforehand has no label of ours, and no watch of ours sees it.
    let claims = gvk::<PersistentVolumeClaim>();
    let wants_claim = typed.spec.server.storage.is_some();
    if wants_claim && live.get(&claims, &names::volume_claim(&name)).is_none() {
        let api: Api<DynamicObject> =
            Api::namespaced_with(tools.server.client.clone(), &namespace, &ApiResource::from_gvk(&claims));
        if let Some(claim) = tools.server.call(api.get_opt(&names::volume_claim(&name))).await? {
            live.insert(&claims, claim);
        }
    }
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
            beyond: beyond_v1alpha1(&object.data),
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

/// The object in the version that the plan is made from.
fn planned(object: &DynamicObject) -> Result<LlamaStackDistribution, PassError> {
    let unreadable = |cause: String| PassError::Unreadable {
        object: format!("LlamaStackDistribution {}/{}", object.namespace().unwrap_or_default(), object.name_any()),
        cause,
    };
    let value = serde_json::to_value(object).map_err(|error| unreadable(error.to_string()))?;
    let converted = convert(value, &format!("{}/{PLANNED}", Family::Llsd.group()));
    let converted = converted.map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_value(converted.object).map_err(|error| unreadable(error.to_string()))
}

/// A status of the planned version in the stored one.
pub fn stored_status(status: &LlamaStackDistributionStatus) -> Result<Value, String> {
    let api_version = format!("{}/{PLANNED}", Family::Llsd.group());
    let object = json!({ "apiVersion": api_version, "kind": Family::Llsd.kind(), "status": status });
    let mut converted = convert(object, &stored_kind(Family::Llsd).api_version()).map_err(|error| error.to_string())?;
    Ok(converted.object.get_mut("status").map(Value::take).unwrap_or_default())
}

fn gvk<K: Resource<DynamicType = ()>>() -> GroupVersionKind {
    GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()))
}

fn deployment_seen(object: &DynamicObject, owner: &str) -> Option<DeploymentSeen> {
    let typed: Deployment = serde_json::to_value(object).and_then(serde_json::from_value).ok()?;
    let status = typed.status.unwrap_or_default();
    let legacy = Legacy::llama_stack(owner);
    Some(DeploymentSeen {
        generation: typed.metadata.generation,
        observed_generation: status.observed_generation,
        replicas: typed.spec.and_then(|spec| spec.replicas),
        replicas_owner: replicas_owner(object.managed_fields(), &legacy),
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        pods: status.replicas.unwrap_or_default(),
        trouble: trouble(&status),
        legacy: legacy.is_of(object) && !is_managed_by(object, MANAGER),
        adopted: object.labels().get(ADOPTED).cloned(),
        template: object.data.pointer("/spec/template").cloned().unwrap_or_default(),
        resource_version: object.resource_version(),
    })
}

/// What the Deployment itself says is in the way of its pods.
fn trouble(status: &DeploymentStatus) -> Option<String> {
    let stands = |condition: &&DeploymentCondition| match condition.type_.as_str() {
        "Progressing" => condition.status == "False",
        "ReplicaFailure" => condition.status == "True",
        _ => false,
    };
    let found = status.conditions.iter().flatten().find(stands)?;
    found.message.clone().or_else(|| found.reason.clone())
}

/// An earlier operator's claim on the field is ours to take over, and so is a number that somebody typed: the object is
/// where to type it. Anyone else's is not, such as an autoscaler's.
fn replicas_owner(fields: &[ManagedFieldsEntry], legacy: &Legacy) -> ReplicasOwner {
    let other = fields.iter().find_map(|entry| {
        let manager = entry.manager.as_deref()?;
        let owns = entry.fields_v1.as_ref()?.0.pointer("/f:spec/f:replicas").is_some();
        let typed = manager.starts_with("kubectl");
        (owns && !typed && manager != MANAGER && !legacy.managers.iter().any(|known| known == manager))
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
        let legacy = Legacy::llama_stack("starter");
        let ours = [MANAGER, "manager", "starter"];
        for manager in ours {
            assert_eq!(replicas_owner(&[entry(manager, replicas())], &legacy), ReplicasOwner::Ours, "{manager}");
        }
        let scaled = entry("kubectl", replicas());
        assert_eq!(replicas_owner(&[scaled], &legacy), ReplicasOwner::Ours, "kubectl scale");
        let template = entry("somebody", json!({ "f:spec": { "f:template": {} } }));
        assert_eq!(replicas_owner(&[template], &legacy), ReplicasOwner::Ours);
        let scaled = [entry(MANAGER, replicas()), entry("kube-controller-manager", replicas())];
        assert_eq!(replicas_owner(&scaled, &legacy), ReplicasOwner::Other("kube-controller-manager".into()));
    }
}
