//! Texts about pods of the profiling Job and of the graph that do not start.

use steersman_api::dynamo::v1beta1::ReportedProblem;

use crate::dynamo::names;
use crate::dynamo::profile_job::{COPIER, PROFILER};
use crate::dynamo::snapshot::ObservedObject;
use crate::pods::{
    ObservedContainer, ObservedPod, PodCause, PodFailure, PodProblem, Terminated, Unschedulable, Waiting, explain,
    last_log_line, problems,
};

const PULL_FOR_JOB: &str = "Check the image's name and tag, and the Secret to pull it with: the pod goes on by itself once \
                            the image can be pulled. To use another image, delete this DGDR and create a new one.";
const PULL_FOR_GRAPH: &str = "Check the image's name and tag in the DGD, and the Secret to pull it with; the pod goes \
                              on by itself once the image can be pulled.";
const CLAIM_MISSING: &str = "Create a PersistentVolumeClaim of that name; the pod is scheduled once it is there.";
const CLAIM_UNBOUND: &str = "The events of the claim say why (kubectl describe pvc): it needs a volume, or a StorageClass that \
                             provides one. The pod is scheduled once the claim is bound.";
const NO_NODE: &str = "Free or add what is lacking. To place it elsewhere, delete this DGDR and create a new one with \
                       tolerations or nodeSelector in spec.overrides.profilingJob.";
const CONFIG: &str = "Create the Secret or ConfigMap that it names; the container starts once it is there.";
const CRASH: &str = "Look into its log; it is started again and again.";

/// A problem of a pod and its text.
pub struct Explained {
    problem: PodProblem,
    /// The problem, as events report it.
    pub message: String,
    remedy: &'static str,
}

impl Explained {
    pub fn sentence(&self) -> String {
        steersman_reconcile::join_sentences(&self.message, self.remedy)
    }

    pub fn is_image_pull(&self) -> bool {
        self.problem.is_image_pull()
    }

    pub fn pod(&self) -> &str {
        &self.problem.pod
    }

    pub fn container(&self) -> &str {
        self.problem.container.as_deref().unwrap_or_default()
    }

    pub fn reported(&self) -> ReportedProblem {
        ReportedProblem {
            reason: "ImagePullFailed".to_owned(),
            kind: Some("Pod".to_owned()),
            name: Some(self.problem.pod.clone()),
            container: self.problem.container.clone(),
            ..ReportedProblem::default()
        }
    }
}

/// The problem to report for the pods of a Job.
pub fn of_job(pods: &[ObservedPod]) -> Option<Explained> {
    // After another start error, the container is retried and then waits for one of the other reasons.
    let counts = |problem: &PodProblem| !matches!(problem.cause, PodCause::StartError(_));
    explain(pods, counts).map(|problem| explained(problem, PULL_FOR_JOB))
}

/// Containers of a graph whose image cannot be pulled.
pub fn pulls_of_graph(pods: &[ObservedPod]) -> Vec<Explained> {
    let pulls = problems(pods).filter(PodProblem::is_image_pull);
    pulls.map(|problem| explained(problem, PULL_FOR_GRAPH)).collect()
}

fn explained(problem: PodProblem, pull: &'static str) -> Explained {
    let place = match &problem.container {
        Some(container) => format!("pod {} container {container}", problem.pod),
        None => format!("pod {}", problem.pod),
    };
    let (message, remedy) = match &problem.cause {
        PodCause::Unschedulable(why, message) => {
            let remedy = match why {
                Unschedulable::ClaimMissing => CLAIM_MISSING,
                Unschedulable::ClaimUnbound => CLAIM_UNBOUND,
                Unschedulable::NoNode => NO_NODE,
            };
            (format!("{place} has no node: {message}"), remedy)
        }
        PodCause::ImagePull(Waiting { reason, message }) if message.is_empty() => (format!("{place}: {reason}"), pull),
        PodCause::ImagePull(Waiting { reason, message }) => (format!("{place}: {reason}: {message}"), pull),
        PodCause::CrashLoop(Waiting { reason, message }) => (format!("{place}: {reason}: {message}"), CRASH),
        PodCause::ConfigError(Waiting { reason, message }) | PodCause::StartError(Waiting { reason, message }) => {
            (format!("{place}: {reason}: {message}"), CONFIG)
        }
    };
    Explained { problem, message, remedy }
}

/// Why a running Job may yield no result: only the sidecar delivers it.
pub fn undelivered(object: &ObservedObject, pods: &[ObservedPod]) -> Option<String> {
    let (namespace, job) = (&object.namespace, names::profiling_job(&object.name));
    // The Job itself reports or replaces a pod that has ended as a whole.
    let pods = pods.iter().filter(|pod| pod.phase == "Running");
    pods.filter_map(|pod| Some((pod, named(pod, PROFILER)?, named(pod, COPIER)?))).find_map(|(pod, profiler, copier)| {
        let log = format!("kubectl logs -n {namespace} {} -c {COPIER}", pod.name);
        match (&profiler.terminated, &copier.terminated) {
            (None, Some(Terminated { exit_code, reason, message })) => Some(format!(
                "pod {} container {COPIER} ended with exit code {exit_code}{} before the profiler: what the profiler comes to \
                 cannot be delivered{}. Its log says why: {log}. To profile anew without waiting for the end, delete the \
                 Job: kubectl delete job -n {namespace} {job}",
                pod.name,
                in_brackets(reason),
                because(last_log_line(message))
            )),
            (Some(Terminated { exit_code, reason, .. }), None) => Some(format!(
                "The profiler has ended with exit code {exit_code}{}; container {COPIER} has not delivered its result yet. If \
                 this lasts, the log says why: {log}",
                in_brackets(reason)
            )),
            _ => None,
        }
    })
}

fn named<'a>(pod: &'a ObservedPod, name: &str) -> Option<&'a ObservedContainer> {
    pod.containers.iter().find(|container| container.name == name)
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {}", why.trim_end_matches('.')) }
}

fn in_brackets(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// The end of a failed pod, for the end of a message. None: neither the pod nor a container has a reason.
pub fn details(failure: &PodFailure) -> Option<String> {
    let message = |message: &str| if message.is_empty() { String::new() } else { format!(", Message: {message}") };
    let pod = failure.terminated.as_ref().map(|(reason, why)| format!(", Reason: {reason}{}", message(why)));
    let container = failure.container.as_ref().and_then(|container| {
        let name = &container.name;
        match (&container.terminated, &container.waiting) {
            (Some(Terminated { exit_code, reason, message: why }), _) => {
                let why = if name == COPIER { last_log_line(why) } else { why };
                Some(format!(", Container: {name}, ExitCode: {exit_code}, Reason: {reason}{}", message(why)))
            }
            (None, Some(Waiting { reason, message: why })) => {
                Some(format!(", Container: {name}, Waiting - Reason: {reason}, Message: {why}"))
            }
            (None, None) => None,
        }
    });
    (pod.is_some() || container.is_some())
        .then(|| format!("Pod: {}{}{}", failure.pod, pod.unwrap_or_default(), container.unwrap_or_default()))
}
