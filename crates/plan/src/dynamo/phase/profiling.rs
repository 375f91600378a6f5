//! The phase in which the Job profiles: stays in Profiling, or leads to Deploying, Ready or Failed.

use jiff::SignedDuration;
use steersman_api::dynamo::v1beta1::{ParetoConfig, Phase, ProfilingPhase, ProfilingResults, ReportedProblem};
use steersman_api::meta::conditions::Truth;

use super::{
    Creation, Log, PROFILING, PROFILING_CHECK_FAILED, PhaseStep, SPEC_GENERATED, deploying, enter_phase,
    failure_detail, is_own, log, pending, pods, stored_reason,
};
use crate::dynamo::names::{self, ADDITIONAL, GENERATED_GRAPH};
use crate::dynamo::profile_job::{COPIER, PROFILER};
use crate::dynamo::request::{self, Acceptance};
use crate::dynamo::snapshot::{JobState, ObservedObject, ObservedOutput, Snapshot};
use crate::dynamo::{graph, legacy_texts, reported};
use crate::pods::{ObservedPod, failure as pod_failure};

pub const GENERATED: &str = "DynamoGraphDeployment spec generated successfully";
const RUNNING: &str = "Profiling is in progress";
const STARTING: &str = "Waiting for the pod of the profiling Job to start";
/// Time for the result to appear after the Job has ended. The sidecar writes it before its own end, so that only a cache or
/// an API server that lags makes it late.
const RESULT_DEADLINE: SignedDuration = SignedDuration::from_mins(5);
const NO_DETAILS: &str = "profiler reported failure (no details available)";

pub fn step(snapshot: &mut Snapshot) -> PhaseStep {
    // An earlier operator may not have stored the name of the Job, without which a failure would count as one before
    // profiling.
    let job_name = names::profiling_job(&snapshot.object.name);
    enter_phase(snapshot, Phase::Profiling).profiling_job_name.get_or_insert(job_name);
    match state(snapshot) {
        ProfilingState::Running => running(snapshot),
        ProfilingState::Failed(job) => failed(snapshot, job.as_deref()),
        ProfilingState::Ended => ended(snapshot),
        ProfilingState::Gone => gone(snapshot),
        ProfilingState::PodDeleted => pod_deleted(snapshot),
    }
}

enum ProfilingState {
    Running,
    /// Message of the Job, if the profiler gave no verdict.
    Failed(Option<String>),
    Ended,
    Gone,
    /// The Job failed because somebody deleted its pod.
    PodDeleted,
}

fn state(snapshot: &Snapshot) -> ProfilingState {
    let object = &snapshot.object;
    let output = output(snapshot);
    let verdict = output.and_then(|output| output.data.get("profiler_status")).map(String::as_str);
    let has_result = output.is_some_and(|output| has_result(object, output));
    let job = snapshot.job.as_ref().filter(|job| is_own(object, Some(job)));
    match (job.map(|job| &job.state), verdict) {
        // The profiler has delivered its result. If its pod is evicted afterwards, the Job runs a replacement pod, whose
        // result is not needed.
        (Some(JobState::Running | JobState::Suspended), Some("success"))
            if has_result && snapshot.job_pods.iter().any(|pod| pod.phase == "Failed") =>
        {
            ProfilingState::Ended
        }
        (Some(JobState::Running | JobState::Suspended), _) => ProfilingState::Running,
        (Some(JobState::Complete | JobState::Failed(_)) | None, Some("failed")) => ProfilingState::Failed(None),
        (Some(JobState::Failed(_)), Some("success")) if has_result => ProfilingState::Ended,
        (Some(JobState::Failed(_)), None) if is_pod_deleted(snapshot) => ProfilingState::PodDeleted,
        (Some(JobState::Failed(message)), _) => ProfilingState::Failed(Some(message.clone())),
        (Some(JobState::Complete), _) => ProfilingState::Ended,
        // A Job may be deleted by its time to live before it was observed; its result counts.
        (None, Some("success")) => ProfilingState::Ended,
        (None, _) if has_result => ProfilingState::Ended,
        (None, _) => ProfilingState::Gone,
    }
}

/// Whether the Job counts a deleted pod as a failed one. Kubernetes keeps the pod of a profiler that failed by itself, and a
/// Job beyond its deadline has another reason.
fn is_pod_deleted(snapshot: &Snapshot) -> bool {
    let exhausted = snapshot.job.as_ref().and_then(|job| job.failure.as_deref()) == Some("BackoffLimitExceeded");
    exhausted && !snapshot.job_pods.iter().any(|pod| pod.phase == "Failed" && !pod.deleting)
}

/// The output of this request. An earlier request of the same name may have left one.
fn output(snapshot: &Snapshot) -> Option<&ObservedOutput> {
    let output = snapshot.output.as_ref()?;
    // The earlier protocol set no owner; an older output was deleted when the Job was created.
    output.owner.as_ref().is_none_or(|owner| *owner == snapshot.object.uid).then_some(output)
}

pub fn has_result(object: &ObservedObject, output: &ObservedOutput) -> bool {
    graph::key(&output.data, request::uses_mocker(&object.spec)).is_some()
}

/// The sub-phase that the profiler reports. None: it reports none, or an unknown one.
fn reported_phase(output: Option<&ObservedOutput>) -> Option<ProfilingPhase> {
    parse_phase(output?.data.get("phase")?)
}

fn parse_phase(phase: &str) -> Option<ProfilingPhase> {
    serde_json::from_value(phase.into()).ok()
}

/// Reason of the condition for a sub-phase.
fn condition_reason(phase: ProfilingPhase) -> &'static str {
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

fn running(snapshot: &Snapshot) -> PhaseStep {
    let (object, output) = (&snapshot.object, output(snapshot));
    let known = object.status.as_ref().and_then(|status| status.profiling_phase);
    // Without any output, the stored sub-phase is that of an earlier Job.
    let known = known.filter(|_| output.is_some());
    let phase = reported_phase(output).or(known).unwrap_or(ProfilingPhase::Initializing);
    let step = PhaseStep { profiling_phase: Some(phase), ..PhaseStep::to(Phase::Profiling, object) };
    if let Some(problem) = pods::of_job(&snapshot.job_pods) {
        let step = step.with_wait(PROFILING, condition_reason(phase), problem.sentence());
        return if problem.is_image_pull { deploying::report_pull(object, step, &problem) } else { step };
    }
    let verdict = output.is_some_and(|output| output.data.contains_key("profiler_status"));
    if let Some(text) = pods::undelivered(object, &snapshot.job_pods).filter(|_| !verdict) {
        return step.with_wait(PROFILING, condition_reason(phase), text);
    }
    if snapshot.job.as_ref().is_some_and(|job| job.state == JobState::Suspended) {
        let text = "The profiling Job is suspended. To resume it, set spec.suspend of the Job to false.";
        return step.with_wait(PROFILING, condition_reason(phase), text);
    }
    let message = output.and_then(|output| request::non_empty(output.data.get("message").map(String::as_str)));
    match (phase, message) {
        (ProfilingPhase::Initializing, None) if snapshot.job_pods.iter().any(|pod| pod.phase != "Pending") => {
            step.with_condition(PROFILING, Truth::False, "ProfilingRunning", RUNNING)
        }
        (ProfilingPhase::Initializing, None) => {
            step.with_wait(PROFILING, "Initializing", starting(object, snapshot.job_pods.first()))
        }
        (phase, None) => step.with_condition(PROFILING, Truth::False, condition_reason(phase), RUNNING),
        (phase, Some(message)) => step.with_wait(PROFILING, condition_reason(phase), message),
    }
}

/// Quotas, limits and pod security show in events of the Job only, volumes and networks in events of the pod only.
fn starting(object: &ObservedObject, pod: Option<&ObservedPod>) -> String {
    let namespace = &object.namespace;
    match pod {
        None => format!(
            "{STARTING}. If no pod is created, see the events of the Job: kubectl describe job -n {namespace} {}",
            names::profiling_job(&object.name)
        ),
        Some(ObservedPod { name, .. }) => {
            format!("{STARTING}. If it does not start, see its events: kubectl describe pod -n {namespace} {name}")
        }
    }
}

/// Fails by the profiler's verdict, or the Job's if there is none.
fn failed(snapshot: &Snapshot, job: Option<&str>) -> PhaseStep {
    let object = &snapshot.object;
    let (reason, mut message) = (failed_reason(snapshot), verdict(snapshot));
    let mut problem = failed_job(object);
    if let Some(job) = job {
        message = format!("profiling job failed: {job}");
        let failure = pod_failure(&snapshot.job_pods, PROFILER);
        if let Some((details, failure)) = failure.and_then(|failure| Some((pods::details(&failure)?, failure))) {
            message = format!("{message}. Details: {details}");
            problem.kind = Some("Pod".to_owned());
            problem.name = Some(failure.pod);
            problem.container = failure.container.map(|container| container.name);
        }
    }
    let log = log(snapshot, if problem.container.as_deref() == Some(COPIER) { Log::Sidecar } else { Log::Profiler });
    let step = PhaseStep { profiling_phase: None, reported: vec![problem], ..PhaseStep::to(Phase::Failed, object) };
    let detail = failure_detail(object, PROFILING, &reason, &message, log);
    step.with_condition(PROFILING, Truth::False, &reason, message.clone())
        .with_detail(detail)
        .with_warning(PROFILING_CHECK_FAILED, message)
}

/// The entry of a failed profiling in `status.reported`.
pub fn failed_job(object: &ObservedObject) -> ReportedProblem {
    reported::about(PROFILING_CHECK_FAILED, "Job", &names::profiling_job(&object.name))
}

/// The reason names the sub-phase that failed.
fn failed_reason(snapshot: &Snapshot) -> String {
    let known = snapshot.object.status.as_ref().and_then(|status| status.profiling_phase);
    let phase = reported_phase(output(snapshot)).or(known).filter(|phase| *phase != ProfilingPhase::Done);
    phase.map_or_else(|| "ProfilingFailed".to_owned(), |phase| format!("{}Failed", condition_reason(phase)))
}

fn verdict(snapshot: &Snapshot) -> String {
    let error =
        output(snapshot).and_then(|output| request::non_empty(output.data.get("profiler_error").map(String::as_str)));
    format!("profiling failed: {}", error.unwrap_or(NO_DETAILS))
}

/// Reason and message of the profiler, if they arrived after the Job's end was reported.
pub fn verdict_of_failed(snapshot: &Snapshot) -> Option<(String, String)> {
    let output = output(snapshot)?;
    let reason = stored_reason(&snapshot.object, PROFILING).filter(|reason| is_failed_reason(reason))?;
    if output.data.get("profiler_status").map(String::as_str) != Some("failed") {
        return None;
    }
    // The status no longer has the sub-phase; the stored reason still names it.
    let reason = if reported_phase(Some(output)).is_some() { failed_reason(snapshot) } else { reason.to_owned() };
    Some((reason, verdict(snapshot)))
}

/// Whether a reason is one of [`failed_reason`], which NVIDIA's operator shares.
fn is_failed_reason(code: &str) -> bool {
    // NVIDIA's operator names a sub-phase as its status does, and has a reason for the last one.
    let phase = code.strip_suffix("Failed");
    phase.is_some_and(|phase| ["Profiling", "Completed"].contains(&phase) || parse_phase(phase).is_some())
}

/// Names the missing keys of an output with other manifests, or with a success and no manifest. All keys are delivered
/// at once, so that the missing ones will not follow.
fn missing_manifests(object: &ObservedObject, output: &ObservedOutput) -> Option<String> {
    let success = output.data.get("profiler_status").is_some_and(|verdict| verdict == "success");
    let others: Vec<&str> = graph::EARLIER.into_iter().filter(|key| output.data.contains_key(*key)).collect();
    if has_result(object, output) || (others.is_empty() && !success) {
        return None;
    }
    let simulated = request::uses_mocker(&object.spec);
    let wanted = if simulated { graph::EARLIER[0] } else { graph::EARLIER[1] };
    let delivered = if others.is_empty() { "no manifests".to_owned() } else { others.join(" and ") };
    Some(format!(
        "the profiler delivered {delivered}, but {} or {wanted} is required (spec.features.mocker.enabled is \
         {simulated})",
        graph::FINAL
    ))
}

fn generation_failed(object: &ObservedObject, why: String) -> PhaseStep {
    let step = PhaseStep { profiling_phase: None, ..PhaseStep::to(Phase::Failed, object) };
    step.with_condition(PROFILING, Truth::True, "ProfilingCompleted", "Profiling job completed successfully")
        .with_failure(object, SPEC_GENERATED, "GenerationFailed", &why)
        .with_warning("GenerationFailed", why)
}

fn ended(snapshot: &mut Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let output = output(snapshot);
    if let Some(why) = output.and_then(|output| missing_manifests(object, output)) {
        return generation_failed(object, why);
    }
    let Some(output) = output.filter(|output| has_result(object, output)) else {
        let ended = snapshot.job.as_ref().and_then(|job| job.ended);
        if ended.is_some_and(|ended| snapshot.now.duration_since(ended) >= RESULT_DEADLINE) {
            return result_missing(snapshot);
        }
        let text = format!(
            "The profiling Job has ended; waiting for ConfigMap {} with its result. If the ConfigMap is not created, \
             see the log of container output-copier: kubectl logs -n {} job/{} -c output-copier",
            names::output(&object.name),
            object.namespace,
            names::profiling_job(&object.name)
        );
        let phase = object.status.as_ref().and_then(|status| status.profiling_phase);
        let reason = condition_reason(phase.unwrap_or(ProfilingPhase::Initializing));
        let step = PhaseStep::to(Phase::Profiling, object).with_wait(PROFILING, reason, text);
        return PhaseStep { unwatched: true, ..step };
    };
    match graph::generate(object, output) {
        Ok(generated) => deliver(snapshot, generated),
        Err(why) => generation_failed(object, why),
    }
}

/// The output was deleted, or the sidecar never wrote it.
fn result_missing(snapshot: &Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let message = format!(
        "the profiling Job ended more than {} minutes ago, and ConfigMap {} does not have its result",
        RESULT_DEADLINE.as_mins(),
        names::output(&object.name)
    );
    // The sidecar delivers the result, so its log is the one to see.
    let (reason, problem) =
        ("ProfilingFailed", ReportedProblem { container: Some(COPIER.to_owned()), ..failed_job(object) });
    let detail = failure_detail(object, PROFILING, reason, &message, log(snapshot, Log::Sidecar));
    let step = PhaseStep { profiling_phase: None, reported: vec![problem], ..PhaseStep::to(Phase::Failed, object) };
    step.with_condition(PROFILING, Truth::False, reason, message.clone())
        .with_detail(detail)
        .with_warning(PROFILING_CHECK_FAILED, message)
}

/// Stores the generated graph in the request, and continues with it.
fn deliver(snapshot: &mut Snapshot, generated: graph::GeneratedGraph) -> PhaseStep {
    // If the spec has changed, it does not decide about a graph that was made from another spec.
    let apply = request::auto_apply(&snapshot.object) && request::acceptance(&snapshot.object) != Acceptance::Changed;
    let (phase, message) = if apply {
        (Phase::Deploying, GENERATED.to_owned())
    } else {
        (Phase::Ready, format!("Generated spec is available in annotation {GENERATED_GRAPH}"))
    };
    let mut step = PhaseStep::to(phase, &snapshot.object)
        .with_condition(PROFILING, Truth::True, "ProfilingCompleted", "Profiling job completed successfully")
        .with_condition(SPEC_GENERATED, Truth::True, "SpecGenerated", message)
        .with_event("SpecGenerated", GENERATED);
    if !generated.skipped.is_empty() {
        let text = format!(
            "Not created from the profiling output: {}. Only ConfigMaps are created; create the others yourself if \
             the graph needs them.",
            generated.skipped.join(", ")
        );
        step = step.with_warning("AdditionalResourcesSkipped", text);
    }
    let name = generated.name().to_owned();
    let graph::GeneratedGraph { graph, text, additional, pareto, .. } = generated;
    snapshot.object.annotations.insert(GENERATED_GRAPH.to_owned(), text);
    snapshot.object.annotations.insert(ADDITIONAL.to_owned(), additional);
    let status = enter_phase(snapshot, phase);
    status.profiling_phase = None;
    status.dgd_name = Some(name);
    let pareto = pareto.into_iter().map(|config| ParetoConfig { config }).collect();
    status.profiling_results = Some(ProfilingResults { selected_config: Some(graph), pareto });
    let next = if apply { deploying::step(snapshot) } else { deploying::await_approval(snapshot) };
    next.after(step)
}

/// The Job was deleted before it delivered. It is created again: only the profiler can report that there is no result.
fn gone(snapshot: &mut Snapshot) -> PhaseStep {
    let object = &snapshot.object;
    let name = names::profiling_job(&object.name);
    if snapshot.job.is_some() {
        let text = format!(
            "Job {name} exists and belongs to another owner. Profiling starts again once this Job is deleted: kubectl \
             delete job -n {} {name}",
            object.namespace
        );
        return PhaseStep { unwatched: true, ..initializing(object).with_wait(PROFILING, "Initializing", text) };
    }
    let known = legacy_texts::has_deleted_job(object, &name);
    profile_again(snapshot, "ProfilingJobDeleted", known, &format!("jobs.batch \"{name}\" not found"))
}

/// The Job is replaced: it does not create another pod.
fn pod_deleted(snapshot: &mut Snapshot) -> PhaseStep {
    let job = names::profiling_job(&snapshot.object.name);
    profile_again(snapshot, "ProfilingPodDeleted", false, &format!("the pod of Job {job} was deleted"))
}

fn initializing(object: &ObservedObject) -> PhaseStep {
    PhaseStep { profiling_phase: Some(ProfilingPhase::Initializing), ..PhaseStep::to(Phase::Profiling, object) }
}

/// Creates the Job again, with the spec that profiling began with.
fn profile_again(snapshot: &mut Snapshot, code: &'static str, known: bool, cause: &str) -> PhaseStep {
    let object = &snapshot.object;
    let step = initializing(object);
    if request::acceptance(object) == Acceptance::Changed {
        let text = format!(
            "{cause}, and the spec has changed since profiling started. Change the spec back to profile again, or delete \
             this DGDR and create a new one."
        );
        return step.with_wait(PROFILING, "Initializing", text);
    }
    let text = format!("{cause}; profiling starts again");
    let problem = reported::about(code, "Job", &names::profiling_job(&object.name));
    let known =
        known || reported::contains(object, &problem) || stored_reason(object, PROFILING) == Some("JobCreationFailed");
    let waiting = step.with_wait(PROFILING, "Initializing", text.clone()).with_problem(problem, code, known, text);
    // The Job cannot be created without an image.
    if request::image_or(&object.spec, snapshot.settings.default_image.as_deref()).is_none() {
        return waiting;
    }
    pending::expect_job(snapshot);
    let events = waiting.events.clone();
    PhaseStep { events, creation: Creation::Job, otherwise: Some(Box::new(waiting)), ..running(snapshot) }
}
