//! An object of which only the spec differs from test to test, and a world that has nothing for it yet.

mod adoption;
mod children;
mod findings;
mod laws;
mod names;
mod report;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha1::LlamaStackDistributionStatus;
use steersman_plan::llamastack::{
    ClaimSeen, DeploymentSeen, ObjectSeen, ReplicasOwner, Seen, ServerSeen, Settings, plan, report,
};
use steersman_plan::{Outcome, Plan, Write};

const STARTER: &str = "docker.io/llamastack/distribution-starter:0.7.1";

fn now() -> Timestamp {
    "2026-11-15T23:00:00Z".parse().unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The object `team-a/starter` with this spec, as on the first pass.
fn a_new_object(spec: &str) -> Seen {
    Seen {
        now: now(),
        settings: Settings {
            operator_version: "0.1.0".into(),
            distributions: [("starter".into(), STARTER.into()), ("postgres-demo".into(), "postgres:1".into())].into(),
        },
        object: ObjectSeen {
            name: "starter".into(),
            namespace: "team-a".into(),
            uid: "8f3c".into(),
            generation: Some(1),
            deleting: false,
            spec: serde_json::from_value(yaml(spec)).unwrap(),
            beyond: vec![],
            status: None,
        },
        deployment: None,
        volume_claim: None,
        service: false,
        server: ServerSeen::NotAsked,
    }
}

/// The same after all was written, all pods are ready and the status says so.
fn a_settled_object(spec: &str) -> Seen {
    let mut seen = a_new_object(spec);
    let replicas = seen.object.spec.replicas.unwrap_or(1);
    seen.deployment = Some(a_deployment(replicas, replicas));
    seen.volume_claim = seen.object.spec.server.storage.as_ref().map(|storage| ClaimSeen {
        phase: Some("Bound".into()),
        size: Some(storage.size.clone().unwrap_or_else(|| Quantity("10Gi".into()))),
    });
    seen.service = true;
    let status = report(&seen, &plan(&seen), &Outcome::default());
    seen.object.status = Some(stored(&status));
    seen
}

/// All of its pods are of the newest template.
fn a_deployment(replicas: i32, ready: i32) -> DeploymentSeen {
    DeploymentSeen {
        generation: Some(3),
        observed_generation: Some(3),
        replicas: Some(replicas),
        replicas_owner: ReplicasOwner::Ours,
        ready,
        updated: replicas,
        pods: replicas.max(ready),
        ..DeploymentSeen::default()
    }
}

/// As it comes back from the API server.
fn stored(status: &LlamaStackDistributionStatus) -> LlamaStackDistributionStatus {
    serde_json::from_value(json!(status)).unwrap()
}

fn written(plan: &Plan, kind: &str) -> Option<Value> {
    plan.writes.iter().map(|write| json!(write.object())).find(|object| object["kind"] == kind)
}

/// Kind and name of each write, and how it is made.
fn order(plan: &Plan) -> Vec<String> {
    let told = plan.writes.iter().map(|write| {
        let how = match write {
            Write::Apply(_) => "apply",
            Write::CreateOnce(_) => "create",
        };
        let object = json!(write.object());
        format!("{how} {} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    });
    told.collect()
}
