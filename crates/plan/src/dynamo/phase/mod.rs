//! The phases of a request: Pending, Profiling, Ready, Deploying, Deployed, Failed. A step goes through as many phases
//! as the observed cluster allows. It changes the snapshot to the expected state after its writes: the plan is made
//! from that, and the difference to the observed state is patched into the request first.

mod deploying;
mod pending;
mod pods;
mod profiling;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value};
use steersman_api::dynamo::v1beta1::{
    DeploymentInfo, DynamoGraphDeploymentRequestStatus, Phase, ProfilingPhase, ProfilingResults, ReportedProblem,
};
use steersman_api::meta::conditions::{self, Statement, Truth};
use steersman_reconcile::Event;

use super::names::{self, ACCEPTED_SPEC, FINALIZER};
use super::request::{self, Acceptance};
use super::snapshot::{ObservedJob, ObservedObject, ObservedOutput, Snapshot};
use super::{legacy_texts, profile_job};

pub const SUCCEEDED: &str = "Succeeded";
pub const VALIDATION: &str = "Validation";
pub const PROFILING: &str = "Profiling";
pub const SPEC_GENERATED: &str = "SpecGenerated";
pub const DEPLOYMENT: &str = "DeploymentReady";
/// Not in upstream's API: the other conditions report the progress, this one the fields of the spec.
pub const SPEC_ACCEPTED: &str = "SpecAccepted";

/// Reason of `SpecAccepted` for a change of a Failed request.
pub const SPEC_CHANGE_IGNORED: &str = "SpecChangeIgnored";

/// Code of a failed profiling in `status.reported`, and of its event.
pub const PROFILING_CHECK_FAILED: &str = "ProfilingCheckFailed";

/// The object that a step creates.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Creation {
    #[default]
    Nothing,
    /// The profiling Job and its account. Remains of an earlier Job are deleted.
    Job,
    Graph(Map<String, Value>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseStep {
    pub phase: Phase,
    pub profiling_phase: Option<ProfilingPhase>,
    pub job_name: Option<String>,
    pub dgd_name: Option<String>,
    pub results: Option<ProfilingResults>,
    pub deployment: Option<DeploymentInfo>,
    /// Conditions of the phases; the summary `Succeeded` follows from the phase.
    pub statements: Vec<Statement>,
    /// Detail of the message of `Succeeded`: what is awaited, or why the request failed.
    pub detail: Option<String>,
    /// The cause for `status.summary`, if it is not the beginning of the message of `Succeeded`.
    pub summary: Option<String>,
    pub events: Vec<Event>,
    /// Problems that this or an earlier step reported.
    pub reported: Vec<ReportedProblem>,
    pub creation: Creation,
    /// The step awaits something that no watch covers.
    pub unwatched: bool,
    /// The stored status stays, because nothing is known that could change it.
    pub keeps_status: bool,
    /// A Failed request starts again: nothing of its last attempt stays.
    pub restarts: bool,
    /// The value of the retry annotation that the attempt was started with.
    pub last_retry: Option<String>,
    /// The step if the request cannot be patched, or if a write for its Job or for its restart fails.
    pub otherwise: Option<Box<PhaseStep>>,
    /// The generation of the request once it is patched.
    pub generation: Option<i64>,
    /// The spec is not the one that profiling began with.
    pub spec_changed: bool,
    /// The request failed under an earlier operator. The absence of `SpecAccepted` shows whose failure it is.
    pub inherited: bool,
}

impl PhaseStep {
    /// A step to a phase, with the rest of the stored status.
    pub(super) fn to(phase: Phase, object: &ObservedObject) -> Self {
        let stored = object.status.clone().unwrap_or_default();
        Self {
            phase,
            profiling_phase: stored.profiling_phase.filter(|_| phase == Phase::Profiling),
            job_name: stored.profiling_job_name,
            dgd_name: stored.dgd_name,
            results: stored.profiling_results,
            deployment: stored.deployment_info,
            last_retry: stored.last_retry,
            generation: object.generation,
            ..Self::default()
        }
    }

    fn with_condition(mut self, type_: &str, truth: Truth, reason: &str, message: impl Into<String>) -> Self {
        self.statements.push(Statement::new(type_, truth, reason, message));
        self
    }

    /// Sets the condition to False, with a message that `Succeeded` has as its detail.
    fn with_wait(self, type_: &str, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        self.with_condition(type_, Truth::False, reason, message.clone()).with_detail(message)
    }

    fn with_event(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.events.push(Event::normal(reason, message));
        self
    }

    fn with_warning(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.events.push(Event::warning(reason, message));
        self
    }

    fn with_warning_unless(self, known: bool, reason: &'static str, message: impl Into<String>) -> Self {
        if known { self } else { self.with_warning(reason, message) }
    }

    /// Reports a problem, with an event unless it was `known`.
    fn with_problem(
        self,
        problem: ReportedProblem,
        reason: &'static str,
        known: bool,
        message: impl Into<String>,
    ) -> Self {
        let mut step = self.with_warning_unless(known, reason, message);
        step.reported.push(problem);
        step
    }

    fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Puts the conditions and events of an earlier phase of the same step first.
    fn after(mut self, earlier: PhaseStep) -> Self {
        self.statements.splice(0..0, earlier.statements);
        self.events.splice(0..0, earlier.events);
        self
    }

    /// Failed, for a reason that leads the message.
    fn with_failure(self, object: &ObservedObject, type_: &str, reason: &str, message: &str) -> Self {
        let detail = failure_detail(object, type_, reason, message, Log::Profiler);
        self.with_condition(type_, Truth::False, reason, message).with_detail(detail)
    }
}

/// Whether no graph of the request was observed yet, or the last one was deleted while the request waited for approval. The annotation does not decide: replacing the request by its
/// manifest removes it.
pub fn is_unseen(object: &ObservedObject) -> bool {
    let reason = stored_reason(object, DEPLOYMENT).unwrap_or_default();
    matches!(
        reason,
        "" | "ConfigMapCreationFailed" | "DeploymentCreationFailed" | "DeploymentNameTaken" | "DeploymentNotCreated"
    )
}

pub fn is_fixed(phase: Phase) -> bool {
    matches!(phase, Phase::Profiling | Phase::Ready | Phase::Deploying | Phase::Deployed)
}

/// The phase that a step begins in. A request with a Job or a result of its own is in Profiling, even if a crash kept
/// its status from being written.
pub fn first_phase(object: &ObservedObject, job: Option<&ObservedJob>, output: Option<&ObservedOutput>) -> Phase {
    match request::phase(object).unwrap_or_default() {
        Phase::Pending if is_own(object, job) || pending::is_delivered(object, job, output) => Phase::Profiling,
        Phase::Failed if has_unreported_job(object, job) => Phase::Profiling,
        phase => phase,
    }
}

/// Whether the Job was made for this request and its current attempt, or for the attempt that its annotation asks for: a
/// crash may have kept the status from being written.
pub fn is_own(object: &ObservedObject, job: Option<&ObservedJob>) -> bool {
    job.is_some_and(|job| {
        let current = job.retry.as_deref() == request::last_retry(object) || job.retry == request::retry(object);
        is_controlled(object, job) && current
    })
}

pub fn is_controlled(object: &ObservedObject, job: &ObservedJob) -> bool {
    job.owner.as_deref() == Some(object.uid.as_str())
}

/// Whether a Failed request has a Job that its status does not name: the spec was corrected, the Job was created, and
/// then the status could not be written.
fn has_unreported_job(object: &ObservedObject, job: Option<&ObservedJob>) -> bool {
    let by_steersman = job.is_some_and(|job| job.accepted_spec.is_some());
    !request::has_job(object) && by_steersman && is_own(object, job) && !is_inherited(object)
}

/// Goes as far as possible from the current phase, and changes the snapshot to the expected state.
pub fn step(snapshot: &mut Snapshot) -> PhaseStep {
    let phase = request::phase(&snapshot.object).unwrap_or_default();
    if snapshot.object.deleting {
        // Only an earlier operator's finalizer is removed; Steersman adds none.
        snapshot.object.finalizers.retain(|name| name != FINALIZER);
        return PhaseStep::to(phase, &snapshot.object);
    }
    accept_spec(snapshot);
    match phase {
        Phase::Pending => pending::step(snapshot),
        Phase::Profiling => profiling::step(snapshot),
        Phase::Ready => deploying::ready(snapshot),
        Phase::Deploying => deploying::step(snapshot),
        Phase::Deployed => deploying::deployed(snapshot),
        Phase::Failed => failed(snapshot),
    }
}

/// Writes the hash of the spec to the annotation if it is absent, or after a permitted change.
fn accept_spec(snapshot: &mut Snapshot) {
    if let Acceptance::NewHash(hash) = request::acceptance(&snapshot.object)
        && request::phase(&snapshot.object).is_some_and(is_fixed)
    {
        snapshot.object.annotations.insert(ACCEPTED_SPEC.to_owned(), hash);
    }
}

/// The status as the next phase of the same step sees it.
fn enter_phase(snapshot: &mut Snapshot, phase: Phase) -> &mut DynamoGraphDeploymentRequestStatus {
    let status = snapshot.object.status.get_or_insert_default();
    status.phase = Some(phase);
    status
}

/// Whether the request failed under an earlier operator, which does not set `SpecAccepted`, and is unchanged since.
/// That operator never retried, so its users may have created another request.
pub fn is_inherited(object: &ObservedObject) -> bool {
    let Some(status) = object.status.as_ref().filter(|status| status.phase == Some(Phase::Failed)) else {
        return false;
    };
    conditions::find(&status.conditions, SPEC_ACCEPTED).is_none() && judged_generation(status) == object.generation
}

/// The generation of the spec that the status is about. Earlier operators wrote the discovered hardware into the spec, and
/// observed the new generation in the condition `Succeeded` only.
fn judged_generation(status: &DynamoGraphDeploymentRequestStatus) -> Option<i64> {
    let summed = conditions::find(&status.conditions, SUCCEEDED).and_then(|known| known.observed_generation);
    status.observed_generation.max(summed)
}

/// Whether the spec of a Failed request is not the one that it failed with. The annotation with its hash is absent if an
/// earlier operator started the request, or if the request was replaced by its manifest. Then the generation shows the
/// change, and the stored condition that there was one before.
pub fn has_changed_since_failure(object: &ObservedObject) -> bool {
    match request::acceptance(object) {
        Acceptance::Changed => true,
        Acceptance::Accepted => false,
        Acceptance::NewHash(_) => {
            let judged = object.status.as_ref().and_then(judged_generation);
            stored_reason(object, SPEC_ACCEPTED) == Some(SPEC_CHANGE_IGNORED)
                || judged.is_some_and(|judged| Some(judged) != object.generation)
        }
    }
}

/// Starts a Failed request again, with the spec as it is now. Its Job and its output are deleted.
fn restart(snapshot: &mut Snapshot) -> PhaseStep {
    let failed = failed_again(snapshot);
    let status = DynamoGraphDeploymentRequestStatus {
        last_retry: request::retry(&snapshot.object),
        ..DynamoGraphDeploymentRequestStatus::default()
    };
    snapshot.object.status = Some(status);
    // The Job of this attempt exists if a crash kept the status from being written.
    if !is_own(&snapshot.object, snapshot.job.as_ref()) {
        snapshot.job = snapshot.job.take().filter(|job| !is_controlled(&snapshot.object, job));
        snapshot.job_pods.clear();
        snapshot.output = None;
    }
    let began = PhaseStep::default().with_event("Retrying", "The request starts again, as its annotation asks for");
    PhaseStep { restarts: true, otherwise: Some(Box::new(failed)), ..pending::step(snapshot).after(began) }
}

/// Final, unless its user asks for a retry, or the request failed before its first Job: then a changed spec is tried.
fn failed(snapshot: &mut Snapshot) -> PhaseStep {
    if request::wants_retry(&snapshot.object) {
        return restart(snapshot);
    }
    if has_unreported_job(&snapshot.object, snapshot.job.as_ref()) {
        return pending::step(snapshot);
    }
    let stored = snapshot.object.status.clone().unwrap_or_default();
    let own_job = is_own(&snapshot.object, snapshot.job.as_ref());
    // The name of the Job may be lost, but only a profiled request has a condition about its graph.
    let has_graph = stored_reason(&snapshot.object, DEPLOYMENT).is_some();
    let began = request::has_job(&snapshot.object) || own_job || has_graph || is_inherited(&snapshot.object);
    let changed = stored.observed_generation != snapshot.object.generation;
    if !began && (was_invalid(&snapshot.object) || changed) {
        return pending::step(snapshot);
    }
    failed_again(snapshot)
}

/// Failed as before. `Succeeded` is rendered again, so that an improved text reaches old objects.
fn failed_again(snapshot: &Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let stored = object.status.clone().unwrap_or_default();
    let step = PhaseStep { reported: stored.reported.clone(), ..PhaseStep::to(Phase::Failed, object) };
    if let Some((reason, message)) = profiling::verdict_of_failed(snapshot) {
        let reported = vec![profiling::failed_job(object)];
        let detail = failure_detail(object, PROFILING, &reason, &message, log(snapshot, Log::Profiler));
        let step = step.with_condition(PROFILING, Truth::False, &reason, message);
        return PhaseStep { reported, ..step.with_detail(detail) };
    }
    let log = log(snapshot, if has_failed_sidecar(object) { Log::Sidecar } else { Log::Profiler });
    let first = [VALIDATION, PROFILING, SPEC_GENERATED, DEPLOYMENT].into_iter().find_map(|type_| {
        let known = conditions::find(&stored.conditions, type_)?;
        let explains = known.status == "False" && !known.message.is_empty();
        explains.then(|| failure_detail(object, type_, &known.reason, &known.message, log))
    });
    PhaseStep { detail: first, ..step }
}

fn has_failed_sidecar(object: &ObservedObject) -> bool {
    let reported = object.status.as_ref().map(|status| status.reported.as_slice()).unwrap_or_default();
    reported
        .iter()
        .any(|known| known.reason == PROFILING_CHECK_FAILED && known.container.as_deref() == Some(profile_job::COPIER))
        || legacy_texts::has_failed_sidecar(object)
}

/// The log that explains a failed profiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Profiler,
    Sidecar,
    /// Deleted with the pod.
    Gone,
}

/// `wanted`, if the Job still has a pod with a log.
fn log(snapshot: &Snapshot, wanted: Log) -> Log {
    if snapshot.job_pods.iter().any(|pod| !pod.deleting) { wanted } else { Log::Gone }
}

/// Why a request has failed, and the next step for its user.
pub(super) fn failure_detail(object: &ObservedObject, type_: &str, reason: &str, message: &str, log: Log) -> String {
    let (namespace, name) = (&object.namespace, &object.name);
    let again = format!("To profile again: {}", request::retry_command(object));
    let next = match (type_, reason) {
        // Once there was a Job, a changed spec is not profiled.
        (PROFILING, "JobCreationFailed")
            if request::phase(object) != Some(Phase::Profiling) && !request::has_job(object) =>
        {
            "Correct the spec: profiling then starts.".to_owned()
        }
        (PROFILING, "JobCreationFailed") => format!("Correct the spec. {again}"),
        (PROFILING, _) => {
            let logs = |container: &str| {
                format!("kubectl logs -n {namespace} job/{} -c {container}", names::profiling_job(name))
            };
            match log {
                Log::Sidecar => format!("See the log of output-copier: {}. {again}", logs(profile_job::COPIER)),
                Log::Profiler => format!("See the profiler's log: {}. {again}", logs(profile_job::PROFILER)),
                Log::Gone => format!("The pod of the profiling Job is gone, and its log with it. {again}"),
            }
        }
        (SPEC_GENERATED, _) => {
            format!("See the profiler's output in ConfigMap {}. {again}", names::output(name))
        }
        (DEPLOYMENT, "DeploymentRejected") => format!(
            "The rejected graph is in status.profilingResults.selectedConfig. Create a corrected graph yourself, or \
             correct it with spec.overrides.dgd. {again}"
        ),
        (DEPLOYMENT, "DeploymentDeleted") => format!("Or start this request again: {}", request::retry_command(object)),
        _ => return format!("{reason}: {message}"),
    };
    format!("{reason}: {}", steersman_reconcile::join_sentences(message, &next))
}

/// The condition `Succeeded` of a phase. `unknown` is the reason why the state of the graph, and so the success of the
/// request, is unknown.
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
    Statement::new(SUCCEEDED, truth, reason, message)
}

pub(super) fn stored_reason<'a>(object: &'a ObservedObject, type_: &str) -> Option<&'a str> {
    stored_condition(object, type_).map(|known| known.reason.as_str())
}

fn stored_condition<'a>(object: &'a ObservedObject, type_: &str) -> Option<&'a Condition> {
    conditions::find(&object.status.as_ref()?.conditions, type_)
}

/// Whether the stored status reports that the spec was refused.
fn was_invalid(object: &ObservedObject) -> bool {
    stored_condition(object, VALIDATION).is_some_and(|known| known.status == "False")
}
