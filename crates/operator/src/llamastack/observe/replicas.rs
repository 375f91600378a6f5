//! Finds the owner of `spec.replicas` of a live Deployment: two writers would scale it up and down in turn.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use steersman_plan::llamastack::{ObservedObject, ReplicasOwner, names};
use steersman_runtime::apply::Legacy;
use steersman_runtime::client::{CallError, Server};

use super::{MANAGER, legacy_operator};

/// Field manager of autoscalers. It stays on the field after the autoscaler is deleted.
const AUTOSCALERS: &str = "kube-controller-manager";

/// Lists autoscalers only if another manager has written the number, which is rare.
pub async fn owner(server: &Server, object: &ObservedObject, live: &DynamicObject) -> Result<ReplicasOwner, CallError> {
    let legacy = legacy_operator(&object.name);
    match holder(live.managed_fields(), &legacy) {
        Holder::Nobody => Ok(ReplicasOwner::Ours),
        Holder::Program(manager) => Ok(ReplicasOwner::Other(manager)),
        // The object's own autoscaler decides, unless a user wrote the number.
        Holder::Autoscaler if autoscaled(object) => Ok(ReplicasOwner::Other(AUTOSCALERS.to_owned())),
        Holder::Person if autoscaled(object) => Ok(ReplicasOwner::Ours),
        Holder::Autoscaler | Holder::Person => {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(server.client.clone(), &object.namespace);
            let listed = server.call(api.list(&ListParams::default())).await?;
            let found = listed.items.iter().find(|scaler| scales(scaler, object));
            Ok(found.map_or(ReplicasOwner::Ours, |scaler| ReplicasOwner::Autoscaler(scaler.name_any())))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Holder {
    /// No other manager.
    Nobody,
    /// A user, through kubectl.
    Person,
    Autoscaler,
    /// Another field manager.
    Program(String),
}

/// The other manager of the field. The field of an earlier operator is taken over, and so is a number from kubectl, because
/// the object is the place to set it; an autoscaler may have written the number before that.
fn holder(fields: &[ManagedFieldsEntry], legacy: &Legacy) -> Holder {
    let managers = fields.iter().filter_map(|entry| {
        let owns = entry.fields_v1.as_ref()?.0.pointer("/f:spec/f:replicas").is_some();
        entry.manager.as_deref().filter(|_| owns)
    });
    let others: Vec<&str> = managers
        .filter(|manager| *manager != MANAGER && !legacy.managers.iter().any(|known| known == manager))
        .collect();
    let typed = |manager: &&&str| manager.starts_with("kubectl");
    match others.iter().find(|manager| !typed(manager) && **manager != AUTOSCALERS) {
        Some(program) => Holder::Program((*program).to_owned()),
        None if others.contains(&AUTOSCALERS) => Holder::Autoscaler,
        None if others.is_empty() => Holder::Nobody,
        None => Holder::Person,
    }
}

fn autoscaled(object: &ObservedObject) -> bool {
    let autoscaling = object.spec.workload.as_ref().and_then(|workload| workload.autoscaling.as_ref());
    autoscaling.is_some_and(|autoscaling| autoscaling.max_replicas > 0)
}

/// Whether another autoscaler scales the Deployment. The object's own is about to be deleted if the spec has none.
fn scales(scaler: &HorizontalPodAutoscaler, object: &ObservedObject) -> bool {
    let own = scaler.owner_references().iter().any(|owner| owner.uid == object.uid);
    let target = scaler.spec.as_ref().map(|spec| &spec.scale_target_ref);
    !own && target.is_some_and(|target| target.kind == "Deployment" && target.name == names::deployment(&object.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_foreign_managers_hold_replicas() {
        let entry = |manager: &str, fields: serde_json::Value| -> ManagedFieldsEntry {
            serde_json::from_value(json!({ "manager": manager, "operation": "Apply", "fieldsV1": fields })).unwrap()
        };
        let replicas = || json!({ "f:spec": { "f:replicas": {} } });
        let legacy = legacy_operator("starter");
        let holds = |managers: &[&str]| {
            let entries: Vec<_> = managers.iter().map(|manager| entry(manager, replicas())).collect();
            holder(&entries, &legacy)
        };
        for manager in [MANAGER, "manager", "starter"] {
            assert_eq!(holds(&[manager]), Holder::Nobody, "{manager}");
        }
        assert_eq!(holds(&["kubectl"]), Holder::Person, "kubectl scale");
        assert_eq!(holds(&[MANAGER, "kubectl-edit"]), Holder::Person);
        assert_eq!(holds(&[MANAGER, "kube-controller-manager"]), Holder::Autoscaler);
        assert_eq!(holds(&["kube-controller-manager", "kubectl"]), Holder::Autoscaler);
        assert_eq!(holds(&["kubectl", "scaler"]), Holder::Program("scaler".into()));
        let template = entry("somebody", json!({ "f:spec": { "f:template": {} } }));
        assert_eq!(holder(&[template], &legacy), Holder::Nobody);
    }
}
