//! Behaviour of simulated pods, set by annotations of a pod, or of a namespace for all pods that are created in it later. A
//! change of the annotation on a running pod changes its behaviour.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Annotation with the behaviour of a pod; see [`PodBehaviour`].
pub const BEHAVIOUR_ANNOTATION: &str = "steersman.dev/play";

/// Annotation with the start delay of a pod, as a Go duration (`5s`).
pub const START_DELAY_ANNOTATION: &str = "steersman.dev/play-delay";

/// Annotation with the termination message of a container that fails or crashes.
pub const TERMINATION_MESSAGE_ANNOTATION: &str = "steersman.dev/play-message";

/// Behaviour of a simulated pod after it is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodBehaviour {
    /// Starts and becomes Ready; a Job's pod then succeeds. This is the default.
    Run,
    /// Never starts: its containers stay in `ContainerCreating`.
    Pending,
    /// The image cannot be pulled: `ImagePullBackOff`.
    PullError,
    /// Containers exit repeatedly: `CrashLoopBackOff`.
    Crash,
    /// Runs but never becomes Ready.
    Unready,
    /// A Job's pod that ends with exit code 1.
    Fail,
    /// A Job's pod that runs for ever.
    Hang,
}

impl PodBehaviour {
    /// The value of the annotation.
    pub fn annotation_value(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pending => "pending",
            Self::PullError => "pull-error",
            Self::Crash => "crash",
            Self::Unready => "unready",
            Self::Fail => "fail",
            Self::Hang => "hang",
        }
    }

    /// A merge patch that sets this behaviour on a running pod or a node.
    pub fn merge_patch(self) -> Value {
        json!({ "metadata": { "annotations": { BEHAVIOUR_ANNOTATION: self.annotation_value() } } })
    }
}

/// Whether the condition Ready of the pod is true.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the pod receives requests: ready and not terminating.
pub fn is_serving(pod: &Pod) -> bool {
    is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}
