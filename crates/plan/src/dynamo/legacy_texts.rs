//! Reads messages of a stored status without `reported`: NVIDIA's operator and earlier versions of ours stored a
//! problem only as text. No other module of the family matches a text.

use steersman_api::meta::conditions;

use super::phase::{DEPLOYMENT, PROFILING, SUCCEEDED, VALIDATION};
use super::profile_job::COPIER;
use super::snapshot::ObservedObject;

fn message<'a>(object: &'a ObservedObject, type_: &str) -> Option<&'a str> {
    let status = object.status.as_ref().filter(|status| status.reported.is_empty())?;
    conditions::find(&status.conditions, type_).map(|known| known.message.as_str())
}

/// A failed write was reported in `Succeeded`, with the response of the API server.
pub fn has_failed_write(object: &ObservedObject, text: &str) -> bool {
    message(object, SUCCEEDED).is_some_and(|message| message.contains(text))
}

/// `Validation` held the text of all findings, truncated.
pub fn has_findings(object: &ObservedObject, text: &str) -> bool {
    message(object, VALIDATION).is_some_and(|message| message == conditions::as_stored(text))
}

/// `Profiling` named the pods of the Job with an image that cannot be pulled, `DeploymentReady` those of the graph.
pub fn has_image_pull(object: &ObservedObject, pod: &str, container: &str) -> bool {
    let place = format!("pod {pod} container {container}");
    [PROFILING, DEPLOYMENT].iter().any(|type_| message(object, type_).is_some_and(|message| message.contains(&place)))
}

/// `Profiling` reported the missing Job until another one could be created.
pub fn has_deleted_job(object: &ObservedObject, job: &str) -> bool {
    let text = format!("jobs.batch \"{job}\" not found; profiling begins anew");
    message(object, PROFILING).is_some_and(|message| message == text)
}

/// Whether the sidecar, and not the profiler, failed the Job. NVIDIA's operator wrote the same details of the pod.
pub fn has_failed_sidecar(object: &ObservedObject) -> bool {
    let container = format!("Container: {COPIER}");
    message(object, PROFILING).is_some_and(|message| message.contains(&container))
}
