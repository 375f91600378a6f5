//! Requests that come to what they asked for.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use steersman_plan::dynamo::names;
use steersman_testkit::wait;

use crate::scene::{GRAPH, JOB, PLANNER, REQUEST, Scene, condition, spec};

#[tokio::test]
async fn a_request_is_profiled_step_by_step_and_its_graph_deployed() {
    let Some(scene) = Scene::open("happy").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    let request =
        scene.until("the profiler runs", |request| condition(request, "Profiling")["reason"] == "ProfilingRunning");
    assert_eq!(request.await["status"]["profilingJobName"], JOB);
    let shown = scene.shown("profiling-begun");
    shown.assert("Profiling", "Profiling", &["Profiling is in progress"], &["Initialized", "ProfilingJobCreated"]);
    assert_eq!((shown.column("MODEL"), shown.column("BACKEND")), ("Qwen/Qwen3-0.6B", "vllm"));
    assert_eq!((shown.column("PROFILING"), shown.column("DGD")), ("Initializing", ""));

    let steps = [
        ("Initializing", "Profiler job started"),
        ("SweepingPrefill", "Benchmarking prefill candidate 1/4: TP1 (1 GPUs)"),
        ("SweepingPrefill", "Benchmarking prefill candidate 2/4: TP2 (2 GPUs)"),
        ("SweepingDecode", "Benchmarking decode candidate 1/4: TP1 (1 GPUs)"),
        ("SelectingConfig", "Filtering results and selecting cost-efficient configuration"),
        ("BuildingCurves", "Building interpolation curves for planner integration"),
        ("GeneratingDGD", "Packaging data and generating final DGD YAML"),
    ];
    for (phase, message) in steps {
        profiler.is_heard(phase, message).await;
        let shown = scene.shown(&format!("profiling-{}", phase.to_lowercase()));
        shown.assert("Profiling", "Profiling", &[message], &[]);
        assert_eq!(shown.column("PROFILING"), phase);
    }
    profiler.succeeds().await;

    let request = scene.until_phase("Deploying").await;
    assert_eq!(request["status"]["dgdName"], GRAPH);
    assert_eq!(request["status"]["profilingPhase"], Value::Null, "cleared on success");
    assert_eq!(request["status"]["profilingResults"]["selectedConfig"]["metadata"]["name"], GRAPH);
    let graph = scene.graph().await;
    assert!(graph.owner_references().is_empty(), "it outlives the request");
    assert_eq!(graph.labels()[names::LABEL_NAME], REQUEST);
    scene.graph_is("pending", "Resources not ready: VllmDecodeWorker: 0/2 pods are ready").await;
    scene.until_said("0/2 pods are ready").await;
    let shown = scene.shown("deploying");
    let events = ["SpecGenerated", "DeploymentCreated"];
    shown.assert("Deploying", "Deploying", &["VllmDecodeWorker: 0/2 pods are ready"], &events);
    assert_eq!((shown.column("DGD"), shown.column("PROFILING")), (GRAPH, ""));
    let owned = wait::eventually("the planner's configuration goes with the graph", async || {
        let map = scene.namespace.get::<ConfigMap>(PLANNER).await.ok()??;
        (map["metadata"]["ownerReferences"][0]["uid"] == json!(graph.uid())).then_some(())
    });
    owned.await.unwrap();

    scene.graph_is("successful", "All resources are ready").await;
    let request = scene.until_phase("Deployed").await;
    assert_eq!(request["status"]["deploymentInfo"], json!({ "replicas": 3, "availableReplicas": 1 }));
    let told = ["DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready"];
    scene.shown("deployed").assert("Deployed", "Deployed", &["Deployment is healthy"], &told);
}

#[tokio::test]
async fn a_request_that_names_no_hardware_is_profiled_for_the_gpus_of_the_cluster() {
    let Some(scene) = Scene::open("gpus").await else { return };
    scene.ask(json!({ "model": "Qwen/Qwen3-0.6B", "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0" })).await;
    let request = scene.until_phase("Profiling").await;
    let hardware = &request["spec"]["hardware"];
    assert_eq!((&hardware["gpuSku"], &hardware["numGpusPerNode"]), (&json!("h100_sxm"), &json!(8)), "{hardware}");
    let job = json!(scene.job().await.spec.unwrap().template.spec.unwrap().containers[0].args);
    assert!(job[1].as_str().unwrap().contains("h100_sxm"), "the profiler is told: {job}");
    assert_eq!(condition(&request, "SpecAccepted")["status"], "True", "finding out is no change of its user's");
}

#[tokio::test]
async fn without_auto_apply_a_request_stops_at_ready_until_it_is_switched_on() {
    let Some(scene) = Scene::open("by-hand").await else { return };
    scene.ask(spec(json!({ "autoApply": false }))).await;
    scene.profiled().await;
    let request = scene.until_phase("Ready").await;
    assert_eq!(request["status"]["profilingResults"]["selectedConfig"]["metadata"]["name"], GRAPH);
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none(), "nobody asked for it");
    let shown = scene.shown("ready");
    let says = ["Profiling complete, spec available", "spec.autoApply", "nvidia.com/generated-dgd-spec"];
    shown.assert("Ready", "SpecGenerated", &says, &["SpecGenerated"]);
    assert_eq!(shown.column("DGD"), GRAPH, "the name that it will have");

    scene.change(json!({ "spec": { "autoApply": true } })).await;
    scene.until_phase("Deploying").await;
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
    let events = ["DeploymentCreated", "DeploymentReady"];
    scene.shown("activated").assert("Deployed", "Deployed", &["Deployment is healthy"], &events);
}

#[tokio::test]
async fn a_graph_that_degrades_is_told_of_and_heals() {
    let Some(scene) = Scene::open("degraded").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.deployed().await;
    scene.graph_is("pending", "Resources not ready: VllmDecodeWorker: 1/2 pods are ready").await;
    scene.until_phase("Deploying").await;
    let shown = scene.shown("degraded");
    shown.assert("Deploying", "Deploying", &["degraded", "1/2 pods are ready"], &["DeploymentDegraded"]);
    let request = scene.object("v1beta1").await;
    assert_eq!(condition(&request, "DeploymentReady")["reason"], "DeploymentDegraded");
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
    scene.shown("healed").assert("Deployed", "Deployed", &["Deployment is healthy"], &["DeploymentReady"]);
}

#[tokio::test]
async fn a_graph_that_is_deleted_ends_its_request_with_what_to_do() {
    let Some(scene) = Scene::open("graph-gone").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.deployed().await;
    scene.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    let request = scene.until_phase("Failed").await;
    assert_eq!((&request["status"]["dgdName"], &request["status"]["deploymentInfo"]), (&Value::Null, &Value::Null));
    let shown = scene.shown("graph-deleted");
    let says = ["DeploymentDeleted", "Deployment was deleted by user. Create a new DGDR to redeploy."];
    shown.assert(
        "Failed",
        "Failed",
        &says,
        &["DeploymentDeleted", "DGD qwen-dgd was deleted. DGDR will not recreate it."],
    );
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none());
}
