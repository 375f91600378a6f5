//! The phases of a request: Pending, Profiling, Ready, Deploying, Deployed, Failed.
//! Comes in: what was seen; goes out: one step, with the phase that it leads to, what is said of it, and what has to be
//! written for it. A step that writes to the request itself leads nowhere: the next pass sees the request as it is then.

mod deploying;
mod pending;
mod profiling;

use serde_json::{Map, Value, json};
use steersman_api::dynamo::v1beta1::{DeploymentInfo, ParetoConfig, Phase, ProfilingPhase, ProfilingResults};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::{Event, EventType};

use super::asked::{self, Acceptance};
use super::names::{self, ACCEPTED_SPEC, FINALIZER};
use super::profile_job::{self, trouble};
use super::seen::{ObjectSeen, Seen};

pub const SUCCEEDED: &str = "Succeeded";
pub const VALIDATION: &str = "Validation";
pub const PROFILING: &str = "Profiling";
pub const SPEC_GENERATED: &str = "SpecGenerated";
pub const DEPLOYMENT: &str = "DeploymentReady";
/// Our own: the others say how far the request has come, this one what became of the spec's fields.
pub const SPEC_ACCEPTED: &str = "SpecAccepted";

/// What to write for a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Act {
    #[default]
    Nothing,
    /// The request itself, by a merge patch that names the version it was seen in.
    Request(Value),
    /// The profiling Job, its account, and nothing left of an earlier Job.
    Job,
    /// The graph.
    Graph(Map<String, Value>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub phase: Phase,
    pub profiling_phase: Option<ProfilingPhase>,
    pub job_name: Option<String>,
    pub dgd_name: Option<String>,
    pub results: Option<ProfilingResults>,
    pub deployment: Option<DeploymentInfo>,
    /// About the single steps; the sum of them follows from the phase.
    pub statements: Vec<Statement>,
    /// What Succeeded adds to its words: what is being waited for, or why it failed.
    pub detail: Option<String>,
    pub notes: Vec<Event>,
    pub act: Act,
    /// Something is awaited that no watch tells of.
    pub unwatched: bool,
}

impl Step {
    /// To a phase, with everything else as it was.
    fn to(phase: Phase, object: &ObjectSeen) -> Self {
        let stored = object.status.clone().unwrap_or_default();
        Self {
            phase,
            profiling_phase: stored.profiling_phase.filter(|_| phase == Phase::Profiling),
            job_name: stored.profiling_job_name,
            dgd_name: stored.dgd_name,
            results: stored.profiling_results,
            deployment: stored.deployment_info,
            statements: Vec::new(),
            detail: None,
            notes: Vec::new(),
            act: Act::Nothing,
            unwatched: false,
        }
    }

    fn says(mut self, type_: &str, truth: Truth, reason: &str, message: impl Into<String>) -> Self {
        let statement =
            Statement { type_: type_.to_owned(), truth, reason: reason.to_owned(), message: message.into() };
        self.statements.push(statement);
        self
    }

    fn tells(mut self, kind: EventType, reason: &'static str, message: impl Into<String>) -> Self {
        self.notes.push(Event { type_: kind, reason, message: message.into() });
        self
    }

    fn because(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn with(mut self, act: Act) -> Self {
        self.act = act;
        self
    }

    /// Failed, for a reason that leads the message.
    fn fails(self, object: &ObjectSeen, type_: &str, reason: &str, message: &str) -> Self {
        self.says(type_, Truth::False, reason, message).because(ending(object, type_, reason, message))
    }
}

/// Whether the status tells of no graph of ours yet. The annotation alone does not say: whoever replaces the request by its
/// manifest takes it away.
pub fn is_unseen(object: &ObjectSeen) -> bool {
    let (reason, _) = stored(object, DEPLOYMENT).unwrap_or_default();
    matches!(reason, "" | "ConfigMapCreationFailed" | "DeploymentCreationFailed" | "DeploymentNameTaken")
}

/// The phases in which the spec is fixed.
pub fn is_fixed(phase: Phase) -> bool {
    matches!(phase, Phase::Profiling | Phase::Ready | Phase::Deploying | Phase::Deployed)
}

/// One step from where the request stands.
pub fn step(seen: &Seen) -> Step {
    let object = &seen.object;
    let phase = asked::phase(object).unwrap_or(Phase::Pending);
    if object.deleting {
        return leaving(object, phase);
    }
    if let Some(mark) = unmarked(object, phase) {
        return Step::to(phase, object).with(annotate(&[(ACCEPTED_SPEC, &mark)]));
    }
    match phase {
        Phase::Pending => pending::step(seen),
        Phase::Profiling => profiling::step(seen),
        Phase::Ready => deploying::ready(seen),
        Phase::Deploying => deploying::step(seen),
        Phase::Deployed => deploying::deployed(seen),
        Phase::Failed => failed(seen),
    }
}

/// Only the mark of an earlier operator's hands is taken off; nothing of ours needs one.
fn leaving(object: &ObjectSeen, phase: Phase) -> Step {
    let step = Step::to(phase, object);
    if !object.finalizers.iter().any(|name| name == FINALIZER) {
        return step;
    }
    let kept: Vec<&String> = object.finalizers.iter().filter(|name| *name != FINALIZER).collect();
    step.with(Act::Request(json!({ "metadata": { "finalizers": kept } })))
}

/// The mark that a request with a fixed spec lacks.
fn unmarked(object: &ObjectSeen, phase: Phase) -> Option<String> {
    match asked::acceptance(object) {
        Acceptance::Marked(mark) if is_fixed(phase) => Some(mark),
        _ => None,
    }
}

/// A change of the request's annotations.
fn annotate(values: &[(&str, &str)]) -> Act {
    let values: Map<String, Value> = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    Act::Request(json!({ "metadata": { "annotations": values } }))
}

/// Whether the request failed under an earlier operator, which has no condition for what became of the spec, and nobody has
/// changed it since. For that operator it was final, and its users may have made another one.
pub fn is_inherited(object: &ObjectSeen) -> bool {
    let Some(status) = object.status.as_ref().filter(|status| status.phase == Some(Phase::Failed)) else {
        return false;
    };
    // Earlier operators wrote the hardware that they found into the spec, and did not observe that in the status as a whole.
    let summed = conditions::find(&status.conditions, SUCCEEDED).and_then(|known| known.observed_generation);
    let judged = status.observed_generation.max(summed);
    conditions::find(&status.conditions, SPEC_ACCEPTED).is_none() && judged == object.generation
}

/// Final, unless it failed before there was anything to profile with: then a changed spec begins anew. What is said is
/// said again in today's words.
fn failed(seen: &Seen) -> Step {
    let object = &seen.object;
    let stored = object.status.clone().unwrap_or_default();
    let began = stored.profiling_job_name.is_some() || seen.job.is_some() || is_inherited(object);
    let wrong = conditions::find(&stored.conditions, VALIDATION).is_some_and(|known| known.status == "False");
    if !began && (wrong || stored.observed_generation != object.generation) {
        return pending::step(seen);
    }
    let step = Step::to(Phase::Failed, object);
    if let Some(better) = profiling::verdict_of_failed(seen) {
        return step.fails(object, PROFILING, &better.0, &better.1);
    }
    let first = [VALIDATION, PROFILING, SPEC_GENERATED, DEPLOYMENT].into_iter().find_map(|type_| {
        let known = conditions::find(&stored.conditions, type_)?;
        let told = known.status == "False" && !known.message.is_empty();
        told.then(|| ending(object, type_, &known.reason, &known.message))
    });
    Step { detail: first, ..step }
}

const FINAL: &str = "Profiling is not tried again: delete this DGDR and create a new one.";

/// Why a request has failed, and what is left to do about it.
pub(super) fn ending(object: &ObjectSeen, type_: &str, reason: &str, message: &str) -> String {
    let (namespace, name) = (&object.namespace, &object.name);
    // Once there was a Job, its spec is all that was ever profiled with.
    let began = asked::phase(object) == Some(Phase::Profiling)
        || object.status.as_ref().is_some_and(|status| status.profiling_job_name.is_some());
    let next = match (type_, reason) {
        (PROFILING, "JobCreationFailed") if !began => {
            "Change the spec accordingly: profiling then begins anew.".to_owned()
        }
        (PROFILING, "JobCreationFailed") => FINAL.to_owned(),
        (PROFILING, _) => {
            let (whose, container) = if message.contains(trouble::OF_COPIER) {
                ("The log of output-copier", profile_job::COPIER)
            } else {
                ("The profiler's log", profile_job::PROFILER)
            };
            let job = names::profiling_job(name);
            format!("{whose} has more: kubectl logs -n {namespace} job/{job} -c {container}. {FINAL}")
        }
        (SPEC_GENERATED, _) => format!(
            "What the profiler delivered is in ConfigMap {}. Delete this DGDR and create a new one to profile again.",
            names::output(name)
        ),
        (DEPLOYMENT, "DeploymentRejected") => "The graph is in status.profilingResults.selectedConfig. Change it by \
                                               spec.overrides.dgd of a new DGDR, or create it yourself."
            .to_owned(),
        _ => return format!("{reason}: {message}"),
    };
    format!("{reason}: {}", steersman_reconcile::join_sentences(message, &next))
}

/// The sum of it all, by the phase. Where nobody knows how the graph fares, nobody knows whether the request has succeeded
/// either; `unknown` says why.
pub fn succeeded(phase: Phase, detail: Option<&str>, unknown: Option<&str>) -> Statement {
    let (truth, reason, words) = match phase {
        Phase::Pending => (Truth::False, "Pending", "DGDR is pending"),
        Phase::Profiling => (Truth::False, "Profiling", "Profiling is in progress"),
        Phase::Ready => (Truth::True, "SpecGenerated", "Profiling complete, spec available"),
        Phase::Deploying => (Truth::False, "Deploying", "Deployment is in progress"),
        Phase::Deployed => (Truth::True, "Deployed", "Deployment is healthy"),
        Phase::Failed => (Truth::False, "Failed", "DGDR has failed"),
    };
    let (truth, words) = unknown.map_or((truth, words), |unknown| (Truth::Unknown, unknown));
    let message = match (phase, detail) {
        (_, None) => words.to_owned(),
        (Phase::Failed, Some(detail)) => detail.to_owned(),
        (_, Some(detail)) => format!("{words}: {detail}"),
    };
    Statement { type_: SUCCEEDED.to_owned(), truth, reason: reason.to_owned(), message }
}

/// What the stored status says about one step.
fn stored<'a>(object: &'a ObjectSeen, type_: &str) -> Option<(&'a str, &'a str)> {
    let known = conditions::find(&object.status.as_ref()?.conditions, type_)?;
    Some((known.reason.as_str(), known.message.as_str()))
}

fn results(graph: Map<String, Value>, pareto: Vec<Map<String, Value>>) -> ProfilingResults {
    let pareto = pareto.into_iter().map(|config| ParetoConfig { config }).collect();
    ProfilingResults { selected_config: Some(graph), pareto }
}
