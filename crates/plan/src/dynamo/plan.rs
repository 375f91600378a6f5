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
use super::snapshot::{ObservedBinding, ObservedObject, Snapshot};
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
    // No watch covers a Job that another owner creates meanwhile, or one without its labels.
    let unlabelled = expected.job.as_ref().is_some_and(|job| job.unlabelled);
    let unwatched = step.unwatched
        || step.creation == Creation::Job
        || (unlabelled && step.phase == Phase::Profiling)
        || awaits_token(&expected, &step);
    Plan {
        writes: patch.into_iter().chain(writes(observed, &expected, &step)).collect(),
        prune: Vec::new(),
        events: step.events.clone(),
        findings,
        requeue: if unwatched { Requeue::After(UNWATCHED_INTERVAL) } else { Requeue::AwaitChange },
        resolution: step,
    }
}

/// Whether the condition about a missing token would stay wrong without another reconcile.
fn awaits_token(expected: &Snapshot, step: &PhaseStep) -> bool {
    let references = &expected.references;
    let active = matches!(step.phase, Phase::Pending | Phase::Profiling);
    references.token_secret == Some(false) && references.token_unwatched && active
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
    if step.restarts && !phase::is_own(&expected.object, expected.job.as_ref()) {
        return remains(observed);
    }
    let mut writes = match step.phase {
        Phase::Profiling if observed.job.is_some() && !has_account(observed) => {
            stale_bindings(observed).chain(account_of(expected)).collect()
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

/// Deletes the Job and the output of an earlier attempt. The output may also be of an earlier request of this name: with
/// a result there would be no new Job.
fn remains(observed: &Snapshot) -> Vec<WriteOp> {
    let object = &observed.object;
    let job = observed.job.as_ref().filter(|job| phase::is_controlled(object, job)).map(|job| WriteOp::Delete {
        kind: GroupVersionKind::gvk("batch", "v1", "Job"),
        name: names::profiling_job(&object.name),
        uid: job.uid.clone(),
        version: None,
    });
    let output = observed.output.as_ref().map(|output| WriteOp::Delete {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        name: names::output(&object.name),
        uid: output.uid.clone(),
        // A change of the output since then may be a result, so it must be a conflict.
        version: output.version.clone(),
    });
    job.into_iter().chain(output).collect()
}

/// The Job comes last: it needs its account, and must not find the output of an earlier Job.
fn job(observed: &Snapshot, expected: &Snapshot) -> Vec<WriteOp> {
    let object = &expected.object;
    let default = expected.settings.default_image.as_deref();
    let Some(image) = request::image_or(&object.spec, default) else { return Vec::new() };
    let job = dynamic(profile_job::job(expected, image)).map(|job| WriteOp::Owned(Write::CreateOnce(job)));
    remains(observed).into_iter().chain(stale_bindings(observed)).chain(account_of(expected)).chain(job).collect()
}

/// The ClusterRoles that a request needs, by the name of their binding.
fn bindings(snapshot: &Snapshot) -> Vec<(&'static str, &str)> {
    let Some(role) = &snapshot.settings.profiling_cluster_role else { return Vec::new() };
    let thorough = snapshot.settings.thorough_cluster_role.as_deref();
    let thorough = thorough.filter(|_| request::is_thorough(&snapshot.object.spec));
    let thorough = thorough.map(|role| (names::THOROUGH_BINDING, role));
    [(names::ROLE_BINDING, role.as_str())].into_iter().chain(thorough).collect()
}

fn observed_binding<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a ObservedBinding> {
    let binding = if name == names::ROLE_BINDING { &snapshot.binding } else { &snapshot.thorough_binding };
    binding.as_ref()
}

/// Deletes bindings to another role, such as those of NVIDIA's operator, so that they can be created again.
fn stale_bindings(observed: &Snapshot) -> impl Iterator<Item = WriteOp> {
    [names::ROLE_BINDING, names::THOROUGH_BINDING].into_iter().filter_map(|name| {
        let stale = stale_binding(observed, name)?;
        Some(WriteOp::Delete {
            kind: GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            name: name.to_owned(),
            uid: stale.uid.clone(),
            version: None,
        })
    })
}

/// A binding to another role, which is immutable.
fn stale_binding<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a ObservedBinding> {
    let bindings = bindings(snapshot);
    let (_, role) = bindings.iter().find(|(known, _)| *known == name)?;
    observed_binding(snapshot, name).filter(|binding| !binding.foreign && binding.cluster_role != *role)
}

/// Whether the request shares the account and its bindings.
fn has_account(snapshot: &Snapshot) -> bool {
    let object = &snapshot.object;
    let account = snapshot.account.as_ref();
    let is_bound = |name: &str| {
        observed_binding(snapshot, name)
            .is_some_and(|binding| binding.foreign || account::is_owner(object, &binding.owners))
    };
    account.is_some_and(|account| account.foreign || account::is_owner(object, &account.owners))
        && bindings(snapshot).iter().all(|(name, _)| is_bound(name))
}

/// The sidecar needs the account to deliver the result. An account of others is used as it is: the bindings give it the
/// rights. So is a binding of others to the same role.
fn account_of(expected: &Snapshot) -> Vec<WriteOp> {
    let object = &expected.object;
    let bindings = bindings(expected);
    if bindings.is_empty() {
        return Vec::new();
    }
    let known = expected.account.as_ref();
    let account =
        (!known.is_some_and(|known| known.foreign)).then(|| account::account(object, known.map(|known| &known.owners)));
    let is_foreign = |name: &str, role: &str| {
        observed_binding(expected, name).is_some_and(|binding| binding.foreign && binding.cluster_role == role)
    };
    let bindings = bindings.into_iter().filter(|(name, role)| !is_foreign(name, role)).map(|(name, role)| {
        let known = observed_binding(expected, name).filter(|binding| binding.cluster_role == role);
        account::binding(object, name, role, known.map(|known| &known.owners))
    });
    applied(account.into_iter().chain(bindings))
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
