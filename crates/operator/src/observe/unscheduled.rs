//! Pods that no node takes.
//! Comes in: the status of a pod; goes out: the condition in which the scheduler says why.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

pub fn unscheduled(status: &PodStatus) -> Option<&PodCondition> {
    status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })
}
