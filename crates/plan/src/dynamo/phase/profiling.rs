//! While the Job profiles, and when it has ended.
//! Comes in: the Job, its pods and its output; goes out: a step that stays in Profiling, or leads to Deploying, Ready or
//! Failed.

use serde_json::Value;
use steersman_api::dynamo::v1beta1::{Phase, ProfilingPhase};
use steersman_api::meta::conditions::Truth;
use steersman_reconcile::EventType;

use super::{Act, PROFILING, SPEC_GENERATED, Step, annotate, deploying, results, stored};
use crate::dynamo::asked::{self, Acceptance};
use crate::dynamo::graph;
use crate::dynamo::names::{self, ADDITIONAL, GENERATED_GRAPH};
use crate::dynamo::profile_job::trouble::{self, Kind};
use crate::dynamo::seen::{JobState, ObjectSeen, OutputSeen, PodSeen, Seen};

pub const GENERATED: &str = "DynamoGraphDeployment spec generated successfully";
const RUNNING: &str = "Profiling is in progress";
const STARTING: &str = "Waiting for the pod of the profiling Job to start";
const NO_DETAILS: &str = "profiler reported failure (no details available)";

/// Whoever is here has a Job, though an earlier operator may not have named it; without a name, a failure would look as if
/// nothing had been profiled.
pub fn step(seen: &Seen) -> Step {
    let step = by_job(seen);
    Step { job_name: step.job_name.clone().or_else(|| Some(names::profiling_job(&seen.object.name))), ..step }
}

fn by_job(seen: &Seen) -> Step {
    let output = output(seen);
    let verdict = output.and_then(|output| output.data.get("profiler_status")).map(String::as_str);
    let ours = seen.job.as_ref().filter(|job| job.owner.as_deref() == Some(seen.object.uid.as_str()));
    match (ours.map(|job| &job.state), verdict) {
        // The profiler had done its work: a pod that is evicted afterwards takes nothing of it away, nor does its successor.
        (Some(JobState::Running | JobState::Suspended), Some("success"))
            if seen.job_pods.iter().any(|pod| pod.phase == "Failed")
                && output.is_some_and(|output| has_result(seen, output)) =>
        {
            ended(seen, output)
        }
        (Some(JobState::Running | JobState::Suspended), _) => running(seen, output),
        (Some(JobState::Complete | JobState::Failed(_)) | None, Some("failed")) => failed(seen, output, None),
        (Some(JobState::Failed(_)), Some("success")) if output.is_some_and(|output| has_result(seen, output)) => {
            ended(seen, output)
        }
        (Some(JobState::Failed(message)), _) => failed(seen, output, Some(message)),
        (Some(JobState::Complete), _) => ended(seen, output),
        // A Job may be gone before it was looked at, by its time to live; what it delivered counts.
        (None, Some("success")) => ended(seen, output),
        (None, _) if output.is_some_and(|output| has_result(seen, output)) => ended(seen, output),
        (None, _) => gone(seen),
    }
}

/// Of this request: an earlier one of the same name may have left its own.
fn output(seen: &Seen) -> Option<&OutputSeen> {
    let output = seen.output.as_ref()?;
    // The earlier protocol wrote it without an owner, and the Job's creation took away what was older.
    output.owner.as_ref().is_none_or(|owner| *owner == seen.object.uid).then_some(output)
}

pub fn has_result(seen: &Seen, output: &OutputSeen) -> bool {
    graph::key(&output.data, asked::simulated(&seen.object.spec)).is_some()
}

/// What the profiler says it is busy with. A word that nobody knows says nothing.
fn relayed(output: Option<&OutputSeen>) -> Option<ProfilingPhase> {
    let word = output?.data.get("phase")?;
    serde_json::from_value(Value::String(word.clone())).ok()
}

/// As it stands in conditions.
fn word(phase: ProfilingPhase) -> &'static str {
    match phase {
        ProfilingPhase::Initializing => "Initializing",
        ProfilingPhase::SweepingPrefill => "SweepingPrefill",
        ProfilingPhase::SweepingDecode => "SweepingDecode",
        ProfilingPhase::SelectingConfig => "SelectingConfig",
        ProfilingPhase::BuildingCurves => "BuildingCurves",
        ProfilingPhase::GeneratingDgd => "GeneratingDGD",
        ProfilingPhase::Done => "Completed",
    }
}

fn running(seen: &Seen, output: Option<&OutputSeen>) -> Step {
    let object = &seen.object;
    let known = object.status.as_ref().and_then(|status| status.profiling_phase);
    // Without any output, what is known is of an earlier Job.
    let known = known.filter(|_| output.is_some());
    let phase = relayed(output).or(known).unwrap_or(ProfilingPhase::Initializing);
    let step = Step { profiling_phase: Some(phase), ..Step::to(Phase::Profiling, object) };
    let trouble = trouble::find(&seen.job_pods);
    if let Some(trouble) = trouble {
        let text = trouble.sentence();
        let told = stored(object, PROFILING).is_some_and(|(_, message)| message.contains(&trouble.place));
        let step = step.says(PROFILING, Truth::False, word(phase), text.clone()).because(text);
        return match trouble.kind {
            Kind::ImagePull if !told => step.tells(EventType::Warning, "ImagePullFailed", trouble.message),
            _ => step,
        };
    }
    let verdict = output.is_some_and(|output| output.data.contains_key("profiler_status"));
    if let Some(text) = trouble::undelivered(object, &seen.job_pods).filter(|_| !verdict) {
        return step.says(PROFILING, Truth::False, word(phase), text.clone()).because(text);
    }
    if seen.job.as_ref().is_some_and(|job| job.state == JobState::Suspended) {
        let text = "The profiling Job is suspended. It goes on when spec.suspend of the Job is set to false.";
        return step.says(PROFILING, Truth::False, word(phase), text).because(text);
    }
    let said = output.and_then(|output| asked::given(output.data.get("message").map(String::as_str)));
    match (phase, said) {
        (ProfilingPhase::Initializing, None) if seen.job_pods.iter().any(|pod| pod.phase != "Pending") => {
            step.says(PROFILING, Truth::False, "ProfilingRunning", RUNNING)
        }
        (ProfilingPhase::Initializing, None) => {
            let text = starting(object, seen.job_pods.first());
            step.says(PROFILING, Truth::False, "Initializing", text.clone()).because(text)
        }
        (phase, None) => step.says(PROFILING, Truth::False, word(phase), RUNNING),
        (phase, Some(said)) => step.says(PROFILING, Truth::False, word(phase), said).because(said),
    }
}

/// Quotas, limits and pod security are told to the Job alone, volumes and networks to the pod alone.
fn starting(object: &ObjectSeen, pod: Option<&PodSeen>) -> String {
    let namespace = &object.namespace;
    match pod {
        None => format!(
            "{STARTING}. If none comes, the events of the Job say why: kubectl describe job -n {namespace} {}",
            names::profiling_job(&object.name)
        ),
        Some(PodSeen { name, .. }) => {
            format!("{STARTING}. If it does not, its events say why: kubectl describe pod -n {namespace} {name}")
        }
    }
}

/// By the profiler's own verdict, or the Job's where it gave none.
fn failed(seen: &Seen, output: Option<&OutputSeen>, job: Option<&str>) -> Step {
    let (reason, message) = failure(seen, output, job);
    let step = Step { profiling_phase: None, ..Step::to(Phase::Failed, &seen.object) };
    step.fails(&seen.object, PROFILING, &reason, &message).tells(EventType::Warning, "ProfilingCheckFailed", message)
}

fn failure(seen: &Seen, output: Option<&OutputSeen>, job: Option<&str>) -> (String, String) {
    let known = seen.object.status.as_ref().and_then(|status| status.profiling_phase);
    let phase = relayed(output).or(known).filter(|phase| *phase != ProfilingPhase::Done);
    let reason = phase.map_or_else(|| "ProfilingFailed".to_owned(), |phase| format!("{}Failed", word(phase)));
    let message = match job {
        Some(job) => {
            let details = trouble::details(&seen.job_pods).map(|details| format!(". Details: {details}"));
            format!("profiling job failed: {job}{}", details.unwrap_or_default())
        }
        None => {
            let error = output.and_then(|output| asked::given(output.data.get("profiler_error").map(String::as_str)));
            format!("profiling failed: {}", error.unwrap_or(NO_DETAILS))
        }
    };
    (reason, message)
}

/// The profiler's own words, where they came later than the Job's end was told.
pub fn verdict_of_failed(seen: &Seen) -> Option<(String, String)> {
    let output = output(seen)?;
    let (reason, message) = stored(&seen.object, PROFILING)?;
    let told_of_job = message.starts_with("profiling job failed") || message.starts_with("profiling failed");
    if !told_of_job || output.data.get("profiler_status").map(String::as_str) != Some("failed") {
        return None;
    }
    let (newer, message) = failure(seen, Some(output), None);
    // The sub-phase that the status had is cleared by now; its name in the reason is what is left of it.
    let reason = if relayed(Some(output)).is_some() { newer } else { reason.to_owned() };
    Some((reason, message))
}

/// The keys that a result would have, where others were delivered or none with a success: all of it comes at once, so that
/// nothing more will.
fn lacking(seen: &Seen, output: &OutputSeen) -> Option<String> {
    let success = output.data.get("profiler_status").is_some_and(|verdict| verdict == "success");
    let others: Vec<&str> = graph::EARLIER.into_iter().filter(|key| output.data.contains_key(*key)).collect();
    if has_result(seen, output) || (others.is_empty() && !success) {
        return None;
    }
    let simulated = asked::simulated(&seen.object.spec);
    let wanted = if simulated { graph::EARLIER[0] } else { graph::EARLIER[1] };
    let delivered = if others.is_empty() { "no manifests".to_owned() } else { others.join(" and ") };
    Some(format!(
        "the profiler delivered {delivered}, where {} or {wanted} is needed (spec.features.mocker.enabled is {simulated})",
        graph::FINAL
    ))
}

fn ungenerated(object: &ObjectSeen, why: String) -> Step {
    let step = Step { profiling_phase: None, ..Step::to(Phase::Failed, object) };
    step.says(PROFILING, Truth::True, "ProfilingCompleted", "Profiling job completed successfully")
        .fails(object, SPEC_GENERATED, "GenerationFailed", &why)
        .tells(EventType::Warning, "GenerationFailed", why)
}

fn ended(seen: &Seen, output: Option<&OutputSeen>) -> Step {
    let object = &seen.object;
    if let Some(why) = output.and_then(|output| lacking(seen, output)) {
        return ungenerated(object, why);
    }
    let Some(output) = output.filter(|output| has_result(seen, output)) else {
        let text = format!(
            "The profiling Job has ended; ConfigMap {} with its result is awaited. If it does not come, see the log of \
             container output-copier: kubectl logs -n {} job/{} -c output-copier",
            names::output(&object.name),
            object.namespace,
            names::profiling_job(&object.name)
        );
        let phase = object.status.as_ref().and_then(|status| status.profiling_phase);
        let reason = word(phase.unwrap_or(ProfilingPhase::Initializing));
        return Step::to(Phase::Profiling, object).says(PROFILING, Truth::False, reason, text.clone()).because(text);
    };
    let generated = match graph::generate(object, output) {
        Ok(generated) => generated,
        Err(why) => return ungenerated(object, why),
    };
    if !generated.is_stored(object) {
        let values = [(GENERATED_GRAPH, generated.text.as_str()), (ADDITIONAL, generated.additional.as_str())];
        return Step::to(Phase::Profiling, object).with(annotate(&values));
    }
    // A spec that was changed meanwhile says nothing about what to do with a graph that was made from another.
    let apply = asked::auto_apply(object) && asked::acceptance(object) != Acceptance::Changed;
    let (phase, message) = if apply { (Phase::Deploying, GENERATED.to_owned()) } else { (Phase::Ready, available()) };
    let step = Step {
        profiling_phase: None,
        dgd_name: Some(generated.name().to_owned()),
        results: Some(results(generated.graph, generated.pareto)),
        ..Step::to(phase, object)
    };
    let step = step
        .says(PROFILING, Truth::True, "ProfilingCompleted", "Profiling job completed successfully")
        .says(SPEC_GENERATED, Truth::True, "SpecGenerated", message)
        .tells(EventType::Normal, "SpecGenerated", GENERATED);
    let step = if apply { step } else { step.because(deploying::on_offer(object)) };
    if generated.skipped.is_empty() {
        return step;
    }
    let text = format!(
        "Not created from the profiling output: {}. Only ConfigMaps are; create the others yourself if the graph needs them.",
        generated.skipped.join(", ")
    );
    step.tells(EventType::Warning, "AdditionalResourcesSkipped", text)
}

fn available() -> String {
    format!("Generated spec is available in annotation {GENERATED_GRAPH}")
}

/// Somebody removed the Job before it delivered. It is made again: only the profiler says that there is no answer.
fn gone(seen: &Seen) -> Step {
    let object = &seen.object;
    let step = Step { profiling_phase: Some(ProfilingPhase::Initializing), ..Step::to(Phase::Profiling, object) };
    let name = names::profiling_job(&object.name);
    if seen.job.is_some() {
        let text = format!(
            "Job {name} belongs to somebody else. Profiling begins anew when it is gone: kubectl delete job -n {} {name}",
            object.namespace
        );
        let waiting = step.says(PROFILING, Truth::False, "Initializing", text.clone()).because(text);
        return Step { unwatched: true, ..waiting };
    }
    if asked::acceptance(object) == Acceptance::Changed {
        let text = format!("jobs.batch \"{name}\" not found, and the spec is not the one that profiling began with");
        return step.says(PROFILING, Truth::False, "Initializing", text.clone()).because(text);
    }
    let text = format!("jobs.batch \"{name}\" not found; profiling begins anew");
    let told =
        stored(object, PROFILING).is_some_and(|(reason, message)| message == text || reason == "JobCreationFailed");
    let step = if told { step } else { step.tells(EventType::Warning, "ProfilingJobDeleted", text.clone()) };
    step.says(PROFILING, Truth::False, "Initializing", text.clone()).because(text).with(Act::Job)
}
