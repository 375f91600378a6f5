//! The phase before profiling: checks the spec, discovers the hardware, and leads to the Job. Stays in Pending while
//! something is awaited, and leads to Failed if the spec is invalid.

use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_api::meta::conditions::Truth;
use steersman_reconcile::sentences;

use super::{
    Creation, PROFILING, PhaseStep, VALIDATION, accept_spec, enter_phase, is_controlled, is_own, profiling, was_invalid,
};
use crate::dynamo::checks::{self, Checks, Obstacle};
use crate::dynamo::names::{self, ACCEPTED_SPEC};
use crate::dynamo::snapshot::{JobState, ObservedJob, ObservedObject, ObservedOutput, Snapshot};
use crate::dynamo::{hardware, legacy_texts, reported, request};

const PREPARING: &str = "Discovering GPU hardware and preparing profiling job";

pub fn step(snapshot: &mut Snapshot) -> PhaseStep {
    // The Job was made from a valid spec, even if the spec has changed since.
    if let Some(job) = snapshot.job.clone().filter(|job| is_own(&snapshot.object, Some(job))) {
        if let Some(hash) = job.accepted_spec {
            snapshot.object.annotations.insert(ACCEPTED_SPEC.to_owned(), hash);
        }
        snapshot.object.status.get_or_insert_default().last_retry = job.retry;
        return enter_profiling(snapshot);
    }
    // The Job of an earlier attempt is deleted before the new one is created.
    snapshot.job = snapshot.job.take().filter(|job| !is_controlled(&snapshot.object, job));
    let job = snapshot.job.as_ref();
    if is_delivered(&snapshot.object, job, snapshot.output.as_ref()) {
        return enter_profiling(snapshot);
    }
    let Checks { errors, missing } = checks::before_profiling(snapshot);
    if !errors.is_empty() {
        return refused(snapshot, Phase::Failed, &[errors, missing].concat());
    }
    if hardware::needs_discovery(request::hardware(&snapshot.object).as_ref()) && snapshot.hardware.awaited {
        return discovering(snapshot);
    }
    if !missing.is_empty() {
        // No watch covers nodes, exporters and claims.
        return PhaseStep { unwatched: true, ..refused(snapshot, Phase::Pending, &missing) };
    }
    let object = &snapshot.object;
    let pending = PhaseStep::to(Phase::Pending, object).with_condition(
        VALIDATION,
        Truth::True,
        "ValidationPassed",
        "DGDR spec validation passed",
    );
    if snapshot.job.is_some() {
        let name = names::profiling_job(&object.name);
        let why = format!(
            "Job {name} exists and belongs to another owner, or to an earlier request of the same name that is still \
             being deleted. Profiling starts once this Job is deleted: kubectl delete job -n {} {name}",
            object.namespace
        );
        let waiting = pending.with_wait(PROFILING, "DiscoveringHardware", why);
        return PhaseStep { unwatched: true, ..initialized(snapshot, waiting) };
    }
    let otherwise = pending.with_condition(PROFILING, Truth::False, "DiscoveringHardware", PREPARING);
    prepare(snapshot);
    expect_job(snapshot);
    PhaseStep { creation: Creation::Job, otherwise: Some(Box::new(otherwise)), ..enter_profiling(snapshot) }
}

/// Adds the first event of a request: the status has no generation yet, or is about a spec that was refused, which is the
/// state `Initializing` of earlier versions.
fn initialized(snapshot: &Snapshot, step: PhaseStep) -> PhaseStep {
    let object = &snapshot.object;
    let observed = object.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    // Without a generation nothing can be observed, and every step would count as the first.
    let unseen = object.generation.is_some() && observed == 0;
    let first = unseen || was_invalid(object) || request::phase(object) == Some(Phase::Failed);
    if first { step.with_event("Initialized", "DGDR initialized successfully") } else { step }
}

/// Whether a Job has delivered and was deleted by its time to live before it was observed.
pub fn is_delivered(object: &ObservedObject, job: Option<&ObservedJob>, output: Option<&ObservedOutput>) -> bool {
    let output = output.filter(|output| output.owner.as_deref() == Some(object.uid.as_str()));
    job.is_none()
        && output
            .is_some_and(|output| output.data.contains_key("profiler_status") || profiling::has_result(object, output))
}

/// The step while GPUs are being discovered. After a start of the operator, a reported problem stays until then.
fn discovering(snapshot: &Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let step = PhaseStep { unwatched: true, ..PhaseStep::to(Phase::Pending, object) };
    if request::phase(object) == Some(Phase::Pending) && was_invalid(object) {
        return PhaseStep { keeps_status: true, ..step };
    }
    initialized(snapshot, step.with_condition(PROFILING, Truth::False, "DiscoveringHardware", PREPARING))
}

fn refused(snapshot: &Snapshot, phase: Phase, obstacles: &[Obstacle]) -> PhaseStep {
    let object = &snapshot.object;
    let findings: Vec<_> = obstacles.iter().map(|obstacle| obstacle.finding.clone()).collect();
    let text = sentences(&findings);
    let known = obstacles.iter().all(|obstacle| reported::contains(object, &obstacle.problem))
        || legacy_texts::has_findings(object, &text);
    let mut step = PhaseStep::to(phase, object)
        .with_condition(VALIDATION, Truth::False, "ValidationFailed", text.clone())
        .with_warning_unless(known, "ValidationFailed", text.clone());
    step.reported.extend(obstacles.iter().map(|obstacle| obstacle.problem.clone()));
    // An invalid spec ends the attempt.
    if phase == Phase::Failed {
        step.last_retry = request::retry(object);
    }
    step.with_detail(if phase == Phase::Failed { format!("ValidationFailed: {text}") } else { text })
}

/// Sets the fields that the request must have before the Job is created: the discovered hardware, and the annotation
/// with the hash of the spec.
fn prepare(snapshot: &mut Snapshot) {
    let object = &mut snapshot.object;
    let requested = request::hardware(object);
    let Ok(hardware) = hardware::complete(requested.as_ref(), &snapshot.hardware) else { return };
    if object.spec.hardware.as_ref() != Some(&hardware) {
        object.spec.hardware = Some(hardware);
        // The API server increments the generation with every change of the spec.
        object.generation = object.generation.map(|generation| generation + 1);
    }
    object.annotations.insert(ACCEPTED_SPEC.to_owned(), request::spec_hash(&object.spec));
    let retry = request::retry(object);
    object.status.get_or_insert_default().last_retry = retry;
}

/// The expected state after the Job is created: nothing is left of an earlier one.
pub fn expect_job(snapshot: &mut Snapshot) {
    let object = &snapshot.object;
    snapshot.job = Some(ObservedJob {
        owner: Some(object.uid.clone()),
        accepted_spec: Some(request::spec_hash(&object.spec)),
        retry: request::last_retry(object).map(str::to_owned),
        state: JobState::Running,
        ..ObservedJob::default()
    });
    snapshot.job_pods.clear();
    snapshot.output = None;
}

fn enter_profiling(snapshot: &mut Snapshot) -> PhaseStep {
    let begun = initialized(snapshot, PhaseStep::to(Phase::Profiling, &snapshot.object))
        .with_condition(VALIDATION, Truth::True, "ValidationPassed", "DGDR spec validation passed")
        .with_event("ProfilingJobCreated", "Profiling job created");
    let job_name = names::profiling_job(&snapshot.object.name);
    let status = enter_phase(snapshot, Phase::Profiling);
    status.profiling_phase = Some(ProfilingPhase::Initializing);
    status.profiling_job_name = Some(job_name);
    accept_spec(snapshot);
    profiling::step(snapshot).after(begun)
}
