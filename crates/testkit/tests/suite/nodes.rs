use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use steersman_testkit::{Gpu, NodePool, wait};

use crate::support::{full_cluster, gpu_deployment, is_ready};

#[tokio::test]
async fn gpu_node_runs_only_pods_that_fit() {
    let cluster = full_cluster!();
    let pool = "fit-h100";
    cluster.add_nodes(&NodePool::with_gpus(Gpu::H100, 1).with_name(pool)).await.unwrap();
    let namespace = cluster.namespace("gpu-fit").await.unwrap();
    let deployments = namespace.api::<Deployment>();

    // The node has eight GPUs, and each pod needs four.
    deployments.create(&PostParams::default(), &gpu_deployment("server", 2, 4, pool)).await.unwrap();
    let has_ready_replicas = |expected: i32| {
        move |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.ready_replicas) == Some(expected)
        }
    };
    wait::until(deployments.clone(), "server", "has two ready pods", wait::TIMEOUT, has_ready_replicas(2))
        .await
        .unwrap();
    let pods = namespace.api::<Pod>();
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        assert!(is_ready(&pod));
        assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("fit-h100-0"));
        assert!(pod.status.as_ref().unwrap().pod_ip.is_some(), "a running pod has an address");
    }

    let three_replicas = serde_json::json!({ "spec": { "replicas": 3 } });
    deployments.patch("server", &PatchParams::default(), &Patch::Merge(three_replicas)).await.unwrap();
    let lacks_one_replica = |deployment: &Deployment| {
        deployment.status.as_ref().is_some_and(|status| status.replicas == Some(3) && status.ready_replicas == Some(2))
    };
    wait::until(deployments, "server", "has three pods, two of them ready", wait::TIMEOUT, lacks_one_replica)
        .await
        .unwrap();
    let has_no_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    let all = pods.list(&ListParams::default()).await.unwrap();
    let third = all.iter().find(|pod| has_no_node(pod)).expect("the third pod has no node");
    let name = third.metadata.name.clone().unwrap();
    let reports_missing_gpus = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .filter_map(|condition| condition.message.as_deref())
            .any(|text| text.contains("Insufficient nvidia.com/gpu"))
    };
    wait::until(pods, &name, "reports that GPUs are insufficient", wait::TIMEOUT, reports_missing_gpus).await.unwrap();
}

#[tokio::test]
async fn gpu_nodes_have_discovery_labels() {
    let cluster = full_cluster!();
    let nodes: Api<Node> = Api::all(cluster.admin().await.unwrap());
    for gpu in Gpu::ALL {
        let pool = NodePool::with_gpus(gpu, 1).with_name(&format!("table-{}", gpu.name));
        cluster.add_nodes(&pool).await.unwrap();
        let node = nodes.get(&format!("table-{}-0", gpu.name)).await.unwrap();
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["nvidia.com/gpu.product"], gpu.product);
        assert_eq!(labels["nvidia.com/gpu.count"], gpu.typical_count_per_node.to_string());
        assert_eq!(labels["nvidia.com/gpu.memory"], gpu.memory_mib.to_string());
        let status = node.status.unwrap();
        for resources in [status.capacity.unwrap(), status.allocatable.unwrap()] {
            assert_eq!(resources["nvidia.com/gpu"].0, gpu.typical_count_per_node.to_string(), "{}", gpu.name);
        }
    }
}
