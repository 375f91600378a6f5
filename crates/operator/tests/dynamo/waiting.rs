//! Problems that block a request: they are reported with a remedy, and the request continues once they are resolved.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::{PodBehaviour, object, wait};

use crate::test_namespace::{GRAPH, JOB, PLANNER_CONFIG, TestNamespace, condition, spec};

async fn set_pod_play(ns: &TestNamespace, play: PodBehaviour) {
    let pod = ns.pod().await.name_any();
    ns.api::<Pod>().patch(&pod, &PatchParams::default(), &Patch::Merge(play.merge_patch())).await.unwrap();
}

#[tokio::test]
async fn image_pull_error_is_reported_until_resolved() {
    let Some(ns) = TestNamespace::with_pod_behaviour("pull", PodBehaviour::PullError).await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.wait_for_message("ImagePullBackOff").await;
    let output = ns.kubectl_output("image-pull");
    let messages =
        ["container profiler: ImagePullBackOff", "dynamo-planner:1.4.0", "Check the name and tag of the image"];
    output.assert_status("Profiling", "Profiling", &messages, &["ImagePullFailed"]);
    set_pod_play(&ns, PodBehaviour::Hang).await;
    let resolved = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    ns.wait_for("the problem is resolved", resolved).await;
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
}

#[tokio::test]
async fn unschedulable_pod_is_reported_until_resolved() {
    let Some(ns) = TestNamespace::open("nowhere").await else { return };
    let pool = ns.name().to_owned();
    let template = json!({ "spec": { "nodeSelector": { "example.com/pool": pool }, "containers": [] } });
    ns.apply_request(spec(json!({ "overrides": { "profilingJob": { "template": template } } }))).await;
    ns.wait_for_message("cannot be scheduled").await;
    let messages = ["didn't match Pod's node affinity/selector", "spec.overrides.profilingJob", "create a new one"];
    ns.kubectl_output("unschedulable").assert_status("Profiling", "Profiling", &messages, &["ProfilingJobCreated"]);
    let label = Patch::Merge(json!({ "metadata": { "labels": { "example.com/pool": pool } } }));
    let nodes: Api<Node> = Api::all(ns.admin.clone());
    nodes.patch("plain-0", &PatchParams::default(), &label).await.unwrap();
    let resolved = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    ns.wait_for("the problem is resolved", resolved).await;
}

#[tokio::test]
async fn missing_model_claim_is_reported_and_awaited() {
    let Some(ns) = TestNamespace::open("claim").await else { return };
    ns.apply_request(spec(json!({ "modelCache": { "pvcName": "models", "pvcModelPath": "qwen" } }))).await;
    ns.wait_for_message("model cache PVC models not found").await;
    let messages = ["Create the PersistentVolumeClaim, or correct spec.modelCache.pvcName"];
    ns.kubectl_output("claim-missing").assert_status("Pending", "Pending", &messages, &["ValidationFailed"]);
    ns.apply_claim("models").await;
    ns.wait_for_phase("Profiling").await;
    let volumes = json!(ns.job().await.spec.unwrap().template.spec.unwrap().volumes);
    assert!(volumes.to_string().contains("\"claimName\":\"models\""), "{volumes}");
}

#[tokio::test]
async fn missing_token_is_reported_without_blocking() {
    let Some(ns) = TestNamespace::open("token").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.wait_for_phase("Profiling").await;
    let output = ns.kubectl_output("token-missing");
    output.assert_status("Profiling", "Profiling", &[], &[]);
    let message =
        format!("There is no Secret hf-token-secret in namespace {}. Create the Secret with key HF_TOKEN", ns.name());
    assert!(output.description.contains(&message), "{}", output.description);
    let token = "hf_a-secret-that-nobody-reads";
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hf-token-secret" },
        "stringData": { "HF_TOKEN": token } });
    ns.apply(secret).await;
    let accepted = "Every field of the spec is acted on.";
    let request =
        ns.wait_for("the token is found", |request| condition(request, "SpecAccepted")["message"] == accepted);
    assert!(!request.await.to_string().contains(token));
}

/// The test sets the container's state, because the simulated kubelet does not read Secrets.
#[tokio::test]
async fn missing_profiler_secret_is_reported_until_resolved() {
    let Some(ns) = TestNamespace::with_pod_behaviour("secret", PodBehaviour::Pending).await else { return };
    let reference = json!({ "secretKeyRef": { "name": "registry", "key": "token" } });
    let env = json!([{ "name": "REGISTRY_TOKEN", "valueFrom": reference }]);
    let template = json!({ "spec": { "containers": [{ "name": "profiler", "env": env }] } });
    ns.apply_request(spec(json!({ "overrides": { "profilingJob": { "template": template } } }))).await;
    let pod = ns.pod().await.name_any();
    let has_statuses = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.container_statuses.is_some());
    let pod = wait::until(ns.api::<Pod>(), &pod, "has container statuses", wait::TIMEOUT, has_statuses).await.unwrap();
    let mut containers = json!(pod.status.as_ref().unwrap().container_statuses);
    for container in containers.as_array_mut().unwrap() {
        if container["name"] == "profiler" {
            container["state"] = json!({ "waiting": { "reason": "CreateContainerConfigError",
                "message": "secret \"registry\" not found" } });
        }
    }
    let patch = Patch::Merge(json!({ "status": { "containerStatuses": containers } }));
    ns.api::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    ns.wait_for_message("CreateContainerConfigError").await;
    let messages = ["secret \"registry\" not found", "Create the Secret or ConfigMap that the message names"];
    ns.kubectl_output("secret-missing").assert_status("Profiling", "Profiling", &messages, &["ProfilingJobCreated"]);
    set_pod_play(&ns, PodBehaviour::Hang).await;
    let resolved = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    ns.wait_for("the problem is resolved", resolved).await;
}

#[tokio::test]
async fn foreign_graph_is_kept_until_deleted() {
    let Some(ns) = TestNamespace::open("foreign-graph").await else { return };
    let foreign: kube::api::DynamicObject = object(json!({ "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment", "metadata": { "name": GRAPH }, "spec": { "components": [] } }));
    ns.graphs().create(&PostParams::default(), &foreign).await.unwrap();
    ns.apply_request(spec(json!({}))).await;
    ns.wait_for_message("was not created for this request").await;
    ns.kubectl_output("graph-taken-early").assert_status(
        "Pending",
        "Pending",
        &["DGD qwen-dgd exists", "spec.overrides.dgd.metadata.name"],
        &["ValidationFailed"],
    );
    assert!(ns.namespace.get::<Job>(JOB).await.unwrap().is_none(), "profiling would be in vain");
    ns.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    // Foreign objects are not watched. The operator checks again within a minute, or when the request changes.
    ns.patch_request(json!({ "metadata": { "annotations": { "example.com/touched": "true" } } })).await;
    ns.job().await;
    // Another graph may take the name during profiling.
    let foreign = ns.graphs().create(&PostParams::default(), &foreign).await.unwrap();
    ns.complete_profiling().await;
    ns.wait_for_message("was not created for this request").await;
    let messages = ["DGD qwen-dgd exists", "kubectl delete dgd -n", "spec.overrides.dgd.metadata.name"];
    ns.kubectl_output("graph-taken").assert_status("Deploying", "Deploying", &messages, &["DeploymentCreationFailed"]);
    assert_eq!(ns.graphs().get(GRAPH).await.unwrap().resource_version(), foreign.resource_version());
    ns.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    ns.wait_for("the graph is created", |request| {
        condition(request, "DeploymentReady")["reason"] == "DeploymentInProgress"
    })
    .await;
    assert_ne!(ns.graph().await.uid(), foreign.uid());
}

/// A planner that mounts a foreign ConfigMap would scale by its content.
#[tokio::test]
async fn graph_waits_for_its_config_maps() {
    let Some(ns) = TestNamespace::open("foreign-map").await else { return };
    ns.apply_config_map(PLANNER_CONFIG, "planner_config.json", "not ours").await;
    ns.apply_request(spec(json!({}))).await;
    ns.complete_profiling().await;
    ns.wait_for_message("Failed to create ConfigMaps from profiling output").await;
    let messages = [PLANNER_CONFIG, "The DGD is created once they can", "delete it, or add these labels"];
    ns.kubectl_output("config-map-taken").assert_status(
        "Deploying",
        "Deploying",
        &messages,
        &["ConfigMapCreationFailed"],
    );
    assert!(ns.graphs().get_opt(GRAPH).await.unwrap().is_none(), "the graph would start with the wrong configuration");
    let map = ns.namespace.get::<ConfigMap>(PLANNER_CONFIG).await.unwrap().unwrap();
    assert_eq!(map["data"]["planner_config.json"], "not ours");
    ns.api::<ConfigMap>().delete(PLANNER_CONFIG, &DeleteParams::default()).await.unwrap();
    // Foreign objects are not watched. The operator checks again within a minute, or when the request changes.
    ns.patch_request(json!({ "metadata": { "annotations": { "example.com/touched": "true" } } })).await;
    ns.graph().await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
    ns.kubectl_output("config-map-freed").assert_status(
        "Deployed",
        "Deployed",
        &["Deployment is healthy"],
        &["DeploymentCreated"],
    );
}
