//! Renders what keeps the pods of a server from starting: the codes of the status, and a text that stays the same for as long
//! as the problem does.

use steersman_api::llamastack::v1alpha2::PodProblem;
use steersman_reconcile::path;

use super::build::scaling;
use super::config::{External, INIT_MEMORY_LIMIT, INSTALL, external_providers};
use super::snapshot::{ObservedObject, Snapshot};
use super::stored_status;
use crate::pods::{
    ContainerCause, ObservedPod, StartupProblem, Terminated, Unschedulable, Waiting, WaitingKind, problems,
};

const CRASHES: &str = "CrashLoopBackOff";
const UNSCHEDULABLE: &str = "Unschedulable";
const OUT_OF_MEMORY: &str = "OOMKilled";

/// The first problem of the newest pod that has one: an older pod may have a template that was corrected since.
pub fn find(pods: &[ObservedPod]) -> Option<StartupProblem> {
    // The end of a container explains its crash loop. Without one there is nothing to report yet.
    let found = problems(pods).map(|(_, problem)| problem).find(|problem| !problem.is_waiting(WaitingKind::CrashLoop));
    found.map(StartupProblem::steady)
}

/// The problem of a server whose pods do not become ready. The stored one stays until the operator has observed the pods
/// after its start.
pub fn current(snapshot: &Snapshot) -> Option<PodProblem> {
    let live = snapshot.deployment.as_ref()?;
    if scaling::rolled_out(snapshot, live) {
        return None;
    }
    match &snapshot.pods {
        Some(pods) => find(pods).map(|problem| stored(&problem, &snapshot.object)),
        None => stored_status::pod_problem(snapshot),
    }
}

pub fn stored(problem: &StartupProblem, object: &ObservedObject) -> PodProblem {
    let (reason, container, exit_code) = match problem {
        StartupProblem::Unschedulable { .. } => (UNSCHEDULABLE, None, None),
        StartupProblem::Container { name, cause: ContainerCause::Waiting(_, waiting), .. } => {
            (waiting.reason.as_str(), Some(name), None)
        }
        StartupProblem::Container { name, cause: ContainerCause::Ended(end), .. } => {
            (CRASHES, Some(name), Some(end.exit_code))
        }
    };
    let (reason, container) = (reason.to_owned(), container.cloned());
    PodProblem { reason, container, exit_code, message: sentence(problem, object) }
}

/// The text names the problem, its place and the next step.
fn sentence(problem: &StartupProblem, object: &ObservedObject) -> String {
    match problem {
        StartupProblem::Unschedulable { kind: Unschedulable::NoNode, message } => format!(
            "{UNSCHEDULABLE}: no node fits the pod: {message}. Add nodes that fit, or lower {}",
            object.field_names().render(&path!(spec.workload.resources))
        ),
        StartupProblem::Unschedulable { message, .. } => format!(
            "{UNSCHEDULABLE}: {message}. Check the events of the PersistentVolumeClaim, and that a StorageClass can \
             provision it"
        ),
        StartupProblem::Container { name, image, init, cause } => {
            let kind = if *init { "init container" } else { "container" };
            match external(object, name).filter(|_| *init) {
                Some(external) => of_provider(&external, name, cause, object),
                None => {
                    let memory = object.field_names().render(&path!(spec.workload.resources.limits.memory));
                    of_container(&format!("{kind} {name}"), image, *init, cause, &log(object, name, !*init), &memory)
                }
            }
        }
    }
}

fn external(object: &ObservedObject, container: &str) -> Option<External> {
    let id = container.strip_prefix(INSTALL)?;
    external_providers(&object.spec).into_iter().find(|one| one.provider_id == id)
}

/// Provider, image, container, reason, resolution.
fn of_provider(external: &External, container: &str, cause: &ContainerCause, object: &ObservedObject) -> String {
    let External { provider_id, image, path, .. } = external;
    let path = object.field_names().render(&path.field("image"));
    let (why, resolution) = match cause {
        ContainerCause::Waiting(WaitingKind::ImagePull, Waiting { reason, message }) => (
            format!("Failed to pull provider image {image} ({reason}{})", colon(message)),
            format!("Correct {path}, or add a pull secret to the server's ServiceAccount"),
        ),
        ContainerCause::Waiting(_, Waiting { reason, message }) => (
            format!("{reason}{} with image {image}", colon(message)),
            format!("Use an image with /bin/sh and python3 in {path}"),
        ),
        ContainerCause::Ended(Terminated { exit_code, reason, .. }) if reason == OUT_OF_MEMORY => (
            format!("image {image} exceeded its memory limit of {INIT_MEMORY_LIMIT} (exit code {exit_code}, {reason})"),
            format!("No field changes this limit. Set {path} to an image with fewer or smaller packages"),
        ),
        ContainerCause::Ended(Terminated { exit_code, message, .. }) if message.is_empty() => (
            format!("image {image} exited with code {exit_code}"),
            format!("Read its log: {}", log(object, container, false)),
        ),
        ContainerCause::Ended(Terminated { exit_code, message, .. }) => (
            format!("{message} (exit code {exit_code}, image {image})"),
            format!("Fix the image and set {path} to it. Full log: {}", log(object, container, false)),
        ),
    };
    format!("external provider {provider_id:?}, init container {container}: {why}. Resolution: {resolution}")
}

/// `memory` is the path of the memory limit.
fn of_container(container: &str, image: &str, init: bool, cause: &ContainerCause, log: &str, memory: &str) -> String {
    match cause {
        ContainerCause::Waiting(kind, Waiting { reason, message }) => {
            let message = colon(message);
            match kind {
                WaitingKind::ImagePull => format!(
                    "{reason}: {container} cannot pull image {image}{message}. Check the name, the tag and the pull \
                     secrets; the pod starts as soon as the image can be pulled"
                ),
                WaitingKind::ConfigError => format!(
                    "{reason}: {container} cannot start{message}. Create the missing object or key; the pod starts as \
                     soon as it exists"
                ),
                WaitingKind::CreateError | WaitingKind::StartError | WaitingKind::CrashLoop => format!(
                    "{reason}: {container} cannot start{message}. Check image {image}, and the command, volume mounts \
                     and security context of the pod"
                ),
            }
        }
        ContainerCause::Ended(Terminated { exit_code, reason, .. }) if reason == OUT_OF_MEMORY => {
            // The resources of the spec are about the server's container alone.
            let remedy = if init {
                "No field changes the memory limit of this container. This is a bug in Steersman; report it with the \
                 spec of the object"
                    .to_owned()
            } else {
                format!("Raise {memory} or, if there is no limit, requests.memory")
            };
            format!("{CRASHES}: {container} ran out of memory (exit code {exit_code}, {reason}). {remedy}")
        }
        ContainerCause::Ended(Terminated { exit_code, reason, message }) => {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            format!(
                "{CRASHES}: {container} exited with code {exit_code}{reason}{}. Read its log: {log}",
                colon(message)
            )
        }
    }
}

fn colon(cause: &str) -> String {
    if cause.is_empty() { String::new() } else { format!(": {cause}") }
}

/// The command that shows the log. It selects by label, because names of pods change.
fn log(object: &ObservedObject, container: &str, previous: bool) -> String {
    let previous = if previous { " --previous" } else { "" };
    format!(
        "kubectl logs -n {} -l app=llama-stack,app.kubernetes.io/instance={} -c {container}{previous}",
        object.namespace, object.name
    )
}
