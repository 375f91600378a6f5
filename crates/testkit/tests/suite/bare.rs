use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use steersman_testkit::{Flavour, shared, wait};

use crate::support::{full_cluster, gpu_deployment};

/// The full cluster is the clock: once its Deployment has a ReplicaSet, the bare one had the time for it too.
#[tokio::test]
async fn without_controllers_objects_stay_as_they_were_written() {
    let full = full_cluster!();
    let Some(bare) = shared(Flavour::Bare).await else { return };
    let names: Vec<_> = bare.description().processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["etcd", "kube-apiserver"]);

    let wish = gpu_deployment("server", 1, 1, "none");
    let still = bare.namespace("bare").await.unwrap();
    still.all::<Deployment>().create(&PostParams::default(), &wish).await.unwrap();
    let alive = full.namespace("alive").await.unwrap();
    alive.all::<Deployment>().create(&PostParams::default(), &wish).await.unwrap();
    let observed = |deployment: &Deployment| {
        deployment
            .status
            .as_ref()
            .is_some_and(|status| status.observed_generation == Some(1) && status.replicas == Some(1))
    };
    wait::until(alive.all::<Deployment>(), "server", "is observed", wait::LIMIT, observed).await.unwrap();

    let untouched = still.all::<Deployment>().get("server").await.unwrap();
    assert_eq!(untouched.status.and_then(|status| status.observed_generation), None);
    assert!(still.all::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn what_is_put_into_the_store_is_listed_and_watched_like_anything_else() {
    let Some(bare) = shared(Flavour::Bare).await else { return };
    let namespace = bare.namespace("stored").await.unwrap();
    let pod = |name: String| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace.name(), "uid": format!("uid-of-{name}") },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "podIP": "10.0.0.1" },
        })
    };
    let running = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.as_deref() == Some("10.0.0.1"));
    // Whoever begins to look while they come misses none.
    let looks = async {
        for number in (0..300).step_by(10) {
            let name = format!("pod-{number}");
            let seen = wait::until(namespace.all::<Pod>(), &name, "is there", wait::LIMIT, running).await.unwrap();
            assert!(seen.metadata.resource_version.is_some());
        }
    };
    let (stored, ()) = tokio::join!(bare.store("pods", (0..300).map(|number| pod(format!("pod-{number}")))), looks);
    stored.unwrap();
    assert_eq!(namespace.all::<Pod>().list(&ListParams::default()).await.unwrap().items.len(), 300);
}
