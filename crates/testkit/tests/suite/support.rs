//! Manifests and accessors that several tests share.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::{Value, json};
use steersman_testkit::pod_behaviour::BEHAVIOUR_ANNOTATION;
pub use steersman_testkit::pod_behaviour::is_ready;
use steersman_testkit::{Cluster, Flavour, PodBehaviour, object, shared_cluster};

/// The full cluster of this run. Ends the test, after reporting a skip, if there is none.
macro_rules! full_cluster {
    () => {
        match $crate::support::full().await {
            Some(cluster) => cluster,
            None => return,
        }
    };
}
pub(crate) use full_cluster;

pub async fn full() -> Option<&'static Cluster> {
    shared_cluster(Flavour::Full).await
}

pub fn pod_spec() -> Value {
    json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.com/main:1" }] })
}

/// A pod with this behaviour and further annotations.
pub fn pod(name: &str, play: PodBehaviour, annotations: &[(&str, &str)]) -> Pod {
    let mut all = json!({ BEHAVIOUR_ANNOTATION: play.annotation_value() });
    for (key, value) in annotations {
        all[*key] = json!(value);
    }
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Always");
    object(json!({ "metadata": { "name": name, "annotations": all }, "spec": spec }))
}

pub fn job(name: &str, annotations: Value) -> Job {
    let template = json!({ "metadata": { "annotations": annotations }, "spec": pod_spec() });
    object(json!({ "metadata": { "name": name }, "spec": { "backoffLimit": 0, "template": template } }))
}

/// A Deployment whose pods request `gpus` and only run on nodes of `pool`.
pub fn gpu_deployment(name: &str, replicas: i32, gpus: u32, pool: &str) -> Deployment {
    let labels = json!({ "app": name });
    let container = json!({
        "name": "main",
        "image": "example.com/main:1",
        "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } },
    });
    let spec = json!({ "nodeSelector": { "steersman.dev/pool": pool }, "containers": [container] });
    object(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    }))
}

pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_).map(|condition| condition.status.as_str())
}

pub fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

pub fn first_container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// The reason for which the first container waits.
pub fn waiting_reason(pod: &Pod) -> Option<&str> {
    first_container(pod)?.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}
