//! Reduces pods to the part that explains their problems, for the stores of every family.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;
use steersman_plan::pods::{ObservedContainer, ObservedPod, Terminated, Waiting};

/// The part of a pod that explains why it does not start or how it ended: about a hundredth of it.
pub fn observe(pod: &Pod) -> ObservedPod {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let init = status.init_container_statuses.iter().flatten().map(|status| container(pod, status, true));
    let main = status.container_statuses.iter().flatten().map(|status| container(pod, status, false));
    ObservedPod {
        name: pod.name_any(),
        phase: text(&status.phase),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        unscheduled: unscheduled(status),
        terminated: status.reason.clone().map(|reason| (reason, text(&status.message))),
        containers: init.chain(main).collect(),
    }
}

/// A pod that is held back on purpose (`SchedulingGated`) has no problem.
fn unscheduled(status: &PodStatus) -> Option<String> {
    let found = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    found.map(|condition| text(&condition.message))
}

fn container(pod: &Pod, status: &ContainerStatus, init: bool) -> ObservedContainer {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    ObservedContainer {
        name: status.name.clone(),
        image: image(pod, status, init),
        init,
        ready: status.ready,
        waiting: waiting.map(|waiting| Waiting { reason: text(&waiting.reason), message: text(&waiting.message) }),
        terminated: terminated(status.state.as_ref()),
        last_terminated: terminated(status.last_state.as_ref()),
    }
}

/// The image as the spec names it: the status may name the same image in another way.
fn image(pod: &Pod, status: &ContainerStatus, init: bool) -> String {
    let spec = pod.spec.as_ref();
    let list =
        spec.map(|spec| if init { spec.init_containers.as_deref().unwrap_or_default() } else { &spec.containers });
    let named = list.unwrap_or_default().iter().find(|container| container.name == status.name);
    named.and_then(|container| container.image.clone()).unwrap_or_else(|| status.image.clone())
}

fn terminated(state: Option<&ContainerState>) -> Option<Terminated> {
    let ended = state?.terminated.as_ref()?;
    Some(Terminated { exit_code: ended.exit_code, reason: text(&ended.reason), message: text(&ended.message) })
}

fn text(field: &Option<String>) -> String {
    field.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn observed(status: Value) -> ObservedPod {
        let pod = json!({
            "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "server", "image": "starter:1" }] },
            "status": status,
        });
        observe(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn gated_pod_is_not_unscheduled() {
        for (reason, expected) in [("Unschedulable", Some("0/1 nodes")), ("SchedulingGated", None)] {
            let pod = observed(json!({ "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": reason, "message": "0/1 nodes" }] }));
            assert_eq!((pod.phase.as_str(), pod.unscheduled.as_deref()), ("Pending", expected), "{reason}");
        }
    }

    #[test]
    fn container_keeps_image_of_spec_and_ends() {
        let ended = |code: i32| json!({ "terminated": { "exitCode": code, "reason": "Error" } });
        let pod = observed(json!({ "containerStatuses": [{ "name": "server", "image": "docker.io/starter:1",
            "imageID": "", "ready": false, "restartCount": 1, "state": ended(3), "lastState": ended(4) }] }));
        let container = &pod.containers[0];
        let code = |end: &Option<Terminated>| end.as_ref().map(|end| end.exit_code);
        assert_eq!((container.image.as_str(), container.init), ("starter:1", false));
        assert_eq!((code(&container.terminated), code(&container.last_terminated)), (Some(3), Some(4)));
    }
}
