//! How simulated pods behave. The annotation stands on a pod, or on a namespace for all pods created in it later; changing
//! it on a living pod changes what the pod does.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// What a pod does: see [`Play`].
pub const PLAY: &str = "steersman.dev/play";

/// How long a pod takes to start, as a Go duration (`5s`).
pub const PLAY_DELAY: &str = "steersman.dev/play-delay";

/// What the failing container of a Job's pod says as its termination message.
pub const PLAY_MESSAGE: &str = "steersman.dev/play-message";

/// What a simulated pod does once it is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// Starts and becomes Ready; a Job's pod then succeeds. This is what pods do that are not told anything.
    Run,
    /// Never starts: its containers stay in `ContainerCreating`.
    Pending,
    /// Its image cannot be pulled: `ImagePullBackOff`.
    PullError,
    /// Its containers exit again and again: `CrashLoopBackOff`.
    Crash,
    /// Runs but never becomes Ready.
    Unready,
    /// A Job's pod that ends with exit code 1.
    Fail,
    /// A Job's pod that runs for ever.
    Hang,
}

impl Play {
    /// The annotation's value.
    pub fn value(self) -> &'static str {
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

    /// A merge patch that makes a living pod or node do this.
    pub fn patch(self) -> Value {
        json!({ "metadata": { "annotations": { PLAY: self.value() } } })
    }
}

/// Whether the pod says so of itself.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|known| known.type_ == "Ready" && known.status == "True")
}

/// Whether requests go to it: ready, and not about to end.
pub fn is_serving(pod: &Pod) -> bool {
    is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}
