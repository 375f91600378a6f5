//! Explains pods that do not start or have failed, for every family. The result is typed; each family renders its own text
//! from it, because the next step differs (change a spec, delete a request, wait).

mod foreign_text;

use serde::Serialize;

pub use foreign_text::{is_about_claim, last_log_line};

/// One pod, as far as it can explain itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedPod {
    pub name: String,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: String,
    /// Why it has no node: the message of `PodScheduled` False.
    pub unscheduled: Option<String>,
    /// Why it was ended as a whole, such as `Evicted`: `status.reason` and `status.message`.
    pub terminated: Option<(String, String)>,
    /// Init containers first.
    pub containers: Vec<ObservedContainer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedContainer {
    pub name: String,
    pub image: String,
    pub waiting: Option<Waiting>,
    /// The current state, not that of an earlier run.
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Terminated {
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
}

/// What keeps a pod from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    pub pod: String,
    /// None: the pod as a whole.
    pub container: Option<String>,
    pub cause: PodCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCause {
    Unschedulable(Unschedulable, String),
    ImagePull(Waiting),
    /// A Secret, a ConfigMap or a key of one is missing.
    ConfigError(Waiting),
    CrashLoop(Waiting),
    /// Any other reason for which a container waits and which does not pass by itself.
    StartError(Waiting),
}

/// Why no node takes a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unschedulable {
    ClaimMissing,
    ClaimUnbound,
    NoNode,
}

impl PodProblem {
    pub fn is_image_pull(&self) -> bool {
        matches!(self.cause, PodCause::ImagePull(_))
    }
}

/// The most telling problem that `counts`: an image that cannot be pulled comes first, because its container cannot report
/// anything else. Otherwise the first one, in the order of the pods.
pub fn explain(pods: &[ObservedPod], counts: impl Fn(&PodProblem) -> bool) -> Option<PodProblem> {
    let mut found: Vec<PodProblem> = problems(pods).filter(counts).collect();
    let place = found.iter().position(PodProblem::is_image_pull).unwrap_or_default();
    (place < found.len()).then(|| found.swap_remove(place))
}

/// All problems: pod by pod, and for each pod its node before its containers.
pub fn problems(pods: &[ObservedPod]) -> impl Iterator<Item = PodProblem> {
    pods.iter().flat_map(|pod| {
        let unscheduled = pod.unscheduled.as_ref().filter(|_| pod.phase == "Pending").map(|message| PodProblem {
            pod: pod.name.clone(),
            container: None,
            cause: PodCause::Unschedulable(foreign_text::unschedulable(message), message.clone()),
        });
        let containers = pod.containers.iter().filter_map(|container| {
            let cause = cause(container.waiting.as_ref()?)?;
            Some(PodProblem { pod: pod.name.clone(), container: Some(container.name.clone()), cause })
        });
        unscheduled.into_iter().chain(containers)
    })
}

/// Reasons of containers that are about to start.
const STARTING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

fn cause(waiting: &Waiting) -> Option<PodCause> {
    let waits = waiting.clone();
    Some(match waiting.reason.as_str() {
        reason if is_pull(reason) => PodCause::ImagePull(waits),
        "CreateContainerConfigError" | "CreateContainerError" => PodCause::ConfigError(waits),
        "CrashLoopBackOff" => PodCause::CrashLoop(waits),
        reason if STARTING.contains(&reason) => return None,
        _ => PodCause::StartError(waits),
    })
}

/// How a failed pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    pub pod: String,
    /// Reason and message, if the pod was ended as a whole.
    pub terminated: Option<(String, String)>,
    /// The container to look at.
    pub container: Option<ObservedContainer>,
}

/// The failed pod that counts, with the container that explains it: `main` if that failed, else another one that did, else
/// `main`. A pod that was evicted has been replaced, so another failed pod says more.
pub fn failure(pods: &[ObservedPod], main: &str) -> Option<PodFailure> {
    let failed = || pods.iter().filter(|pod| pod.phase == "Failed");
    let pod = failed().find(|pod| pod.terminated.is_none()).or_else(|| failed().next())?;
    let has_failed =
        |container: &&ObservedContainer| container.terminated.as_ref().is_some_and(|end| end.exit_code != 0);
    let main = pod.containers.iter().find(|container| container.name == main);
    let container = main.filter(has_failed).or_else(|| pod.containers.iter().find(has_failed)).or(main);
    Some(PodFailure {
        pod: pod.name.clone(),
        terminated: pod.terminated.clone(),
        container: container.filter(|found| found.terminated.is_some() || found.waiting.is_some()).cloned(),
    })
}

/// Reasons of containers whose image cannot be pulled.
const PULLS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];

pub fn is_pull(reason: &str) -> bool {
    PULLS.contains(&reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, containers: &[(&str, &str)]) -> ObservedPod {
        let container = |(name, reason): &(&str, &str)| ObservedContainer {
            name: (*name).to_owned(),
            waiting: Some(Waiting { reason: (*reason).to_owned(), message: "m".to_owned() }),
            ..ObservedContainer::default()
        };
        ObservedPod {
            name: name.to_owned(),
            phase: "Pending".to_owned(),
            containers: containers.iter().map(container).collect(),
            ..ObservedPod::default()
        }
    }

    #[test]
    fn image_pull_is_explained_first() {
        let pods = [pod("a", &[("x", "CrashLoopBackOff")]), pod("b", &[("y", "ErrImagePull")])];
        let found = explain(&pods, |_| true).unwrap();
        assert_eq!((found.pod.as_str(), found.container.as_deref(), found.is_image_pull()), ("b", Some("y"), true));
        let found = explain(&pods, |problem| !problem.is_image_pull()).unwrap();
        assert!(matches!(found.cause, PodCause::CrashLoop(_)));
    }

    #[test]
    fn starting_container_has_no_problem() {
        for reason in ["", "ContainerCreating", "PodInitializing"] {
            assert_eq!(explain(&[pod("a", &[("x", reason)])], |_| true), None, "{reason}");
        }
        let other = explain(&[pod("a", &[("x", "RunContainerError")])], |_| true).unwrap();
        assert!(matches!(other.cause, PodCause::StartError(_)));
    }

    #[test]
    fn unscheduled_message_counts_while_pending() {
        let mut unscheduled = pod("a", &[]);
        unscheduled.unscheduled = Some("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.".to_owned());
        let found = explain(&[unscheduled.clone()], |_| true).unwrap();
        assert!(matches!(found.cause, PodCause::Unschedulable(Unschedulable::NoNode, _)));
        unscheduled.phase = "Running".to_owned();
        assert_eq!(explain(&[unscheduled], |_| true), None);
    }
}
