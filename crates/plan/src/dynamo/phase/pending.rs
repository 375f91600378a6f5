//! Before profiling: the spec is checked, the hardware found out, the Job made.
//! Comes in: what was seen; goes out: a step that stays in Pending, or leads to Profiling or Failed.

use serde_json::{Value, json};
use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_api::meta::conditions::{self, Truth};
use steersman_reconcile::{EventType, Finding, sentences};

use super::{Act, PROFILING, Step, VALIDATION, annotate, profiling, stored};
use crate::dynamo::asked;
use crate::dynamo::checks::{self, Checks};
use crate::dynamo::hardware;
use crate::dynamo::names::{self, ACCEPTED_SPEC};
use crate::dynamo::seen::Seen;

const PREPARING: &str = "Discovering GPU hardware and preparing profiling job";

pub fn step(seen: &Seen) -> Step {
    let object = &seen.object;
    // Whatever the spec has become since: the Job was made from one that was right.
    if let Some(job) = seen.job.as_ref().filter(|job| job.owner.as_deref() == Some(object.uid.as_str())) {
        return match &job.mark {
            Some(mark) if object.annotations.get(ACCEPTED_SPEC) != Some(mark) => {
                Step::to(Phase::Pending, object).with(annotate(&[(ACCEPTED_SPEC, mark)]))
            }
            _ => begun(seen),
        };
    }
    if delivered(seen) {
        return begun(seen);
    }
    let Checks { wrong, missing } = checks::before_profiling(seen);
    if !wrong.is_empty() {
        return refused(seen, Phase::Failed, &[wrong, missing].concat());
    }
    if hardware::wanted(object.spec.hardware.as_ref()) && seen.hardware.awaited {
        return looking(seen);
    }
    if !missing.is_empty() {
        // Nodes and exporters come and go unwatched, and so do claims of other people.
        return Step { unwatched: true, ..refused(seen, Phase::Pending, &missing) };
    }
    let pending = Step::to(Phase::Pending, object).says(
        VALIDATION,
        Truth::True,
        "ValidationPassed",
        "DGDR spec validation passed",
    );
    // A new one has nothing to take back: the pass that sees its Job says it all. Where many requests begin at once, Jobs are
    // what their authors wait for.
    if is_first(seen) && asked::phase(object).is_some() {
        return welcomed(seen, pending.says(PROFILING, Truth::False, "DiscoveringHardware", PREPARING));
    }
    if let Some(patch) = prepared(seen) {
        return pending.with(Act::Request(patch));
    }
    match &seen.job {
        Some(_) => {
            let name = names::profiling_job(&object.name);
            let why = format!(
                "Job {name} belongs to somebody else, or to an earlier request of this name that is not all gone yet. \
                 Profiling begins when it is gone: kubectl delete job -n {} {name}",
                object.namespace
            );
            let waiting = pending.says(PROFILING, Truth::False, "DiscoveringHardware", why.clone()).because(why);
            Step { unwatched: true, ..welcomed(seen, waiting) }
        }
        None => pending.says(PROFILING, Truth::False, "DiscoveringHardware", PREPARING).with(Act::Job),
    }
}

/// Told with the first that is said of a request.
fn welcomed(seen: &Seen, step: Step) -> Step {
    if !is_first(seen) {
        return step;
    }
    step.tells(EventType::Normal, "Initialized", "DGDR initialized successfully")
}

/// A Job may have done its work and be gone, by its time to live, before anybody looked at it.
fn delivered(seen: &Seen) -> bool {
    let output = seen.output.as_ref().filter(|output| output.owner.as_deref() == Some(seen.object.uid.as_str()));
    seen.job.is_none()
        && seen.object.annotations.contains_key(ACCEPTED_SPEC)
        && output
            .is_some_and(|output| output.data.contains_key("profiler_status") || profiling::has_result(seen, output))
}

/// While somebody looks for the GPUs. What was missing before still is, as far as anybody knows: an operator that starts
/// again says nothing else until it has looked.
fn looking(seen: &Seen) -> Step {
    let object = &seen.object;
    let step = Step { unwatched: true, ..Step::to(Phase::Pending, object) };
    let status = object.status.as_ref();
    let lacked = status.filter(|_| asked::phase(object) == Some(Phase::Pending)).and_then(|status| {
        let known = conditions::find(&status.conditions, VALIDATION)?;
        (known.status == "False").then(|| known.message.clone())
    });
    if let Some(message) = lacked {
        return step.because(message);
    }
    welcomed(seen, step.says(PROFILING, Truth::False, "DiscoveringHardware", PREPARING))
}

/// `Initializing` of earlier versions: the status speaks of no generation yet, or of a spec that could not be used.
fn is_first(seen: &Seen) -> bool {
    let status = seen.object.status.as_ref();
    // Without a generation nothing can be said to have been seen of one, and it would be the first time every time.
    let unseen = seen.object.generation.is_some()
        && status.and_then(|status| status.observed_generation).unwrap_or_default() == 0;
    let was_wrong = status.is_some_and(|status| {
        conditions::find(&status.conditions, VALIDATION).is_some_and(|known| known.status == "False")
    });
    let was_failed = asked::phase(&seen.object) == Some(Phase::Failed);
    unseen || was_wrong || was_failed
}

fn refused(seen: &Seen, phase: Phase, findings: &[Finding]) -> Step {
    let text = sentences(findings);
    let step = Step::to(phase, &seen.object).says(VALIDATION, Truth::False, "ValidationFailed", text.clone());
    // Through the same gate as when it was stored, which may have cut it.
    let told = stored(&seen.object, VALIDATION).is_some_and(|(_, message)| message == conditions::as_stored(&text));
    let step = if told { step } else { step.tells(EventType::Warning, "ValidationFailed", text.clone()) };
    step.because(if phase == Phase::Failed { format!("ValidationFailed: {text}") } else { text })
}

/// What the request itself has to hold before the Job is made: hardware that was discovered, and the mark of this spec.
fn prepared(seen: &Seen) -> Option<Value> {
    let object = &seen.object;
    let mut spec = object.spec.clone();
    let hardware = hardware::complete(spec.hardware.as_ref(), &seen.hardware).ok()?;
    let changed = spec.hardware.as_ref() != Some(&hardware);
    spec.hardware = Some(hardware.clone());
    let mark = asked::mark(&spec);
    let marked = object.annotations.get(ACCEPTED_SPEC) == Some(&mark);
    if marked && !changed {
        return None;
    }
    let mut patch = json!({ "metadata": { "annotations": { ACCEPTED_SPEC: mark } } });
    if changed {
        patch["spec"] = json!({ "hardware": hardware });
    }
    Some(patch)
}

fn begun(seen: &Seen) -> Step {
    let step = welcomed(seen, Step::to(Phase::Profiling, &seen.object))
        .says(VALIDATION, Truth::True, "ValidationPassed", "DGDR spec validation passed")
        .says(PROFILING, Truth::False, "Initializing", PREPARING)
        .tells(EventType::Normal, "ProfilingJobCreated", "Profiling job created");
    Step {
        profiling_phase: Some(ProfilingPhase::Initializing),
        job_name: Some(names::profiling_job(&seen.object.name)),
        ..step
    }
}
