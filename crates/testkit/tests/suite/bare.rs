use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use steersman_testkit::{Flavour, shared_cluster, wait};

use crate::support::{full_cluster, gpu_deployment};

/// The full cluster serves as a clock: once its Deployment has a ReplicaSet, a controller of the bare cluster would have
/// had the time too.
#[tokio::test]
async fn bare_cluster_leaves_objects_unchanged() {
    let full = full_cluster!();
    let Some(bare) = shared_cluster(Flavour::Bare).await else { return };
    let names: Vec<_> = bare.description().processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["etcd", "kube-apiserver"]);

    let deployment = gpu_deployment("server", 1, 1, "none");
    let bare_namespace = bare.namespace("bare").await.unwrap();
    bare_namespace.api::<Deployment>().create(&PostParams::default(), &deployment).await.unwrap();
    let full_namespace = full.namespace("alive").await.unwrap();
    full_namespace.api::<Deployment>().create(&PostParams::default(), &deployment).await.unwrap();
    let is_observed = |deployment: &Deployment| {
        deployment
            .status
            .as_ref()
            .is_some_and(|status| status.observed_generation == Some(1) && status.replicas == Some(1))
    };
    wait::until(full_namespace.api::<Deployment>(), "server", "is observed", wait::TIMEOUT, is_observed).await.unwrap();

    let untouched = bare_namespace.api::<Deployment>().get("server").await.unwrap();
    assert_eq!(untouched.status.and_then(|status| status.observed_generation), None);
    assert!(bare_namespace.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn stored_objects_are_listed_and_watched() {
    let Some(bare) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = bare.namespace("stored").await.unwrap();
    let pod = |name: String| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace.name(), "uid": format!("uid-of-{name}") },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "podIP": "10.0.0.1" },
        })
    };
    let is_running = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.as_deref() == Some("10.0.0.1"));
    // A watch that starts while objects are written must not miss any.
    let watch_pods = async {
        for number in (0..300).step_by(10) {
            let name = format!("pod-{number}");
            let pod = wait::until(namespace.api::<Pod>(), &name, "is there", wait::TIMEOUT, is_running).await.unwrap();
            assert!(pod.metadata.resource_version.is_some());
        }
    };
    let (result, ()) =
        tokio::join!(bare.write_to_etcd("pods", (0..300).map(|number| pod(format!("pod-{number}")))), watch_pods);
    result.unwrap();
    assert_eq!(namespace.api::<Pod>().list(&ListParams::default()).await.unwrap().items.len(), 300);
}
