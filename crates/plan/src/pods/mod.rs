//! Explains pods that do not start or have failed, for every family. The result is typed; each family renders its own text
//! from it, because the next step differs (change a spec, delete a request, wait).

mod foreign_text;

use serde::Serialize;

pub use foreign_text::last_log_line;
use foreign_text::{final_error, pull_cause, scheduling_cause, steady, unschedulable};

/// The part of a pod that explains why it does not start or how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedPod {
    pub name: String,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: String,
    /// Somebody has deleted it.
    pub deleting: bool,
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
    /// Image in the spec of the pod. The status may name the same image differently.
    pub image: String,
    pub init: bool,
    /// Whether the container is ready or, as an init container, has succeeded. Always false in snapshots of the family `dgdr`,
    /// which does not use it.
    pub ready: bool,
    pub waiting: Option<Waiting>,
    /// `state.terminated`: set if the container has ended and was not restarted.
    pub terminated: Option<Terminated>,
    /// `lastState.terminated`: the end of the previous run, if the container was restarted.
    pub last_terminated: Option<Terminated>,
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

/// A problem that keeps a pod from running. It does not name the pod: a successor with the same problem changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupProblem {
    Unschedulable { kind: Unschedulable, message: String },
    Container { name: String, image: String, init: bool, cause: ContainerCause },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unschedulable {
    ClaimMissing,
    ClaimUnbound,
    NoNode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCause {
    Waiting(WaitingKind, Waiting),
    /// The container ended, in this run or the one before, and has not become ready since.
    Ended(Terminated),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingKind {
    ImagePull,
    /// A Secret, a ConfigMap or a key of one is missing.
    ConfigError,
    /// The container runtime refuses to create the container.
    CreateError,
    CrashLoop,
    /// Any other reason that does not pass by itself.
    StartError,
}

impl StartupProblem {
    pub fn is_waiting(&self, kind: WaitingKind) -> bool {
        matches!(self, Self::Container { cause: ContainerCause::Waiting(found, _), .. } if *found == kind)
    }

    /// Removes counts, times and ids from the texts, so that they do not change while the problem lasts.
    pub fn steady(mut self) -> Self {
        match &mut self {
            Self::Unschedulable { message, .. } => *message = scheduling_cause(message),
            Self::Container { init, cause, .. } => cause.make_steady(*init),
        }
        self
    }
}

impl ContainerCause {
    fn make_steady(&mut self, init: bool) {
        match self {
            Self::Waiting(WaitingKind::ImagePull, Waiting { reason, message }) => {
                // The kubelet alternates between the attempt and the pause after it.
                if reason == "ErrImagePull" {
                    "ImagePullBackOff".clone_into(reason);
                }
                *message = pull_cause(message);
            }
            // The message names the pod and the length of the pause, and nothing else.
            Self::Waiting(WaitingKind::CrashLoop, waiting) => waiting.message.clear(),
            Self::Waiting(_, waiting) => waiting.message = steady(&waiting.message),
            // Init containers are ours and print no secrets. The message of any other container may hold one.
            Self::Ended(end) if init => end.message = final_error(&end.message),
            Self::Ended(end) => end.message.clear(),
        }
    }
}

/// All problems: pod by pod, and for each pod its node before its containers.
pub fn problems(pods: &[ObservedPod]) -> impl Iterator<Item = (&ObservedPod, StartupProblem)> {
    pods.iter().flat_map(|pod| {
        let unscheduled = pod
            .unscheduled
            .as_ref()
            .filter(|_| pod.phase == "Pending")
            .map(|message| StartupProblem::Unschedulable { kind: unschedulable(message), message: message.clone() });
        let containers = pod.containers.iter().filter(|container| !container.ready).flat_map(|container| {
            causes(container).map(|cause| StartupProblem::Container {
                name: container.name.clone(),
                image: container.image.clone(),
                init: container.init,
                cause,
            })
        });
        unscheduled.into_iter().chain(containers).map(move |problem| (pod, problem))
    })
}

/// An end comes before the reason for which the container waits: attempts to start it again alternate between several reasons.
/// Only the pull of an image comes before it, because its container cannot report anything else.
fn causes(container: &ObservedContainer) -> impl Iterator<Item = ContainerCause> {
    let waiting = container.waiting.as_ref().and_then(waiting_cause);
    let ended = container.terminated.as_ref().or(container.last_terminated.as_ref());
    let ended = ended.cloned().map(ContainerCause::Ended);
    let causes = match waiting {
        Some(ContainerCause::Waiting(WaitingKind::ImagePull, _)) => [waiting, ended],
        _ => [ended, waiting],
    };
    causes.into_iter().flatten()
}

/// Reasons of containers that are about to start.
const STARTING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

fn waiting_cause(waiting: &Waiting) -> Option<ContainerCause> {
    let kind = match waiting.reason.as_str() {
        reason if PULLS.contains(&reason) => WaitingKind::ImagePull,
        "CreateContainerConfigError" => WaitingKind::ConfigError,
        "CreateContainerError" => WaitingKind::CreateError,
        "CrashLoopBackOff" => WaitingKind::CrashLoop,
        reason if STARTING.contains(&reason) => return None,
        _ => WaitingKind::StartError,
    };
    Some(ContainerCause::Waiting(kind, waiting.clone()))
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

impl ObservedPod {
    /// Keeps the causes of failed pulls from an earlier state: between two attempts, older kubelets do not repeat them.
    pub fn carry_pull_causes(&mut self, before: &Self) {
        for container in &mut self.containers {
            let known =
                before.containers.iter().find(|known| known.name == container.name && known.image == container.image);
            let known = known.and_then(|known| known.waiting.as_ref());
            if let (Some(known), Some(waiting)) = (known, container.waiting.as_mut())
                && PULLS.contains(&known.reason.as_str())
                && PULLS.contains(&waiting.reason.as_str())
                && pull_cause(&waiting.message).is_empty()
            {
                waiting.clone_from(known);
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(reason: &str) -> ObservedPod {
        let container = ObservedContainer {
            waiting: Some(Waiting { reason: reason.to_owned(), message: "m".to_owned() }),
            ..ObservedContainer::default()
        };
        ObservedPod { phase: "Pending".to_owned(), containers: vec![container], ..ObservedPod::default() }
    }

    fn found(pod: &ObservedPod) -> Vec<StartupProblem> {
        problems(std::slice::from_ref(pod)).map(|(_, problem)| problem).collect()
    }

    #[test]
    fn starting_container_has_no_problem() {
        for reason in STARTING {
            assert_eq!(found(&pod(reason)), [], "{reason}");
        }
        assert!(found(&pod("RunContainerError"))[0].is_waiting(WaitingKind::StartError));
    }

    #[test]
    fn unscheduled_message_counts_while_pending() {
        let mut unscheduled = pod("");
        unscheduled.unscheduled = Some("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.".to_owned());
        assert!(matches!(found(&unscheduled)[..], [StartupProblem::Unschedulable { kind: Unschedulable::NoNode, .. }]));
        unscheduled.phase = "Running".to_owned();
        assert_eq!(found(&unscheduled), []);
    }
}
