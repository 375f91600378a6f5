//! The number of replicas, the autoscaler that changes it, and the limit on evictions.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::DynamicObject;
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::{Autoscaling, LlamaStackDistributionSpec};

use super::{labelled_child, matching};
use crate::llamastack::snapshot::{ObservedDeployment, ObservedObject, ReplicasOwner, Snapshot};
use crate::llamastack::{fields, names};

const CPU_PERCENT: i32 = 80;

/// The value of `spec.replicas`. None: another field manager owns the field, and two writers would scale the pods up and
/// down in turn. With an autoscaler in the spec the live value is applied until the autoscaler owns the field: an apply
/// without it by the sole owner resets it to 1.
pub fn replicas(snapshot: &Snapshot) -> Option<i32> {
    let spec = &snapshot.object.spec;
    let wanted = fields::replicas(spec);
    let Some(live) = &snapshot.deployment else { return Some(wanted) };
    match live.replicas_owner {
        ReplicasOwner::Other(_) | ReplicasOwner::Autoscaler(_) => None,
        ReplicasOwner::Ours if fields::autoscaling(spec).is_some() => Some(live.replicas.unwrap_or(wanted)),
        ReplicasOwner::Ours => Some(wanted),
    }
}

/// Whether all wanted pods are ready and of the newest template. The Deployment counts ready and updated pods
/// separately: the ready ones are the updated ones only once no other pod is left.
pub fn rolled_out(snapshot: &Snapshot, live: &ObservedDeployment) -> bool {
    let wanted = wanted_replicas(snapshot, live);
    let current = live.observed_generation >= live.generation;
    current && live.ready == wanted && live.updated >= wanted && live.pods <= live.updated
}

pub fn wanted_replicas(snapshot: &Snapshot, live: &ObservedDeployment) -> i32 {
    replicas(snapshot).or(live.replicas).unwrap_or(1)
}

pub fn min_replicas(spec: &LlamaStackDistributionSpec, autoscaling: &Autoscaling) -> i32 {
    autoscaling.min_replicas.unwrap_or(1).max(fields::replicas(spec)).max(1)
}

pub fn autoscaler(object: &ObservedObject, autoscaling: &Autoscaling) -> DynamicObject {
    let (cpu, memory) =
        (autoscaling.target_cpu_utilization_percentage, autoscaling.target_memory_utilization_percentage);
    let cpu = cpu.or(memory.is_none().then_some(CPU_PERCENT));
    let metric = |(name, percent): (&str, Option<i32>)| {
        let target = json!({ "type": "Utilization", "averageUtilization": percent? });
        Some(json!({ "type": "Resource", "resource": { "name": name, "target": target } }))
    };
    let metrics: Vec<Value> = [("cpu", cpu), ("memory", memory)].into_iter().filter_map(metric).collect();
    let spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": names::deployment(&object.name) },
        "minReplicas": min_replicas(&object.spec, autoscaling),
        "maxReplicas": autoscaling.max_replicas,
        "metrics": metrics,
    });
    let name = names::autoscaler(&object.name);
    labelled_child::<HorizontalPodAutoscaler>(object, name, None, json!({ "spec": spec }))
}

/// Without a budget in the spec, only several replicas get one: a single pod could never be moved off its node.
pub fn disruption_budget(object: &ObservedObject) -> Option<DynamicObject> {
    let spec = &object.spec;
    let given = fields::disruption_budget(spec).map(|(_, budget)| budget);
    let most = fields::autoscaling(spec).map_or(0, |autoscaling| autoscaling.max_replicas).max(fields::replicas(spec));
    if given.is_none() && most <= 1 {
        return None;
    }
    let (fewest, missing) =
        given.map(|given| (given.min_available.clone(), given.max_unavailable.clone())).unwrap_or_default();
    let usual = (fewest.is_none() && missing.is_none()).then_some(IntOrString::Int(1));
    let budget = PodDisruptionBudgetSpec {
        min_available: fewest,
        max_unavailable: missing.or(usual),
        selector: Some(matching(names::selector(&object.name))),
        ..Default::default()
    };
    let name = names::disruption_budget(&object.name);
    Some(labelled_child::<PodDisruptionBudget>(object, name, None, json!({ "spec": budget })))
}
