//! Why a pod does not get on.
//! Comes in: pods as seen; goes out: one sentence with what to do, or the words for how a pod ended.

use super::super::seen::PodSeen;
use super::PROFILER;

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
        crate::followed(&self.message, self.remedy)
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

fn is_pull(reason: &str) -> bool {
    matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull")
}

fn of_pod(pod: &PodSeen) -> Option<Trouble> {
    if let Some(message) = pod.unscheduled.as_ref().filter(|_| pod.phase == "Pending") {
        let claim = message.contains("persistentvolumeclaim");
        return Some(Trouble {
            kind: Kind::Unschedulable,
            place: format!("pod {}", pod.name),
            message: format!("pod {} has no node: {message}", pod.name),
            remedy: if claim {
                "Create the PersistentVolumeClaim or correct its name; the pod is scheduled once it is there."
            } else {
                "Free or add what is lacking. To place it elsewhere, delete this DGDR and create a new one with \
                 tolerations or nodeSelector in spec.overrides.profilingJob."
            },
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

/// How the profiler's container of a failed pod ended, for the end of a message.
pub fn details(pods: &[PodSeen]) -> Option<String> {
    let pod = pods.iter().find(|pod| pod.phase == "Failed")?;
    let container = pod.containers.iter().find(|container| container.name == PROFILER)?;
    match (&container.ended, &container.waiting) {
        (Some((code, reason, message)), _) => {
            let message = if message.is_empty() { String::new() } else { format!(", Message: {message}") };
            Some(format!("Pod: {}, Container: {PROFILER}, ExitCode: {code}, Reason: {reason}{message}", pod.name))
        }
        (None, Some((reason, message))) => {
            Some(format!("Pod: {}, Container: {PROFILER}, Waiting - Reason: {reason}, Message: {message}", pod.name))
        }
        (None, None) => None,
    }
}
