//! What pods say of themselves, for the records of every family.
//! Comes in: the status of a pod or of one of its containers; goes out: why there is no node, why a container waits and how it
//! ended.

use k8s_openapi::api::core::v1::{ContainerState, PodStatus};

/// What the scheduler says where no node takes the pod.
pub fn unscheduled(status: &PodStatus) -> Option<String> {
    let found = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    found.map(|condition| condition.message.clone().unwrap_or_default())
}

/// Reason and message.
pub fn waiting(state: Option<&ContainerState>) -> Option<(String, String)> {
    let waiting = state?.waiting.as_ref()?;
    Some((text(&waiting.reason), text(&waiting.message)))
}

/// Exit code, reason and message.
pub fn ended(state: Option<&ContainerState>) -> Option<(i32, String, String)> {
    let ended = state?.terminated.as_ref()?;
    Some((ended.exit_code, text(&ended.reason), text(&ended.message)))
}

fn text(given: &Option<String>) -> String {
    given.clone().unwrap_or_default()
}
