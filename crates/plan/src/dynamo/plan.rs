//! What shall be done about one request.
//! Comes in: `Seen`; goes out: the step that its phase calls for, with the writes, events and findings that belong to it.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::{Map, Value};
use steersman_api::dynamo::v1beta1::Phase;

use super::graph::{self, Claim};
use super::phase::{self, Act, Step};
use super::seen::Seen;
use super::{asked, checks, names, profile_job, report};
use crate::{Finding, Next, Note, NoteKind};

/// How soon to look again at what no watch tells of.
const SOON: Duration = Duration::from_secs(15);

/// What shall be done about one request. The writes are asked for in every pass; those that change nothing are not sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub step: Step,
    /// In order: a later write may rely on an earlier one.
    pub writes: Vec<Write>,
    pub notes: Vec<Note>,
    pub findings: Vec<Finding>,
    pub next: Next,
}

/// One write to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// An object that the request controls, and that goes with it.
    Child(crate::Write),
    /// An object that the request must not own: it is shared, or outlives the request.
    Free(crate::Write),
    /// A merge patch of the request itself, against the version that was seen.
    Request(Value),
    /// An object that stands in the way, by the UID that was seen. With a version: only as it was seen.
    Remove { kind: GroupVersionKind, name: String, uid: String, version: Option<String> },
}

/// Total: every request gets an answer.
pub fn plan(seen: &Seen) -> Plan {
    let mut step = phase::step(seen);
    if let Act::Request(patch) = &step.act {
        let writes = vec![Write::Request(patch.clone())];
        // Told by the pass that sees the request as it is afterwards, or it would be told twice.
        step.notes.clear();
        return Plan { step, writes, notes: Vec::new(), findings: Vec::new(), next: Next::OnChange };
    }
    if seen.object.deleting {
        return Plan { step, writes: Vec::new(), notes: Vec::new(), findings: Vec::new(), next: Next::OnChange };
    }
    let findings = checks::remarks(seen);
    let notes = step.notes.iter().cloned().chain(rejected(seen, &findings)).collect();
    let writes = writes(seen, &step);
    // A Job of somebody else's that has come in between is told of by no watch.
    let unwatched = step.unwatched || matches!(step.act, Act::Job);
    let next = if unwatched { Next::Within(SOON) } else { Next::OnChange };
    Plan { step, writes, notes, findings, next }
}

/// Told once: as soon as the stored status says the same, there is nothing new in it.
fn rejected(seen: &Seen, findings: &[Finding]) -> Option<Note> {
    let finding = findings.iter().find(|finding| finding.reason == "SpecChangeRejected")?;
    (!report::tells(seen, findings)).then(|| Note {
        kind: NoteKind::Warning,
        reason: finding.reason,
        message: finding.message.clone(),
    })
}

fn writes(seen: &Seen, step: &Step) -> Vec<Write> {
    let mut writes = match step.phase {
        Phase::Profiling if seen.job.is_some() && !(seen.account && seen.binding.is_some()) => account(seen),
        // Whose they are by now cannot be seen with a graph out of sight.
        Phase::Deploying | Phase::Deployed if !seen.graphs_served && !phase::is_unseen(&seen.object) => Vec::new(),
        Phase::Ready | Phase::Deploying | Phase::Deployed => additional(seen),
        _ => Vec::new(),
    };
    match &step.act {
        Act::Nothing | Act::Request(_) => {}
        Act::Job => writes.extend(job(seen)),
        Act::Graph(graph) => writes.extend(create(Value::Object(graph.clone())).map(Write::Free)),
    }
    writes
}

/// The Job comes last: it needs its account, and must not find the output of an earlier one.
fn job(seen: &Seen) -> Vec<Write> {
    let object = &seen.object;
    let Some(image) = asked::image(&seen.settings, &object.spec) else { return Vec::new() };
    // Of an earlier request of this name, or of an earlier Job of this one: a result would have led elsewhere.
    let stale = seen.output.as_ref().map(|output| Write::Remove {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        name: names::output(&object.name),
        uid: output.uid.clone(),
        // What was written since may be a result.
        version: output.version.clone(),
    });
    let role = seen.settings.profiling_cluster_role.as_deref();
    // What a binding refers to can never change.
    let other = seen.binding.as_ref().filter(|binding| role.is_some_and(|role| binding.cluster_role != role));
    let other = other.map(|binding| Write::Remove {
        kind: GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        name: names::ROLE_BINDING.to_owned(),
        uid: binding.uid.clone(),
        version: None,
    });
    let job = create(profile_job::job(seen, image)).map(Write::Child);
    [stale, other].into_iter().flatten().chain(account(seen)).chain(job).collect()
}

/// Without it the sidecar cannot deliver, however long the profiler has worked.
fn account(seen: &Seen) -> Vec<Write> {
    let object = &seen.object;
    let Some(role) = &seen.settings.profiling_cluster_role else { return Vec::new() };
    let both = [profile_job::account(object), profile_job::binding(object, role)];
    both.into_iter().filter_map(apply).map(Write::Free).collect()
}

fn additional(seen: &Seen) -> Vec<Write> {
    let followed = asked::generated(&seen.object).is_none() && !phase::is_unseen(&seen.object);
    let ours = seen.graph.as_ref().filter(|found| followed || graph::claim(&seen.object, found) == Claim::Ours);
    graph::additional(&seen.object, ours, &seen.additional).into_iter().filter_map(apply).map(Write::Free).collect()
}

fn apply(object: Value) -> Option<crate::Write> {
    dynamic(object).map(crate::Write::Apply)
}

fn create(object: Value) -> Option<crate::Write> {
    dynamic(object).map(crate::Write::CreateOnce)
}

/// None: it has no metadata that could be read, which only a manifest of somebody else's can lack.
fn dynamic(object: Value) -> Option<DynamicObject> {
    let Value::Object(mut fields) = object else { return None };
    let rest: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    fields.retain(|name, _| ["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    let mut found: DynamicObject = serde_json::from_value(Value::Object(fields)).ok()?;
    found.data = Value::Object(rest);
    Some(found)
}
