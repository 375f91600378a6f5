//! What requests wait for: it is said while it lasts, with what to do, and they go on by themselves.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::{Play, object, wait};

use crate::scene::{GRAPH, PLANNER, Scene, condition, spec};

async fn pod_plays(scene: &Scene, play: Play) {
    let pod = scene.pod().await.name_any();
    scene.all::<Pod>().patch(&pod, &PatchParams::default(), &Patch::Merge(play.patch())).await.unwrap();
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_told_while_it_lasts() {
    let Some(scene) = Scene::played("pull", Play::PullError).await else { return };
    scene.ask(spec(json!({}))).await;
    scene.until_said("ImagePullBackOff").await;
    let shown = scene.shown("image-pull");
    let says = ["container profiler: ImagePullBackOff", "dynamo-planner:1.4.0", "Check the image's name and tag"];
    shown.assert("Profiling", "Profiling", &says, &["ImagePullFailed"]);
    pod_plays(&scene, Play::Hang).await;
    let healed = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    scene.until("the trouble is over", healed).await;
    scene.profiled().await;
    scene.until_phase("Deploying").await;
}

#[tokio::test]
async fn a_pod_that_no_node_takes_is_told_while_it_lasts() {
    let Some(scene) = Scene::open("nowhere").await else { return };
    let pool = scene.name().to_owned();
    let template = json!({ "spec": { "nodeSelector": { "example.com/pool": pool }, "containers": [] } });
    scene.ask(spec(json!({ "overrides": { "profilingJob": { "template": template } } }))).await;
    scene.until_said("has no node").await;
    let says = ["didn't match Pod's node affinity/selector", "spec.overrides.profilingJob", "create a new one"];
    scene.shown("unschedulable").assert("Profiling", "Profiling", &says, &["ProfilingJobCreated"]);
    let label = Patch::Merge(json!({ "metadata": { "labels": { "example.com/pool": pool } } }));
    let nodes: Api<Node> = Api::all(scene.admin.clone());
    nodes.patch("plain-0", &PatchParams::default(), &label).await.unwrap();
    let healed = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    scene.until("the trouble is over", healed).await;
}

#[tokio::test]
async fn a_missing_claim_for_the_model_is_awaited_and_named() {
    let Some(scene) = Scene::open("claim").await else { return };
    scene.ask(spec(json!({ "modelCache": { "pvcName": "models", "pvcModelPath": "qwen" } }))).await;
    scene.until_said("model cache PVC models not found").await;
    let says = ["Create the PersistentVolumeClaim, or correct spec.modelCache.pvcName"];
    scene.shown("claim-missing").assert("Pending", "Pending", &says, &["ValidationFailed"]);
    scene.claim("models").await;
    scene.until_phase("Profiling").await;
    let volumes = json!(scene.job().await.spec.unwrap().template.spec.unwrap().volumes);
    assert!(volumes.to_string().contains("\"claimName\":\"models\""), "{volumes}");
}

#[tokio::test]
async fn a_missing_token_is_mentioned_and_holds_nothing_up() {
    let Some(scene) = Scene::open("token").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.until_phase("Profiling").await;
    let shown = scene.shown("token-missing");
    shown.assert("Profiling", "Profiling", &[], &[]);
    let told = format!("There is no Secret hf-token-secret in namespace {}. Create it with key HF_TOKEN", scene.name());
    assert!(shown.description.contains(&told), "{}", shown.description);
    let token = "hf_a-secret-that-nobody-reads";
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hf-token-secret" },
        "stringData": { "HF_TOKEN": token } });
    scene.apply(secret).await;
    let all = "Every field of the spec is acted on.";
    let request = scene.until("it is there", |request| condition(request, "SpecAccepted")["message"] == all);
    assert!(!request.await.to_string().contains(token));
}

/// The kubelet says so; a played one does not look at Secrets.
#[tokio::test]
async fn a_secret_that_the_profiler_was_given_and_that_is_not_there_is_told_while_it_lasts() {
    let Some(scene) = Scene::played("secret", Play::Pending).await else { return };
    let reference = json!({ "secretKeyRef": { "name": "registry", "key": "token" } });
    let env = json!([{ "name": "REGISTRY_TOKEN", "valueFrom": reference }]);
    let template = json!({ "spec": { "containers": [{ "name": "profiler", "env": env }] } });
    scene.ask(spec(json!({ "overrides": { "profilingJob": { "template": template } } }))).await;
    let pod = scene.pod().await.name_any();
    let accepted = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.container_statuses.is_some());
    let pod = wait::until(scene.all::<Pod>(), &pod, "is accepted", wait::LIMIT, accepted).await.unwrap();
    let mut containers = json!(pod.status.as_ref().unwrap().container_statuses);
    for container in containers.as_array_mut().unwrap() {
        if container["name"] == "profiler" {
            container["state"] = json!({ "waiting": { "reason": "CreateContainerConfigError",
                "message": "secret \"registry\" not found" } });
        }
    }
    let patch = Patch::Merge(json!({ "status": { "containerStatuses": containers } }));
    scene.all::<Pod>().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    scene.until_said("CreateContainerConfigError").await;
    let says = ["secret \"registry\" not found", "Create the Secret or ConfigMap that it names"];
    scene.shown("secret-missing").assert("Profiling", "Profiling", &says, &["ProfilingJobCreated"]);
    pod_plays(&scene, Play::Hang).await;
    let healed = |request: &Value| condition(request, "Succeeded")["message"] == "Profiling is in progress";
    scene.until("the trouble is over", healed).await;
}

#[tokio::test]
async fn a_graph_of_somebody_elses_is_left_alone_until_it_is_gone() {
    let Some(scene) = Scene::open("foreign-graph").await else { return };
    let foreign: kube::api::DynamicObject = object(json!({ "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment", "metadata": { "name": GRAPH }, "spec": { "components": [] } }));
    let foreign = scene.graphs().create(&PostParams::default(), &foreign).await.unwrap();
    scene.ask(spec(json!({}))).await;
    scene.profiled().await;
    scene.until_said("was not made for this request").await;
    let says = ["DGD qwen-dgd exists", "kubectl delete dgd -n", "spec.overrides.dgd.metadata.name"];
    scene.shown("graph-taken").assert("Deploying", "Deploying", &says, &["DeploymentCreationFailed"]);
    assert_eq!(scene.graphs().get(GRAPH).await.unwrap().resource_version(), foreign.resource_version());
    scene.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    scene
        .until("the graph is made", |request| condition(request, "DeploymentReady")["reason"] == "DeploymentInProgress")
        .await;
    assert_ne!(scene.graph().await.uid(), foreign.uid());
}

/// A planner that mounts a stranger's configuration would scale by it.
#[tokio::test]
async fn a_graph_waits_for_the_config_maps_that_it_needs() {
    let Some(scene) = Scene::open("foreign-map").await else { return };
    scene.config_map(PLANNER, "planner_config.json", "not ours").await;
    scene.ask(spec(json!({}))).await;
    scene.profiled().await;
    scene.until_said("Failed to create ConfigMaps from profiling output").await;
    let says = [PLANNER, "The DGD is created as soon as", "remove it, or label it so"];
    scene.shown("config-map-taken").assert("Deploying", "Deploying", &says, &["ConfigMapCreationFailed"]);
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none(), "it would start with the wrong configuration");
    let map = scene.namespace.get::<ConfigMap>(PLANNER).await.unwrap().unwrap();
    assert_eq!(map["data"]["planner_config.json"], "not ours");
    scene.all::<ConfigMap>().delete(PLANNER, &DeleteParams::default()).await.unwrap();
    // No watch tells of what is not ours; it is looked at again within a minute, or as soon as the request changes.
    scene.change(json!({ "metadata": { "annotations": { "example.com/touched": "true" } } })).await;
    scene.graph().await;
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
    scene.shown("config-map-freed").assert("Deployed", "Deployed", &["Deployment is healthy"], &["DeploymentCreated"]);
}
