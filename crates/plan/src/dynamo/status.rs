//! Renders the status of a request from its snapshot, its plan and the outcome. It equals the stored one if nothing
//! changed.

use serde_json::Value;
use steersman_api::Family;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestStatus, Phase};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Event, EventType, Failure, Finding, Outcome, Severity, WriteOp, sentences};

use super::phase::{
    self, Creation, DEPLOYMENT, Log, PROFILING, PhaseStep, SPEC_ACCEPTED as SPEC, SPEC_GENERATED, SUCCEEDED, VALIDATION,
};
use super::plan::Plan;
use super::snapshot::{ObservedObject, Snapshot};
use super::{legacy_texts, reported};

/// Order of `status.conditions`: those of the phases, the summary, `SpecAccepted`.
const ORDER: [&str; 6] = [VALIDATION, PROFILING, SPEC_GENERATED, DEPLOYMENT, SUCCEEDED, SPEC];

const CHANGED: &str = "the spec was changed, and the change is ignored; see condition SpecAccepted";

pub fn status(snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> DynamoGraphDeploymentRequestStatus {
    let object = &snapshot.object;
    let mut stored = object.status.clone().unwrap_or_default();
    let failure = outcome.failure.as_ref();
    let step = taken(plan, failure);
    if object.deleting || (step.keeps_status && failure.is_none()) {
        return stored;
    }
    if step.restarts {
        stored = DynamoGraphDeploymentRequestStatus::default();
    }
    let changed = plan.resolution.spec_changed && phase::is_fixed(step.phase);
    let current = generation(object, plan, failure);
    // A changed spec of a Failed request that could not be patched is still to be tried.
    let untried = step.phase == Phase::Failed && failure.is_some_and(is_owner);
    let generation = if changed || untried { stored.observed_generation } else { current };
    let mut phase = step.phase;
    let mut statements = step.statements.clone();
    let mut detail = step.detail.clone();
    let mut reported = step.reported.clone();
    let mut last_retry = step.last_retry.clone();
    if let Some(failure) = failure {
        let failed = failed(object, plan, failure);
        phase = failed.phase;
        // A rejected Job ends the attempt, too.
        if failed.rejected {
            last_retry.clone_from(&plan.resolution.last_retry);
        }
        reported.push(reported::failed_write(failed.reason, failure, current));
        statements.extend(failed.statement);
        detail = Some(failed.words);
    }
    if changed {
        detail = Some(detail.map_or_else(|| CHANGED.to_owned(), |detail| format!("{detail} ({CHANGED})")));
    }
    let deployment = statements.iter().rfind(|statement| statement.type_ == DEPLOYMENT);
    let unknown = deployment.filter(|statement| statement.truth == Truth::Unknown).map(|known| known.reason.as_str());
    let succeeded = phase::succeeded(phase, detail.as_deref(), unknown);
    let summary = summary(step.summary.as_deref().filter(|_| failure.is_none()).unwrap_or(&succeeded.message));
    statements.push(succeeded);
    if !plan.resolution.inherited || step.phase != Phase::Failed {
        statements.push(spec(&plan.findings, phase == Phase::Failed && step.job_name.is_some()));
    }
    let conditions = conditions::merge(&stored.conditions, &statements, generation, snapshot.now);
    DynamoGraphDeploymentRequestStatus {
        phase: Some(phase),
        profiling_phase: step.profiling_phase.filter(|_| phase == Phase::Profiling),
        dgd_name: step.dgd_name.clone(),
        profiling_job_name: step.job_name.clone(),
        conditions: conditions::in_order(conditions, &ORDER),
        profiling_results: step.results.clone(),
        deployment_info: step.deployment.clone(),
        observed_generation: generation,
        summary: Some(summary),
        last_retry,
        reported,
    }
}

/// Characters of the column `MESSAGE` of `kubectl get`.
const MAX_SUMMARY_CHARS: usize = 80;

/// The first sentence of a text, shortened to one line of a table.
fn summary(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(first, _)| first).trim_end_matches('.');
    if sentence.chars().count() <= MAX_SUMMARY_CHARS {
        return sentence.to_owned();
    }
    let short: String = sentence.chars().take(MAX_SUMMARY_CHARS - 1).collect();
    format!("{}…", short.trim_end())
}

/// The events after the writes: those of the step, and a failure that was not reported yet.
pub fn events(snapshot: &Snapshot, plan: &Plan, outcome: &Outcome) -> Vec<Event> {
    let Some(failure) = &outcome.failure else { return plan.events.clone() };
    let object = &snapshot.object;
    if object.deleting {
        return Vec::new();
    }
    let mut events = taken(plan, Some(failure)).events.clone();
    let failed = failed(object, plan, failure);
    let problem = reported::failed_write(failed.reason, failure, generation(object, plan, Some(failure)));
    if !reported::contains(object, &problem) && !legacy_texts::has_failed_write(object, &failed.words) {
        events.push(Event { type_: EventType::Warning, reason: failed.reason, message: failed.words });
    }
    events
}

/// The step that was taken: the alternative one, if the patch of the request or a write for the Job or a restart failed.
fn taken<'a>(plan: &'a Plan, failure: Option<&Failure>) -> &'a PhaseStep {
    let step = &plan.resolution;
    let undone = failure.is_some_and(|failure| is_owner(failure) || step.creation == Creation::Job || step.restarts);
    step.otherwise.as_deref().filter(|_| undone).unwrap_or(step)
}

fn generation(object: &ObservedObject, plan: &Plan, failure: Option<&Failure>) -> Option<i64> {
    if failure.is_some_and(is_owner) { object.generation } else { plan.resolution.generation }
}

const UNWRITTEN: &str = "Failed to create ConfigMaps from profiling output";

struct Failed {
    phase: Phase,
    /// Code in `status.reported` and reason of the event.
    reason: &'static str,
    statement: Option<Statement>,
    words: String,
    /// The API server rejected the Job.
    rejected: bool,
}

/// Only a permanent rejection of the step's own object ends the request. Every other failure is retried.
fn failed(object: &ObservedObject, plan: &Plan, failure: &Failure) -> Failed {
    let step = taken(plan, Some(failure));
    let text = failure.to_string();
    let reason = "ConfigMapCreationFailed";
    let failed = Failed { phase: step.phase, reason, statement: None, words: text.clone(), rejected: false };
    let is_false = |type_: &str, reason: &str| Some(Statement::new(type_, Truth::False, reason, text.as_str()));
    let ends = |type_: &str, reason: &str| phase::failure_detail(object, type_, reason, &text, Log::Profiler);
    let (creates_graph, of_graph) =
        (matches!(plan.resolution.creation, Creation::Graph(_)), failure.object.kind == Family::Dgd.kind());
    if is_owner(failure) {
        let patch = plan.writes.iter().find_map(|write| match write {
            WriteOp::PatchOwner(patch) => Some(patch),
            _ => None,
        });
        let words = patch
            .and_then(|patch| crowded(object, patch))
            .unwrap_or_else(|| format!("Cannot update this DGDR; the update is retried: {text}"));
        return Failed { reason: "UpdateFailed", words, ..failed };
    }
    if plan.resolution.creation == Creation::Job {
        let failed =
            Failed { reason: "ProfilingJobFailed", statement: is_false(PROFILING, "JobCreationFailed"), ..failed };
        if failure.object.kind == "Job" && !failure.transient {
            let words = ends(PROFILING, "JobCreationFailed");
            return Failed { phase: Phase::Failed, words, rejected: true, ..failed };
        }
        return failed;
    }
    if plan.resolution.restarts {
        let words = format!("The remains of the last attempt cannot be deleted; this is retried: {text}");
        return Failed { reason: "UpdateFailed", words, ..failed };
    }
    if creates_graph && of_graph {
        let failed = Failed { reason: "DeploymentCreationFailed", ..failed };
        if failure.transient {
            return Failed { statement: is_false(DEPLOYMENT, "DeploymentCreationFailed"), ..failed };
        }
        return Failed {
            phase: Phase::Failed,
            statement: is_false(DEPLOYMENT, "DeploymentRejected"),
            words: ends(DEPLOYMENT, "DeploymentRejected"),
            ..failed
        };
    }
    if creates_graph {
        // The graph waits for its ConfigMaps rather than start without them or with those of another graph.
        return Failed {
            statement: is_false(DEPLOYMENT, "ConfigMapCreationFailed"),
            words: format!("{UNWRITTEN}: {text}. The DGD is created once they can be written"),
            ..failed
        };
    }
    if step.phase == Phase::Profiling {
        // The write was for the account of the running Job.
        return Failed { reason: "ProfilingJobFailed", ..failed };
    }
    Failed { words: format!("{UNWRITTEN}: {text}"), ..failed }
}

/// The API server's limit for all annotations of an object, keys and values.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The remedy if the patch leaves no room for the request's other annotations.
fn crowded(object: &ObservedObject, patch: &Value) -> Option<String> {
    let new = patch["metadata"]["annotations"].as_object()?;
    let size = |key: &str, value: &str| key.len() + value.len();
    let ours: usize = new.iter().map(|(key, value)| size(key, value.as_str().unwrap_or_default())).sum();
    let others = || object.annotations.iter().filter(|(key, _)| !new.contains_key(*key));
    let other_bytes: usize = others().map(|(key, value)| size(key, value)).sum();
    let (largest, value) = others().max_by_key(|(key, value)| size(key, value))?;
    (ours + other_bytes > ANNOTATIONS_LIMIT).then(|| {
        format!(
            "The generated manifests ({ours} bytes) and the other annotations of this DGDR ({other_bytes} bytes) \
             exceed the limit of {ANNOTATIONS_LIMIT} bytes for all annotations. Remove the largest, {largest} ({} \
             bytes): kubectl annotate dgdr -n {} {} {largest}-",
            value.len(),
            object.namespace,
            object.name
        )
    })
}

fn is_owner(failure: &Failure) -> bool {
    failure.object.kind == Family::Dgdr.kind()
}

/// `ended`: the spec of this request has no effect any more.
fn spec(findings: &[Finding], ended: bool) -> Statement {
    let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
    // Findings are sorted by severity: if the first is `Info`, all are, and none is about the spec.
    let (reason, message) = match findings.first().filter(|first| first.severity != Severity::Info) {
        Some(first) => (first.reason, sentences(findings)),
        None => {
            let more = findings.iter().map(|remark| format!(" {}", sentences(std::slice::from_ref(remark))));
            let all = if ended {
                "Every field of the spec was acted on. A change has an effect once the request is retried."
            } else {
                "Every field of the spec is acted on."
            };
            (SPEC, format!("{all}{}", more.collect::<String>()))
        }
    };
    let truth = if blocked { Truth::False } else { Truth::True };
    Statement::new(SPEC, truth, reason, message)
}
