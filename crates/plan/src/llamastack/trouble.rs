//! Why pods do not get ready.
//! Comes in: the pods of one object as seen; goes out: what holds the newest of them up, in words that stay the same for as
//! long as it does: whatever counts, or names a time or a pod, is left out.

use std::collections::BTreeSet;

use steersman_api::llamastack::v1alpha2::PodProblem;

use super::config::{External, external_providers};
use super::snapshot::{ObservedContainer, ObservedObject, ObservedPod};
use crate::pods::{is_about_claim, is_pull};

const INSTALL: &str = "install-provider-";
const LONGEST: usize = 600;
const ID_DIGITS: usize = 32;

/// While a container has one of these it is only on its way.
const ON_THE_WAY: [&str; 3] = ["ContainerCreating", "PodInitializing", CRASHES];
const CRASHES: &str = "CrashLoopBackOff";
const NO_IMAGE: &str = "ImagePullBackOff";
const UNSCHEDULABLE: &str = "Unschedulable";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    NoNode { why: String },
    Container { name: String, image: String, init: bool, what: What },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    NoImage {
        reason: String,
        cause: String,
    },
    NoStart {
        reason: String,
        cause: String,
    },
    /// `said` is empty but for containers that run before the server: those are ours, and say nothing secret.
    Ended {
        code: i32,
        reason: String,
        said: String,
    },
}

/// Of the first pod that has any.
pub fn find(pods: &[ObservedPod]) -> Option<Trouble> {
    pods.iter().find_map(|pod| {
        let no_node = pod.unscheduled.as_deref().map(|why| Trouble::NoNode { why: unscheduled(why) });
        no_node.or_else(|| pod.containers.iter().find_map(of_container))
    })
}

/// Between two attempts, older kubelets do not say why an image cannot be had: what they said at the last attempt stands.
pub fn carried(before: &ObservedPod, mut now: ObservedPod) -> ObservedPod {
    for container in &mut now.containers {
        let known =
            before.containers.iter().find(|known| known.name == container.name && known.image == container.image);
        let known = known.and_then(|known| known.waiting.as_ref());
        if let (Some(known), Some(waiting)) = (known, container.waiting.as_mut())
            && is_pull(&known.0)
            && is_pull(&waiting.0)
            && pull_cause(&waiting.1).is_empty()
        {
            waiting.clone_from(known);
        }
    }
    now
}

fn of_container(container: &ObservedContainer) -> Option<Trouble> {
    if container.ready {
        return None;
    }
    let waiting = container.waiting.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
    let what = match (waiting, &container.ended) {
        (Some((reason, message)), _) if is_pull(reason) => {
            // Attempt and pause take turns.
            let reason = if reason == "ErrImagePull" { NO_IMAGE } else { reason };
            What::NoImage { reason: reason.to_owned(), cause: pull_cause(message) }
        }
        // Also while it runs again: until it is ready, it has not got any further.
        (_, Some((code, reason, message))) => {
            let said = if container.init { last_words(message) } else { String::new() };
            What::Ended { code: *code, reason: reason.clone(), said }
        }
        (Some((reason, message)), None) if !ON_THE_WAY.contains(&reason) && !reason.is_empty() => {
            What::NoStart { reason: reason.to_owned(), cause: steady(message) }
        }
        _ => return None,
    };
    Some(Trouble::Container {
        name: container.name.clone(),
        image: container.image.clone(),
        init: container.init,
        what,
    })
}

/// `Back-off pulling image "x": ErrImagePull: not found` and `not found` are the same.
fn pull_cause(message: &str) -> String {
    let cause = match message.strip_prefix("Back-off pulling image ") {
        Some(rest) => rest.split_once(": ").map_or("", |(_, cause)| cause),
        None => message,
    };
    steady(cause.strip_prefix("ErrImagePull: ").unwrap_or(cause))
}

/// What an installation says last is why it failed; all before may be what pip tells of its work.
fn last_words(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let ours =
        |line: &&str| ["external provider ", "steersman: ", "ERROR: "].iter().any(|start| line.starts_with(start));
    let start = lines.iter().rposition(ours).unwrap_or(lines.len().saturating_sub(1));
    steady(&lines[start..].join(" "))
}

/// Nodes come and go: how many lack what is left out.
fn unscheduled(message: &str) -> String {
    let now = message.split(" preemption:").next().unwrap_or_default();
    let Some((_, lacks)) = now.split_once("nodes are available: ") else { return steady(now) };
    let kinds: BTreeSet<&str> = lacks
        .trim_end_matches('.')
        .split(", ")
        .map(|lack| lack.trim_start_matches(|c: char| c.is_ascii_digit()).trim())
        .filter(|lack| !lack.is_empty())
        .collect();
    steady(&kinds.into_iter().collect::<Vec<_>>().join(", "))
}

/// Without signatures of addresses, ids of containers and line breaks, and not too long.
fn steady(message: &str) -> String {
    let word = |word: &str| {
        let word = match word.split_once('?') {
            Some((address, _)) if address.contains("://") => address,
            _ => word,
        };
        let digits = |part: &&str| part.len() >= ID_DIGITS && part.chars().all(|c| c.is_ascii_hexdigit());
        let id = word.split(|c: char| !c.is_ascii_alphanumeric()).find(digits);
        // The digest of an image is part of its name.
        id.filter(|_| !word.contains("sha256:")).map_or_else(|| word.to_owned(), |id| word.replace(id, "…"))
    };
    let told = message.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let told = told.trim_end_matches(['.', ':', ' ']);
    match told.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &told[..end]),
        None => told.to_owned(),
    }
}

impl Trouble {
    /// As the status stores it.
    pub fn problem(&self, object: &ObservedObject) -> PodProblem {
        let (reason, container, exit_code) = match self {
            Self::NoNode { .. } => (UNSCHEDULABLE, None, None),
            Self::Container { name, what, .. } => match what {
                What::NoImage { reason, .. } | What::NoStart { reason, .. } => (reason.as_str(), Some(name), None),
                What::Ended { code, .. } => (CRASHES, Some(name), Some(*code)),
            },
        };
        let (reason, container) = (reason.to_owned(), container.cloned());
        PodProblem { reason, container, exit_code, message: self.sentence(object) }
    }

    /// What is wrong, where, and what to do next.
    pub fn sentence(&self, object: &ObservedObject) -> String {
        match self {
            Self::NoNode { why } if is_about_claim(why) => format!(
                "{UNSCHEDULABLE}: {why}. Look at the events of the claim; it may need a StorageClass that can provide it"
            ),
            Self::NoNode { why } => format!(
                "{UNSCHEDULABLE}: no node takes the pod: {why}. Add such nodes, or ask for less in spec.workload.resources"
            ),
            Self::Container { name, image, init, what } => {
                let kind = if *init { "init container" } else { "container" };
                match external(object, name).filter(|_| *init) {
                    Some(external) => of_provider(&external, name, what, object),
                    None => what.sentence(&format!("{kind} {name}"), image, &log(object, name, !*init)),
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
fn of_provider(external: &External, container: &str, what: &What, object: &ObservedObject) -> String {
    let External { provider_id, image, path, .. } = external;
    let (why, resolution) = match what {
        What::NoImage { reason, cause } => (
            format!("Failed to pull provider image {image} ({reason}{})", colon(cause)),
            format!("Correct {path}.image, or give the server's ServiceAccount a Secret to pull it with"),
        ),
        What::NoStart { reason, cause } => (
            format!("{reason}{} with image {image}", colon(cause)),
            format!("Use an image with /bin/sh and python3 in {path}.image"),
        ),
        What::Ended { code, said, .. } if said.is_empty() => (
            format!("image {image} ended with exit code {code}"),
            format!("Its log says why: {}", log(object, container, false)),
        ),
        What::Ended { code, said, .. } => (
            format!("{said} (exit code {code}, image {image})"),
            format!("Correct the image and name it in {path}.image; the whole log: {}", log(object, container, false)),
        ),
    };
    format!("external provider {provider_id:?}, init container {container}: {why}. Resolution: {resolution}")
}

impl What {
    fn sentence(&self, whose: &str, image: &str, log: &str) -> String {
        match self {
            Self::NoImage { reason, cause } => format!(
                "{reason}: {whose} cannot get image {image}{}. Check the name and the tag, and the Secrets to pull it with; \
                 the pod goes on by itself once the image is there",
                colon(cause)
            ),
            Self::NoStart { reason, cause } if reason == "CreateContainerConfigError" => format!(
                "{reason}: {whose} cannot start{}. Create what is missing; the pod goes on by itself once it is there",
                colon(cause)
            ),
            Self::NoStart { reason, cause } => format!(
                "{reason}: {whose} cannot start{}. Check the image {image} and the command, mounts and security of the pod",
                colon(cause)
            ),
            Self::Ended { code, reason, .. } if reason == "OOMKilled" => format!(
                "{CRASHES}: {whose} needs more memory than its limit (exit code {code}, {reason}). Raise \
                 spec.workload.resources.limits.memory"
            ),
            Self::Ended { code, reason, said } => {
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                format!(
                    "{CRASHES}: {whose} ended with exit code {code}{reason}{}. Its log says why: {log}",
                    colon(said)
                )
            }
        }
    }
}

fn colon(cause: &str) -> String {
    if cause.is_empty() { String::new() } else { format!(": {cause}") }
}

/// By label: names of pods change.
fn log(object: &ObservedObject, container: &str, previous: bool) -> String {
    let previous = if previous { " --previous" } else { "" };
    format!(
        "kubectl logs -n {} -l app=llama-stack,app.kubernetes.io/instance={} -c {container}{previous}",
        object.namespace, object.name
    )
}
