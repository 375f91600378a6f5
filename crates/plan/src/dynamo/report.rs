//! What a request's status says.
//! Comes in: what was seen, planned and done; goes out: the status, equal to the stored one where there is nothing new.

use serde_json::Value;
use steersman_api::Family;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Event, EventType, Failure, Finding, Outcome, Severity, WriteOp, sentences};

use super::asked::{self, Acceptance};
use super::phase::{self, Act, DEPLOYMENT, PROFILING, SPEC_ACCEPTED as SPEC, SPEC_GENERATED, SUCCEEDED, VALIDATION};
use super::plan::Plan;
use super::seen::{ObjectSeen, Seen};

/// In the order of the way, then the sum of it all.
const ORDER: [&str; 6] = [VALIDATION, PROFILING, SPEC_GENERATED, DEPLOYMENT, SUCCEEDED, SPEC];

const CHANGED: &str = "the spec was changed and is not acted on, see condition SpecAccepted";

pub fn report(seen: &Seen, plan: &Plan, outcome: &Outcome) -> DynamoGraphDeploymentRequestStatus {
    let stored = seen.object.status.clone().unwrap_or_default();
    let own_change = plan.writes.iter().any(|write| matches!(write, WriteOp::PatchOwner(_)));
    // A Job that was made is told of by the pass that sees it, with all that this one could say.
    let quiet = own_change || (matches!(plan.resolution.act, Act::Job) && !plan.writes.is_empty());
    if (quiet && outcome.failure.is_none()) || seen.object.deleting {
        return stored;
    }
    let step = &plan.resolution;
    let changed = asked::acceptance(&seen.object) == Acceptance::Changed && phase::is_fixed(step.phase);
    let generation = if changed { stored.observed_generation } else { seen.object.generation };
    let mut status = DynamoGraphDeploymentRequestStatus {
        phase: Some(step.phase),
        profiling_phase: step.profiling_phase,
        dgd_name: step.dgd_name.clone(),
        profiling_job_name: step.job_name.clone(),
        conditions: Vec::new(),
        profiling_results: step.results.clone(),
        deployment_info: step.deployment.clone(),
        observed_generation: generation,
    };
    let mut statements = step.statements.clone();
    let mut detail = step.detail.clone();
    if let Some(failure) = &outcome.failure {
        let Failed { phase, statement, words } = failed(&seen.object, plan, failure);
        status.phase = Some(phase);
        status.profiling_phase = status.profiling_phase.filter(|_| phase == Phase::Profiling);
        statements.extend(statement);
        detail = Some(words);
    }
    if changed {
        detail = Some(detail.map_or_else(|| CHANGED.to_owned(), |detail| format!("{detail} ({CHANGED})")));
    }
    let unknown = statements.iter().rfind(|said| said.type_ == DEPLOYMENT).filter(|said| said.truth == Truth::Unknown);
    let unknown = unknown.map(|said| said.reason.clone());
    statements.push(phase::succeeded(status.phase.unwrap_or(step.phase), detail.as_deref(), unknown.as_deref()));
    // Its presence tells whose failure it is.
    if !phase::is_inherited(&seen.object) {
        statements.push(spec(&plan.findings));
    }
    let said = conditions::merge(&stored.conditions, &statements, generation, seen.now);
    status.conditions = conditions::in_order(said, &ORDER);
    status
}

/// What to tell once the writes were tried: the plan's notes, and a failure that the stored status does not know yet.
pub fn notes(seen: &Seen, plan: &Plan, outcome: &Outcome) -> Vec<Event> {
    let mut notes = plan.events.clone();
    let Some(failure) = &outcome.failure else { return notes };
    let Failed { words, .. } = failed(&seen.object, plan, failure);
    let status = seen.object.status.as_ref();
    let told = status.and_then(|status| conditions::find(&status.conditions, SUCCEEDED));
    if told.is_none_or(|told| !told.message.contains(&words)) {
        let (reason, message) = match &plan.resolution.act {
            Act::Job => ("ProfilingJobFailed", words),
            Act::Request(_) => ("UpdateFailed", words),
            _ if plan.resolution.phase == Phase::Profiling => ("ProfilingJobFailed", words),
            Act::Graph(_) if is_graph(failure) => ("DeploymentCreationFailed", words),
            _ => ("ConfigMapCreationFailed", words),
        };
        notes.push(Event { type_: EventType::Warning, reason, message });
    }
    notes
}

const UNWRITTEN: &str = "Failed to create ConfigMaps from profiling output";

struct Failed {
    phase: Phase,
    statement: Option<Statement>,
    words: String,
}

/// Only what the server refuses for good ends the request, and only if it is what the step was for. Everything else is
/// tried again.
fn failed(object: &ObjectSeen, plan: &Plan, failure: &Failure) -> Failed {
    let step = &plan.resolution;
    let text = failure.to_string();
    let false_ = |type_: &str, reason: &str| {
        Some(Statement {
            type_: type_.to_owned(),
            truth: Truth::False,
            reason: reason.to_owned(),
            message: text.clone(),
        })
    };
    let of_job = failure.object.kind == "Job";
    match &step.act {
        Act::Job if of_job && !failure.transient => Failed {
            phase: Phase::Failed,
            statement: false_(PROFILING, "JobCreationFailed"),
            words: phase::ending(object, PROFILING, "JobCreationFailed", &text),
        },
        Act::Job => Failed { phase: step.phase, statement: false_(PROFILING, "JobCreationFailed"), words: text },
        Act::Graph(_) if is_graph(failure) && !failure.transient => Failed {
            phase: Phase::Failed,
            statement: false_(DEPLOYMENT, "DeploymentRejected"),
            words: phase::ending(object, DEPLOYMENT, "DeploymentRejected", &text),
        },
        Act::Graph(_) if is_graph(failure) => {
            Failed { phase: step.phase, statement: false_(DEPLOYMENT, "DeploymentCreationFailed"), words: text }
        }
        Act::Request(patch) => {
            let words = crowded(object, patch).unwrap_or_else(|| {
                format!("What was found out cannot be written to the request itself, and is tried again: {text}")
            });
            Failed { phase: step.phase, statement: None, words }
        }
        // The account that the running Job lacks.
        _ if step.phase == Phase::Profiling => Failed { phase: step.phase, statement: None, words: text },
        // A graph that starts without its configuration, or with somebody else's, is worse than one that waits.
        _ if step.phase == Phase::Deploying && asked::generated(object).is_some() => Failed {
            phase: step.phase,
            statement: false_(DEPLOYMENT, "ConfigMapCreationFailed"),
            words: format!("{UNWRITTEN}: {text}. The DGD is created as soon as they can be written"),
        },
        _ => Failed { phase: step.phase, statement: None, words: format!("{UNWRITTEN}: {text}") },
    }
}

/// What the API server lets all annotations of an object have together, keys and values.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Says what to do where what is to be written has no room beside the request's other annotations.
fn crowded(object: &ObjectSeen, patch: &Value) -> Option<String> {
    let new = patch["metadata"]["annotations"].as_object()?;
    let size = |key: &str, value: &str| key.len() + value.len();
    let ours: usize = new.iter().map(|(key, value)| size(key, value.as_str().unwrap_or_default())).sum();
    let others = || object.annotations.iter().filter(|(key, _)| !new.contains_key(*key));
    let beside: usize = others().map(|(key, value)| size(key, value)).sum();
    let (largest, value) = others().max_by_key(|(key, value)| size(key, value))?;
    (ours + beside > ANNOTATIONS_LIMIT).then(|| {
        format!(
            "What profiling generated ({ours} bytes) has no room beside the request's other annotations ({beside} bytes), of \
             {ANNOTATIONS_LIMIT} for all. Take the largest off, {largest} ({} bytes), and it goes on: kubectl annotate dgdr -n \
             {} {} {largest}-",
            value.len(),
            object.namespace,
            object.name
        )
    })
}

fn is_graph(failure: &Failure) -> bool {
    failure.object.kind == Family::Dgd.kind()
}

/// Whether the stored status already has these findings.
pub(super) fn tells(seen: &Seen, findings: &[Finding]) -> bool {
    // Through the same gate as when it was stored, which may have cut it.
    let would = conditions::merge(&[], &[spec(findings)], None, seen.now);
    let status = seen.object.status.as_ref();
    let known = status.and_then(|status| conditions::find(&status.conditions, SPEC));
    known.is_some_and(|known| would.iter().any(|new| new.message == known.message))
}

fn spec(findings: &[Finding]) -> Statement {
    let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
    // By severity: behind the first remark there are only others. They are not about the spec, whose reason they are not.
    let (reason, message) = match findings.first().filter(|first| first.severity != Severity::Info) {
        Some(first) => (first.reason, sentences(findings)),
        None => {
            let more = findings.iter().map(|remark| format!(" {}", sentences(std::slice::from_ref(remark))));
            (SPEC, format!("Every field of the spec is acted on.{}", more.collect::<String>()))
        }
    };
    let truth = if blocked { Truth::False } else { Truth::True };
    Statement { type_: SPEC.to_owned(), truth, reason: reason.to_owned(), message }
}
