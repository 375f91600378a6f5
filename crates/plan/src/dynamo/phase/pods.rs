//! Renders the problems of pods that do not start or have failed, of the profiling Job and of the graph.

use steersman_api::dynamo::v1beta1::ReportedProblem;

use crate::dynamo::names;
use crate::dynamo::profile_job::{COPIER, PROFILER};
use crate::dynamo::snapshot::ObservedObject;
use crate::pods::{
    ContainerCause, ObservedContainer, ObservedPod, PodFailure, StartupProblem, Terminated, Unschedulable, Waiting,
    WaitingKind, last_log_line, problems,
};

const PULL_FOR_JOB: &str = "Check the name and tag of the image, and the image pull Secret. The pod starts once the \
                            image can be pulled. To use another image, delete this DGDR and create a new one.";
const PULL_FOR_GRAPH: &str = "Check the name and tag of the image in the DGD, and the image pull Secret. The pod \
                              starts once the image can be pulled.";
const CLAIM_MISSING: &str = "Create a PersistentVolumeClaim of that name; the pod is scheduled once it exists.";
const CLAIM_UNBOUND: &str = "The claim needs a volume, or a StorageClass that provides one; its events show the cause \
                             (kubectl describe pvc). The pod is scheduled once the claim is bound.";
const NO_NODE_FOR_GRAPH: &str = "Free or add the missing resources, or change the DGD.";
const NO_NODE_FOR_JOB: &str = "Free or add the missing resources. To use other nodes, delete this DGDR and create a new one \
                       with tolerations or nodeSelector in spec.overrides.profilingJob.template.spec.";
const CONFIG: &str = "Create the Secret or ConfigMap that the message names; the container starts once it exists.";
const CRASH: &str = "See the log of the container (kubectl logs --previous). Kubernetes restarts it after each crash.";

/// A problem with its text. The text names the pod, which no successor of it shares, and quotes other programs unchanged.
pub struct PodProblem {
    pub pod: String,
    /// Absent for the pod as a whole.
    container: Option<String>,
    pub is_image_pull: bool,
    /// The problem without the remedy, for events.
    pub message: String,
    remedy: &'static str,
}

impl PodProblem {
    pub fn sentence(&self) -> String {
        steersman_reconcile::join_sentences(&self.message, self.remedy)
    }

    pub fn container(&self) -> &str {
        self.container.as_deref().unwrap_or_default()
    }

    pub fn reported(&self) -> ReportedProblem {
        ReportedProblem {
            reason: "ImagePullFailed".to_owned(),
            kind: Some("Pod".to_owned()),
            name: Some(self.pod.clone()),
            container: self.container.clone(),
            ..ReportedProblem::default()
        }
    }
}

/// The problem of a Job's pods to report: the first one, but an image that cannot be pulled comes before all others, because its
/// container cannot report anything else.
pub fn of_job(pods: &[ObservedPod]) -> Option<PodProblem> {
    explain_all(pods, &FOR_JOB).min_by_key(|problem| !problem.is_image_pull)
}

/// Why pods of a graph do not start. Images that cannot be pulled come first.
pub fn of_graph(pods: &[ObservedPod]) -> Vec<PodProblem> {
    let mut found: Vec<PodProblem> = explain_all(pods, &FOR_GRAPH).collect();
    found.sort_by_key(|problem| !problem.is_image_pull);
    found
}

/// The next steps that differ between the pods of a Job and of a graph.
struct Remedies {
    pull: &'static str,
    no_node: &'static str,
}

const FOR_JOB: Remedies = Remedies { pull: PULL_FOR_JOB, no_node: NO_NODE_FOR_JOB };
const FOR_GRAPH: Remedies = Remedies { pull: PULL_FOR_GRAPH, no_node: NO_NODE_FOR_GRAPH };

fn explain_all(pods: &[ObservedPod], remedies: &'static Remedies) -> impl Iterator<Item = PodProblem> {
    problems(pods).filter_map(move |(pod, problem)| explain(&pod.name, problem, remedies))
}

fn explain(pod: &str, problem: StartupProblem, remedies: &Remedies) -> Option<PodProblem> {
    let is_image_pull = problem.is_waiting(WaitingKind::ImagePull);
    let (container, message, remedy) = match problem {
        StartupProblem::Unschedulable { kind, message } => {
            let remedy = match kind {
                Unschedulable::ClaimMissing => CLAIM_MISSING,
                Unschedulable::ClaimUnbound => CLAIM_UNBOUND,
                Unschedulable::NoNode => remedies.no_node,
            };
            (None, format!("pod {pod} cannot be scheduled: {message}"), remedy)
        }
        StartupProblem::Container { name, cause: ContainerCause::Waiting(kind, waiting), .. } => {
            let remedy = match kind {
                WaitingKind::ImagePull => remedies.pull,
                WaitingKind::ConfigError | WaitingKind::CreateError => CONFIG,
                WaitingKind::CrashLoop => CRASH,
                // The container is tried again and then waits for one of the other reasons.
                WaitingKind::StartError => return None,
            };
            let Waiting { reason, message } = waiting;
            let message = if message.is_empty() { message } else { format!(": {message}") };
            let message = format!("pod {pod} container {name}: {reason}{message}");
            (Some(name), message, remedy)
        }
        // The Job reports how its pods end, and the graph how its components do.
        StartupProblem::Container { cause: ContainerCause::Ended(_), .. } => return None,
    };
    Some(PodProblem { pod: pod.to_owned(), container, is_image_pull, message, remedy })
}

/// Why a running Job may yield no result: only the sidecar delivers it.
pub fn undelivered(object: &ObservedObject, pods: &[ObservedPod]) -> Option<String> {
    let (namespace, job) = (&object.namespace, names::profiling_job(&object.name));
    // The Job itself reports or replaces a pod that has ended as a whole.
    let pods = pods.iter().filter(|pod| pod.phase == "Running");
    pods.filter_map(|pod| Some((pod, named(pod, PROFILER)?, named(pod, COPIER)?))).find_map(
        |(pod, profiler, copier)| {
            let log = format!("kubectl logs -n {namespace} {} -c {COPIER}", pod.name);
            match (&profiler.terminated, &copier.terminated) {
                (None, Some(Terminated { exit_code, reason, message })) => Some(format!(
                    "pod {} container {COPIER} ended with exit code {exit_code}{} before the profiler, so the result \
                 cannot be delivered{}. See its log: {log}. To profile again without waiting for the profiler to end, \
                 delete the Job: kubectl delete job -n {namespace} {job}",
                    pod.name,
                    in_brackets(reason),
                    because(last_log_line(message))
                )),
                (Some(Terminated { exit_code, reason, .. }), None) => Some(format!(
                    "The profiler ended with exit code {exit_code}{}; container {COPIER} has not delivered its result \
                 yet. If this does not change, see the log: {log}",
                    in_brackets(reason)
                )),
                _ => None,
            }
        },
    )
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

/// The end of a failed pod, for the end of a message. Absent if neither the pod nor a container explains it.
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
