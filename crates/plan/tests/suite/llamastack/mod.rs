//! Decisions about LlamaStackDistributions. Tests start from a snapshot of one object in an empty cluster.

mod adoption;
mod agreement;
mod children;
mod configuration;
mod earlier_texts;
mod findings;
mod labels;
mod laws;
mod leaves;
mod names;
mod network;
mod operator_config;
mod pod_problem;
mod route;
mod rules;
mod secret_change;
mod server;
mod status;
mod stored_status;
mod trust;
mod volume;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use steersman_api::convert::convert;
use steersman_api::llamastack::v1alpha1;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistribution, LlamaStackDistributionStatus};
use steersman_plan::llamastack;
use steersman_plan::llamastack::validate::unread;
use steersman_plan::llamastack::{
    ObservedClaim, ObservedDeployment, ObservedObject, ObservedRoute, ObservedServer, ObservedTrust, Plan,
    ReplicasOwner, Settings, Snapshot, V1alpha1Fields, plan,
};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::{Outcome, Write, WriteOp};

const STARTER: &str = "docker.io/llamastack/distribution-starter:0.7.1";

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The object `team-a/starter` with this v1alpha1 spec, as in its first reconcile.
fn v1alpha1_snapshot(spec: &str) -> Snapshot {
    snapshot_from_v1alpha1(yaml(spec))
}

fn snapshot_from_v1alpha1(spec: Value) -> Snapshot {
    let object = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" }, "spec": spec });
    snapshot_from_stored(convert(object, "llamastack.io/v1alpha2").unwrap().object)
}

/// The object `team-a/starter` with this v1alpha2 spec, as in its first reconcile.
fn v1alpha2_snapshot(spec: &str) -> Snapshot {
    snapshot_from_v1alpha2(yaml(spec))
}

fn snapshot_from_v1alpha2(spec: Value) -> Snapshot {
    snapshot_from_stored(json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" }, "spec": spec }))
}

/// The snapshot that the operator builds from a stored object.
fn snapshot_from_stored(object: Value) -> Snapshot {
    let converted = convert(object.clone(), "llamastack.io/v1alpha1").unwrap().object;
    let converted: v1alpha1::LlamaStackDistribution = serde_json::from_value(converted).unwrap();
    let server = converted.spec.server;
    let stored: LlamaStackDistribution = serde_json::from_value(object.clone()).unwrap();
    Snapshot {
        now: now(),
        settings: Settings {
            operator_version: "0.1.0".into(),
            distributions: [("starter".into(), STARTER.into()), ("postgres-demo".into(), "postgres:1".into())].into(),
            operator_image: Some("steersman:1".into()),
            operator_namespace: Some("steersman-system".into()),
            ..Settings::default()
        },
        object: ObservedObject {
            name: "starter".into(),
            namespace: "team-a".into(),
            uid: "8f3c".into(),
            generation: Some(1),
            deleting: false,
            written_in: String::new(),
            unread: unread(&object["spec"], &stored.spec),
            spec: stored.spec,
            v1alpha1: V1alpha1Fields {
                server: json!(server),
                container_name: server.container_spec.and_then(|container| container.name),
                config_namespace: server.user_config.and_then(|config| config.config_map_namespace),
            },
            annotations: Default::default(),
            provider_merge: None,
            status: None,
        },
        deployment: None,
        volume_claim: None,
        service: false,
        ingress: None,
        route: ObservedRoute::NotServed,
        has_legacy_policy: false,
        config_maps: vec![],
        in_use: None,
        references: vec![],
        secrets: vec![],
        trust: ObservedTrust::default(),
        followed: true,
        labels: ObservedLabels::NotRead,
        any_user: false,
        pods: None,
        oldest_start: None,
        server: ObservedServer::Pending,
    }
}

/// The object after all writes, with ready pods and a current status.
fn settled_snapshot(spec: &str) -> Snapshot {
    settle(v1alpha1_snapshot(spec))
}

fn settle(mut snapshot: Snapshot) -> Snapshot {
    let workload = snapshot.object.spec.workload.clone().unwrap_or_default();
    let replicas = workload.replicas.unwrap_or(1);
    let template =
        planned_object(&plan(&snapshot), "Deployment").map(|deployment| deployment["spec"]["template"].clone());
    let template = template.unwrap_or_default();
    snapshot.deployment = Some(ObservedDeployment { template, ..observed_deployment(replicas, replicas) });
    snapshot.volume_claim = workload.storage.map(|storage| ObservedClaim {
        phase: Some("Bound".into()),
        size: Some(storage.size.unwrap_or_else(|| Quantity("10Gi".into()))),
        owned: true,
        shared: false,
    });
    snapshot.service = true;
    snapshot.pods = Some(vec![]);
    snapshot.server = ObservedServer::Answered { version: Some("0.7.1".into()), providers: Some(vec![]) };
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    snapshot.object.status = Some(stored_status(&status));
    snapshot
}

/// A Deployment whose pods all have the current template.
fn observed_deployment(replicas: i32, ready: i32) -> ObservedDeployment {
    ObservedDeployment {
        generation: Some(3),
        observed_generation: Some(3),
        replicas: Some(replicas),
        replicas_owner: ReplicasOwner::Ours,
        ready,
        updated: replicas,
        pods: replicas.max(ready),
        ..ObservedDeployment::default()
    }
}

/// The status after a round trip through JSON, as the API server returns it.
fn stored_status(status: &LlamaStackDistributionStatus) -> LlamaStackDistributionStatus {
    serde_json::from_value(json!(status)).unwrap()
}

fn planned_object(plan: &Plan, kind: &str) -> Option<Value> {
    plan.writes.iter().filter_map(WriteOp::object).map(|object| json!(object)).find(|object| object["kind"] == kind)
}

/// Operation, kind and name of each write.
fn write_order(plan: &Plan) -> Vec<String> {
    let writes = plan.writes.iter().map(|write| {
        let operation = match write {
            WriteOp::Owned(Write::Apply(_)) => "apply",
            WriteOp::Owned(Write::CreateOnce(_)) => "create",
            WriteOp::Unowned(Write::CreateOnce(_)) => "create unowned",
            other => panic!("a server owns all its children: {other:?}"),
        };
        let object = json!(write.object());
        format!("{operation} {} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    });
    writes.collect()
}
