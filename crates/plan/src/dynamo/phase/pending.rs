//! Before profiling: checks the spec, discovers the hardware, and leads to the Job. Stays in Pending while something is
//! awaited, and leads to Failed if the spec is wrong.

use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_api::meta::conditions::{self, Truth};
use steersman_reconcile::{EventType, sentences};

use super::{Act, PROFILING, Step, VALIDATION, accept_spec, entered, is_own, profiling};
use crate::dynamo::checks::{self, Checks, Obstacle};
use crate::dynamo::names::{self, ACCEPTED_SPEC};
use crate::dynamo::seen::{JobSeen, JobState, ObjectSeen, OutputSeen, Seen};
use crate::dynamo::{asked, hardware, legacy_texts, reported};

const PREPARING: &str = "Discovering GPU hardware and preparing profiling job";

pub fn step(seen: &mut Seen) -> Step {
    let job = seen.job.as_ref();
    // The Job was made from a spec that was right, whatever the spec has become since.
    if is_own(&seen.object, job) {
        if let Some(mark) = job.and_then(|job| job.mark.clone()) {
            seen.object.annotations.insert(ACCEPTED_SPEC.to_owned(), mark);
        }
        return begun(seen);
    }
    if is_delivered(&seen.object, job, seen.output.as_ref()) {
        return begun(seen);
    }
    let Checks { wrong, missing } = checks::before_profiling(seen);
    if !wrong.is_empty() {
        return refused(seen, Phase::Failed, &[wrong, missing].concat());
    }
    if hardware::wanted(seen.object.spec.hardware.as_ref()) && seen.hardware.awaited {
        return looking(seen);
    }
    if !missing.is_empty() {
        // No watch covers nodes, exporters and claims.
        return Step { unwatched: true, ..refused(seen, Phase::Pending, &missing) };
    }
    let object = &seen.object;
    let pending = Step::to(Phase::Pending, object).says(
        VALIDATION,
        Truth::True,
        "ValidationPassed",
        "DGDR spec validation passed",
    );
    if seen.job.is_some() {
        let name = names::profiling_job(&object.name);
        let why = format!(
            "Job {name} belongs to somebody else, or to an earlier request of this name that is not all gone yet. \
             Profiling begins when it is gone: kubectl delete job -n {} {name}",
            object.namespace
        );
        let waiting = pending.says(PROFILING, Truth::False, "DiscoveringHardware", why.clone()).because(why);
        return Step { unwatched: true, ..initialized(seen, waiting) };
    }
    let otherwise = pending.says(PROFILING, Truth::False, "DiscoveringHardware", PREPARING);
    prepare(seen);
    expect_job(seen);
    Step { act: Act::Job, otherwise: Some(Box::new(otherwise)), ..begun(seen) }
}

/// The first event of a request.
fn initialized(seen: &Seen, step: Step) -> Step {
    if !is_first(seen) {
        return step;
    }
    step.tells(EventType::Normal, "Initialized", "DGDR initialized successfully")
}

/// Whether a Job has done its work and is gone, by its time to live, before it was observed.
pub fn is_delivered(object: &ObjectSeen, job: Option<&JobSeen>, output: Option<&OutputSeen>) -> bool {
    let output = output.filter(|output| output.owner.as_deref() == Some(object.uid.as_str()));
    job.is_none()
        && object.annotations.contains_key(ACCEPTED_SPEC)
        && output
            .is_some_and(|output| output.data.contains_key("profiler_status") || profiling::has_result(object, output))
}

/// While the GPUs are being discovered. An operator that has just started keeps what was missing before.
fn looking(seen: &Seen) -> Step {
    let object = &seen.object;
    let step = Step { unwatched: true, ..Step::to(Phase::Pending, object) };
    let refused = object.status.as_ref().is_some_and(|status| {
        status.phase == Some(Phase::Pending)
            && conditions::find(&status.conditions, VALIDATION).is_some_and(|known| known.status == "False")
    });
    if refused {
        return Step { keeps_status: true, ..step };
    }
    initialized(seen, step.says(PROFILING, Truth::False, "DiscoveringHardware", PREPARING))
}

/// `Initializing` of earlier versions: the status is of no generation yet, or of a spec that could not be used.
fn is_first(seen: &Seen) -> bool {
    let status = seen.object.status.as_ref();
    // Without a generation none can have been observed, and it would be the first time every time.
    let unseen = seen.object.generation.is_some()
        && status.and_then(|status| status.observed_generation).unwrap_or_default() == 0;
    let was_wrong = status.is_some_and(|status| {
        conditions::find(&status.conditions, VALIDATION).is_some_and(|known| known.status == "False")
    });
    let was_failed = asked::phase(&seen.object) == Some(Phase::Failed);
    unseen || was_wrong || was_failed
}

fn refused(seen: &Seen, phase: Phase, obstacles: &[Obstacle]) -> Step {
    let object = &seen.object;
    let findings: Vec<_> = obstacles.iter().map(|obstacle| obstacle.finding.clone()).collect();
    let text = sentences(&findings);
    let known = obstacles.iter().all(|obstacle| reported::contains(object, &obstacle.problem))
        || legacy_texts::has_findings(object, &text);
    let mut step = Step::to(phase, object).says(VALIDATION, Truth::False, "ValidationFailed", text.clone());
    if !known {
        step = step.tells(EventType::Warning, "ValidationFailed", text.clone());
    }
    step.reported.extend(obstacles.iter().map(|obstacle| obstacle.problem.clone()));
    step.because(if phase == Phase::Failed { format!("ValidationFailed: {text}") } else { text })
}

/// Puts into the request what it has to hold before the Job is made: the hardware that was discovered, and the mark of the
/// spec.
fn prepare(seen: &mut Seen) {
    let object = &mut seen.object;
    let Ok(hardware) = hardware::complete(object.spec.hardware.as_ref(), &seen.hardware) else { return };
    if object.spec.hardware.as_ref() != Some(&hardware) {
        object.spec.hardware = Some(hardware);
        // The API server counts every change of the spec.
        object.generation = object.generation.map(|generation| generation + 1);
    }
    object.annotations.insert(ACCEPTED_SPEC.to_owned(), asked::mark(&object.spec));
}

/// The cluster once the Job is created: nothing is left of an earlier one.
pub fn expect_job(seen: &mut Seen) {
    let object = &seen.object;
    seen.job = Some(JobSeen {
        owner: Some(object.uid.clone()),
        mark: Some(asked::mark(&object.spec)),
        state: JobState::Running,
    });
    seen.job_pods.clear();
    seen.output = None;
}

fn begun(seen: &mut Seen) -> Step {
    let begun = initialized(seen, Step::to(Phase::Profiling, &seen.object))
        .says(VALIDATION, Truth::True, "ValidationPassed", "DGDR spec validation passed")
        .tells(EventType::Normal, "ProfilingJobCreated", "Profiling job created");
    let job_name = names::profiling_job(&seen.object.name);
    let status = entered(seen, Phase::Profiling);
    status.profiling_phase = Some(ProfilingPhase::Initializing);
    status.profiling_job_name = Some(job_name);
    accept_spec(seen);
    profiling::step(seen).after(begun)
}
