//! What shall be done about one request.
//! Comes in: `Seen`; goes out: the step that its phase calls for, with the writes, events and findings that belong to it.

use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind};
use serde_json::{Map, Value};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_reconcile::{Event, Finding, Requeue, Write, WriteOp};

use super::graph::{self, Claim};
use super::phase::{self, Act, Step};
use super::seen::Seen;
use super::{asked, checks, names, profile_job, report};

/// How soon to look again at what no watch tells of.
const SOON: Duration = Duration::from_secs(15);

/// The plan for one request. Its resolution is the step of the phase machine.
pub type Plan = steersman_reconcile::Plan<Step>;

/// Total: every request gets an answer.
pub fn plan(seen: &Seen) -> Plan {
    let mut step = phase::step(seen);
    if let Act::Request(patch) = &step.act {
        let writes = vec![WriteOp::PatchOwner(patch.clone())];
        // Told by the pass that sees the request as it is afterwards, or it would be told twice.
        step.notes.clear();
        return planned(step, writes);
    }
    if seen.object.deleting {
        return planned(step, Vec::new());
    }
    let findings = checks::remarks(seen);
    let events = step.notes.iter().cloned().chain(rejected(seen, &findings)).collect();
    let writes = writes(seen, &step);
    // A Job of somebody else's that has come in between is told of by no watch.
    let unwatched = step.unwatched || matches!(step.act, Act::Job);
    let requeue = if unwatched { Requeue::After(SOON) } else { Requeue::AwaitChange };
    Plan { events, findings, requeue, ..planned(step, writes) }
}

fn planned(step: Step, writes: Vec<WriteOp>) -> Plan {
    Plan {
        writes,
        prune: Vec::new(),
        events: Vec::new(),
        findings: Vec::new(),
        requeue: Requeue::AwaitChange,
        resolution: step,
    }
}

/// Told once: as soon as the stored status says the same, there is nothing new in it.
fn rejected(seen: &Seen, findings: &[Finding]) -> Option<Event> {
    let finding = findings.iter().find(|finding| finding.reason == "SpecChangeRejected")?;
    (!report::tells(seen, findings)).then(|| Event::warning(finding.reason, finding.message.clone()))
}

fn writes(seen: &Seen, step: &Step) -> Vec<WriteOp> {
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
        Act::Graph(graph) => writes.extend(create(Value::Object(graph.clone())).map(WriteOp::Unowned)),
    }
    writes
}

/// The Job comes last: it needs its account, and must not find the output of an earlier one.
fn job(seen: &Seen) -> Vec<WriteOp> {
    let object = &seen.object;
    let Some(image) = asked::image(&seen.settings, &object.spec) else { return Vec::new() };
    // Of an earlier request of this name, or of an earlier Job of this one: a result would have led elsewhere.
    let stale = seen.output.as_ref().map(|output| WriteOp::Delete {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        name: names::output(&object.name),
        uid: output.uid.clone(),
        // What was written since may be a result.
        version: output.version.clone(),
    });
    let role = seen.settings.profiling_cluster_role.as_deref();
    // What a binding refers to can never change.
    let other = seen.binding.as_ref().filter(|binding| role.is_some_and(|role| binding.cluster_role != role));
    let other = other.map(|binding| WriteOp::Delete {
        kind: GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        name: names::ROLE_BINDING.to_owned(),
        uid: binding.uid.clone(),
        version: None,
    });
    let job = create(profile_job::job(seen, image)).map(WriteOp::Owned);
    [stale, other].into_iter().flatten().chain(account(seen)).chain(job).collect()
}

/// Without it the sidecar cannot deliver, however long the profiler has worked.
fn account(seen: &Seen) -> Vec<WriteOp> {
    let object = &seen.object;
    let Some(role) = &seen.settings.profiling_cluster_role else { return Vec::new() };
    let both = [profile_job::account(object), profile_job::binding(object, role)];
    both.into_iter().filter_map(apply).map(WriteOp::Unowned).collect()
}

fn additional(seen: &Seen) -> Vec<WriteOp> {
    let followed = asked::generated(&seen.object).is_none() && !phase::is_unseen(&seen.object);
    let ours = seen.graph.as_ref().filter(|found| followed || graph::claim(&seen.object, found) == Claim::Ours);
    graph::additional(&seen.object, ours, &seen.additional)
        .into_iter()
        .filter_map(apply)
        .map(WriteOp::Unowned)
        .collect()
}

fn apply(object: Value) -> Option<Write> {
    dynamic(object).map(Write::Apply)
}

fn create(object: Value) -> Option<Write> {
    dynamic(object).map(Write::CreateOnce)
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
