//! Why a pod does not get on.
//! Comes in: pods as seen; goes out: one sentence with what to do, or the words for how a pod ended.

use super::super::names;
use super::super::seen::{ContainerSeen, ObjectSeen, PodSeen};
use super::{COPIER, PROFILER};
use crate::pods::{is_about_claim, is_pull};

/// What holds a pod up, while it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: Kind,
    /// What stands still: told once for the same, whatever the words around it.
    pub place: String,
    /// What it is, in the words that events use.
    pub message: String,
    pub remedy: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ImagePull,
    Config,
    Unschedulable,
    Crash,
}

impl Trouble {
    pub fn sentence(&self) -> String {
        steersman_reconcile::join_sentences(&self.message, self.remedy)
    }
}

/// Of the first pod that has any, images first: a pod that lacks its image tells nothing else.
pub fn find(pods: &[PodSeen]) -> Option<Trouble> {
    images(pods, PULLS_OF_JOB).into_iter().next().or_else(|| pods.iter().find_map(of_pod))
}

const PULLS_OF_JOB: &str = "Check the image's name and tag, and the Secret to pull it with: the pod goes on by itself once \
                            the image can be pulled. To use another image, delete this DGDR and create a new one.";
/// What can be changed in a graph that is there.
pub const PULLS_OF_GRAPH: &str = "Check the image's name and tag in the DGD, and the Secret to pull it with; the pod goes \
                                  on by itself once the image can be pulled.";

/// Every container that cannot get its image.
pub fn images(pods: &[PodSeen], remedy: &'static str) -> Vec<Trouble> {
    let waiting = pods.iter().flat_map(|pod| {
        pod.containers.iter().filter_map(move |container| Some((pod, container, container.waiting.as_ref()?)))
    });
    waiting
        .filter(|(_, _, (reason, _))| is_pull(reason))
        .map(|(pod, container, (reason, message))| Trouble {
            kind: Kind::ImagePull,
            place: format!("pod {} container {}", pod.name, container.name),
            message: if message.is_empty() {
                format!("pod {} container {}: {reason}", pod.name, container.name)
            } else {
                format!("pod {} container {}: {reason}: {message}", pod.name, container.name)
            },
            remedy,
        })
        .collect()
}

const CLAIM_MISSING: &str = "Create a PersistentVolumeClaim of that name; the pod is scheduled once it is there.";
const CLAIM_UNBOUND: &str = "The events of the claim say why (kubectl describe pvc): it needs a volume, or a StorageClass that \
                             provides one. The pod is scheduled once the claim is bound.";
const NO_NODE: &str = "Free or add what is lacking. To place it elsewhere, delete this DGDR and create a new one with \
                       tolerations or nodeSelector in spec.overrides.profilingJob.";

fn of_pod(pod: &PodSeen) -> Option<Trouble> {
    if let Some(message) = pod.unscheduled.as_ref().filter(|_| pod.phase == "Pending") {
        let remedy = match is_about_claim(message) {
            true if message.contains("not found") => CLAIM_MISSING,
            true => CLAIM_UNBOUND,
            false => NO_NODE,
        };
        return Some(Trouble {
            kind: Kind::Unschedulable,
            place: format!("pod {}", pod.name),
            message: format!("pod {} has no node: {message}", pod.name),
            remedy,
        });
    }
    pod.containers.iter().find_map(|container| {
        let (reason, message) = container.waiting.as_ref()?;
        let (kind, remedy) = match reason.as_str() {
            "CreateContainerConfigError" | "CreateContainerError" => {
                (Kind::Config, "Create the Secret or ConfigMap that it names; the container starts once it is there.")
            }
            "CrashLoopBackOff" => (Kind::Crash, "Look into its log; it is started again and again."),
            _ => return None,
        };
        let place = format!("pod {} container {}", pod.name, container.name);
        Some(Trouble { kind, message: format!("{place}: {reason}: {message}"), place, remedy })
    })
}

/// Why nothing may come of a profiler that works or has ended, while its Job still runs: only the sidecar delivers.
pub fn undelivered(object: &ObjectSeen, pods: &[PodSeen]) -> Option<String> {
    let (namespace, job) = (&object.namespace, names::profiling_job(&object.name));
    // A pod that has ended as a whole is the Job's to judge, or to replace.
    let pods = pods.iter().filter(|pod| pod.phase == "Running");
    pods.filter_map(|pod| Some((pod, named(pod, PROFILER)?, named(pod, COPIER)?))).find_map(|(pod, profiler, copier)| {
        let log = format!("kubectl logs -n {namespace} {} -c {COPIER}", pod.name);
        match (&profiler.ended, &copier.ended) {
            (None, Some((code, reason, why))) => Some(format!(
                "pod {} container {COPIER} ended with exit code {code}{} before the profiler: what the profiler comes to \
                 cannot be delivered{}. Its log says why: {log}. To profile anew without waiting for the end, delete the \
                 Job: kubectl delete job -n {namespace} {job}",
                pod.name,
                in_brackets(reason),
                because(last_line(why))
            )),
            (Some((code, reason, _)), None) => Some(format!(
                "The profiler has ended with exit code {code}{}; container {COPIER} has not delivered its result yet. If \
                 this lasts, the log says why: {log}",
                in_brackets(reason)
            )),
            _ => None,
        }
    })
}

/// Of the sidecar the end of its log is known, and only its last line is for people.
fn last_line(log: &str) -> &str {
    let line = log.trim_end().lines().next_back().unwrap_or_default();
    line.strip_prefix("steersman: ").unwrap_or(line)
}

fn named<'a>(pod: &'a PodSeen, name: &str) -> Option<&'a ContainerSeen> {
    pod.containers.iter().find(|container| container.name == name)
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {}", why.trim_end_matches('.')) }
}

fn in_brackets(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// How [`details`] names the sidecar.
pub const OF_COPIER: &str = "Container: output-copier";

/// How a failed pod ended, for the end of a message: by the profiler, by another of its containers, or as a whole.
pub fn details(pods: &[PodSeen]) -> Option<String> {
    let failed = || pods.iter().filter(|pod| pod.phase == "Failed");
    // One that was evicted has been replaced, so that the other is why the Job has failed.
    let pod = failed().find(|pod| pod.ended.is_none()).or_else(|| failed().next())?;
    let message = |message: &str| if message.is_empty() { String::new() } else { format!(", Message: {message}") };
    let whole = pod.ended.as_ref().map(|(reason, why)| format!(", Reason: {reason}{}", message(why)));
    let ill = |container: &&ContainerSeen| container.ended.as_ref().is_some_and(|(code, ..)| *code != 0);
    let profiler = named(pod, PROFILER);
    let container = profiler.filter(ill).or_else(|| pod.containers.iter().find(ill)).or(profiler);
    let how = container.and_then(|container| match (&container.ended, &container.waiting) {
        (Some((code, reason, why)), _) => {
            let why = if container.name == COPIER { last_line(why) } else { why };
            Some(format!(", Container: {}, ExitCode: {code}, Reason: {reason}{}", container.name, message(why)))
        }
        (None, Some((reason, why))) => {
            Some(format!(", Container: {}, Waiting - Reason: {reason}, Message: {why}", container.name))
        }
        (None, None) => None,
    });
    (whole.is_some() || how.is_some())
        .then(|| format!("Pod: {}{}{}", pod.name, whole.unwrap_or_default(), how.unwrap_or_default()))
}
