//! Reads start, end and volume of the profiler's container from the relay's own pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProfilerState {
    /// The API server has not answered yet.
    #[default]
    Unknown,
    /// The account may not read its pod, or the pod has no such container.
    Hidden,
    Observed(ProfilerContainer),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfilerContainer {
    pub started: Option<Timestamp>,
    pub ended: Option<ContainerEnd>,
    /// The folder outlives the pod, so that an earlier profiler may have written to it.
    pub lasting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEnd {
    pub code: i32,
    pub reason: String,
}

impl ProfilerState {
    pub fn ended(&self) -> Option<&ContainerEnd> {
        if let Self::Observed(life) = self { life.ended.as_ref() } else { None }
    }

    pub fn lasting(&self) -> bool {
        matches!(self, Self::Observed(ProfilerContainer { lasting: true, .. }))
    }
}

pub fn profiler(pod: &Pod, container: &str, folder: &str) -> ProfilerState {
    let spec = pod.spec.iter().flat_map(|spec| &spec.containers).find(|known| known.name == container);
    let Some(spec) = spec else { return ProfilerState::Hidden };
    let mount = spec.volume_mounts.iter().flatten().find(|mount| mount.mount_path.trim_end_matches('/') == folder);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volume = mount.and_then(|mount| volumes.into_iter().find(|volume| volume.name == mount.name));
    let lasting = volume.is_none_or(|volume| volume.empty_dir.is_none());
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let state = statuses.into_iter().find(|status| status.name == container).and_then(|status| status.state.clone());
    let (started, ended) = match state {
        Some(ContainerState { terminated: Some(end), .. }) => {
            let reason = end.reason.unwrap_or_default();
            (end.started_at, Some(ContainerEnd { code: end.exit_code, reason }))
        }
        Some(ContainerState { running: Some(running), .. }) => (running.started_at, None),
        _ => (None, None),
    };
    ProfilerState::Observed(ProfilerContainer { started: started.map(|time| time.0), ended, lasting })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(volume: Value, state: Value) -> ProfilerState {
        let pod = json!({
            "spec": {
                "containers": [
                    { "name": "output-copier" },
                    { "name": "profiler", "volumeMounts": [{ "name": "out", "mountPath": "/data/" }] },
                ],
                "volumes": [{ "name": "other", "emptyDir": {} }, volume],
            },
            "status": { "containerStatuses": [{ "name": "profiler", "state": state, "image": "", "imageID": "",
                "ready": false, "restartCount": 0 }] },
        });
        profiler(&serde_json::from_value(pod).unwrap(), "profiler", "/data")
    }

    #[test]
    fn profiler_life_is_read_from_pod() {
        let own = json!({ "name": "out", "emptyDir": {} });
        let claim = json!({ "name": "out", "persistentVolumeClaim": { "claimName": "c" } });
        let began = "2026-11-16T06:00:00Z";
        let running = ProfilerContainer { started: Some(began.parse().unwrap()), ended: None, lasting: false };
        let ended = Some(ContainerEnd { code: 137, reason: "OOMKilled".into() });
        for (volume, state, wanted) in [
            (&own, json!({ "waiting": { "reason": "PodInitializing" } }), ProfilerContainer::default()),
            (&own, json!({ "running": { "startedAt": began } }), running.clone()),
            (
                &claim,
                json!({ "running": { "startedAt": began } }),
                ProfilerContainer { lasting: true, ..running.clone() },
            ),
            (
                &own,
                json!({ "terminated": { "startedAt": began, "exitCode": 137, "reason": "OOMKilled" } }),
                ProfilerContainer { ended, ..running },
            ),
        ] {
            assert_eq!(seen(volume.clone(), state), ProfilerState::Observed(wanted));
        }
    }

    #[test]
    fn missing_container_is_hidden_unknown_volume_lasting() {
        assert_eq!(profiler(&Pod::default(), "profiler", "/data"), ProfilerState::Hidden);
        assert!(seen(json!({ "name": "another" }), json!({})).lasting());
    }
}
