//! Plans one request: the writes, events and findings of the step for its phase.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::{Map, Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_reconcile::{Event, Finding, Requeue, Write, WriteOp};

use super::build::account;
use super::graph::{self, Claim};
use super::phase::{self, Creation, PhaseStep, SPEC_ACCEPTED};
use super::request::{self, Acceptance};
use super::snapshot::{ObservedObject, Snapshot};
use super::{checks, names, profile_job};

/// Requeue for objects that no watch covers.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(15);

const SPEC_CHANGE_REJECTED: &str = "SpecChangeRejected";

/// The resolution of the plan is the step of the phase machine.
pub type Plan = steersman_reconcile::Plan<PhaseStep>;

/// Total: every request gets a plan.
pub fn plan(observed: &Snapshot) -> Plan {
    let mut expected = observed.clone();
    let mut step = phase::step(&mut expected);
    let patch = owner_patch(&observed.object, &expected.object);
    if observed.object.deleting {
        return Plan { writes: patch.into_iter().collect(), ..Plan::empty(step) };
    }
    if patch.is_some() {
        let phase = request::phase(&observed.object).unwrap_or_default();
        step.otherwise.get_or_insert_with(|| {
            let reported = observed.object.status.as_ref().map(|status| status.reported.clone()).unwrap_or_default();
            Box::new(PhaseStep { reported, ..PhaseStep::to(phase, &observed.object) })
        });
    }
    let findings = checks::remarks(&expected);
    if let Some(event) = rejected(&observed.object, &findings) {
        step.events.push(event.clone());
        step.otherwise.iter_mut().for_each(|otherwise| otherwise.events.push(event.clone()));
    }
    step.generation = expected.object.generation;
    step.spec_changed = request::acceptance(&expected.object) == Acceptance::Changed;
    step.inherited = phase::is_inherited(&observed.object);
    // No watch covers a Job that another owner creates meanwhile.
    let unwatched = step.unwatched || step.creation == Creation::Job;
    Plan {
        writes: patch.into_iter().chain(writes(observed, &expected, &step)).collect(),
        prune: Vec::new(),
        events: step.events.clone(),
        findings,
        requeue: if unwatched { Requeue::After(UNWATCHED_INTERVAL) } else { Requeue::AwaitChange },
        resolution: step,
    }
}

/// The patch of the request itself. It precedes every other write: its resourceVersion keeps a reconcile with a stale
/// request from creating anything.
fn owner_patch(observed: &ObservedObject, expected: &ObservedObject) -> Option<WriteOp> {
    let mut patch = json!({});
    let changed = |key: &String, value: &String| observed.annotations.get(key) != Some(value);
    let annotations: Map<String, Value> = expected
        .annotations
        .iter()
        .filter(|(key, value)| changed(key, value))
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = annotations.into();
    }
    if observed.finalizers != expected.finalizers {
        patch["metadata"]["finalizers"] = json!(expected.finalizers);
    }
    if observed.spec.hardware != expected.spec.hardware {
        patch["spec"]["hardware"] = json!(expected.spec.hardware);
    }
    (patch != json!({})).then_some(WriteOp::PatchOwner(patch))
}

/// The event is sent once, while the condition keeps the same reason.
fn rejected(object: &ObservedObject, findings: &[Finding]) -> Option<Event> {
    let finding = findings.iter().find(|finding| finding.reason == SPEC_CHANGE_REJECTED)?;
    let known = phase::stored_reason(object, SPEC_ACCEPTED) == Some(SPEC_CHANGE_REJECTED);
    (!known).then(|| Event::warning(finding.reason, finding.message.clone()))
}

fn writes(observed: &Snapshot, expected: &Snapshot, step: &PhaseStep) -> Vec<WriteOp> {
    if step.creation == Creation::Job {
        return job(observed, expected);
    }
    let mut writes = match step.phase {
        Phase::Profiling if observed.job.is_some() && !(observed.account && observed.binding.is_some()) => {
            account_of(expected)
        }
        // While graphs are not served, the owner of the ConfigMaps is unknown.
        Phase::Deploying | Phase::Deployed if !expected.graphs_served && !phase::is_unseen(&expected.object) => {
            Vec::new()
        }
        Phase::Ready | Phase::Deploying | Phase::Deployed => additional(expected),
        _ => Vec::new(),
    };
    if let Creation::Graph(graph) = &step.creation {
        let graph = dynamic(Value::Object(graph.clone()));
        writes.extend(graph.map(|graph| WriteOp::Unowned(Write::CreateOnce(graph))));
    }
    writes
}

/// The Job comes last: it needs its account, and must not find the output of an earlier Job.
fn job(observed: &Snapshot, expected: &Snapshot) -> Vec<WriteOp> {
    let object = &expected.object;
    let default = expected.settings.default_image.as_deref();
    let Some(image) = request::image_or(&object.spec, default) else { return Vec::new() };
    // The output is of an earlier request of this name or of an earlier Job: with a result there would be no new Job.
    let stale = observed.output.as_ref().map(|output| WriteOp::Delete {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        name: names::output(&object.name),
        uid: output.uid.clone(),
        // A change of the output since then may be a result, so it must be a conflict.
        version: output.version.clone(),
    });
    let role = expected.settings.profiling_cluster_role.as_deref();
    // The role reference of a binding is immutable.
    let other = observed.binding.as_ref().filter(|binding| role.is_some_and(|role| binding.cluster_role != role));
    let other = other.map(|binding| WriteOp::Delete {
        kind: GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        name: names::ROLE_BINDING.to_owned(),
        uid: binding.uid.clone(),
        version: None,
    });
    let job = dynamic(profile_job::job(expected, image)).map(|job| WriteOp::Owned(Write::CreateOnce(job)));
    [stale, other].into_iter().flatten().chain(account_of(expected)).chain(job).collect()
}

/// The sidecar needs the account to deliver the result.
fn account_of(expected: &Snapshot) -> Vec<WriteOp> {
    let object = &expected.object;
    let Some(role) = &expected.settings.profiling_cluster_role else { return Vec::new() };
    applied([account::account(object), account::binding(object, role)])
}

fn additional(expected: &Snapshot) -> Vec<WriteOp> {
    let object = &expected.object;
    let followed = request::generated_graph(object).is_none() && !phase::is_unseen(object);
    let own = expected.graph.as_ref().filter(|found| followed || graph::claim(object, found) == Claim::Ours);
    applied(graph::additional(object, own, &expected.additional))
}

fn applied(objects: impl IntoIterator<Item = Value>) -> Vec<WriteOp> {
    objects.into_iter().filter_map(dynamic).map(|object| WriteOp::Unowned(Write::Apply(object))).collect()
}

/// Returns None for an object without valid metadata, which only a user's manifest can lack.
fn dynamic(object: Value) -> Option<DynamicObject> {
    let Value::Object(fields) = object else { return None };
    let (head, data): (Map<String, Value>, Map<String, Value>) =
        fields.into_iter().partition(|(name, _)| ["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    let found: DynamicObject = serde_json::from_value(Value::Object(head)).ok()?;
    Some(DynamicObject { data: Value::Object(data), ..found })
}
