//! The phases of a request, from profiling to the deployed graph.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use steersman_plan::dynamo::names;
use steersman_testkit::{object, wait};

use crate::test_namespace::{GRAPH, JOB, PLANNER_CONFIG, REQUEST, TestNamespace, condition, spec};

#[tokio::test]
async fn request_is_profiled_and_graph_deployed() {
    let Some(ns) = TestNamespace::open("happy").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    let request = ns
        .wait_for("the profiler is running", |request| condition(request, "Profiling")["reason"] == "ProfilingRunning");
    assert_eq!(request.await["status"]["profilingJobName"], JOB);
    let output = ns.kubectl_output("profiling-begun");
    output.assert_status(
        "Profiling",
        "Profiling",
        &["Profiling is in progress"],
        &["Initialized", "ProfilingJobCreated"],
    );
    assert_eq!((output.column("MODEL"), output.column("BACKEND")), ("Qwen/Qwen3-0.6B", "vllm"));
    assert_eq!((output.column("PROFILING"), output.column("DGD")), ("Initializing", ""));

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
        profiler.report_and_wait(phase, message).await;
        let output = ns.kubectl_output(&format!("profiling-{}", phase.to_lowercase()));
        output.assert_status("Profiling", "Profiling", &[message], &[]);
        assert_eq!(output.column("PROFILING"), phase);
    }
    profiler.succeed().await;

    let request = ns.wait_for_phase("Deploying").await;
    assert_eq!(request["status"]["dgdName"], GRAPH);
    assert_eq!(request["status"]["profilingPhase"], Value::Null, "profilingPhase is cleared on success");
    assert_eq!(request["status"]["profilingResults"]["selectedConfig"]["metadata"]["name"], GRAPH);
    let graph = ns.graph().await;
    assert!(graph.owner_references().is_empty(), "the graph outlives the request");
    assert_eq!(graph.labels()[names::LABEL_NAME], REQUEST);
    ns.set_graph_state("pending", "Resources not ready: VllmDecodeWorker: 0/2 pods are ready").await;
    ns.wait_for_message("0/2 pods are ready").await;
    let output = ns.kubectl_output("deploying");
    let events = ["SpecGenerated", "DeploymentCreated"];
    output.assert_status("Deploying", "Deploying", &["VllmDecodeWorker: 0/2 pods are ready"], &events);
    assert_eq!((output.column("DGD"), output.column("PROFILING")), (GRAPH, ""));
    let owned = wait::eventually("the planner's ConfigMap is owned by the graph", async || {
        let map = ns.namespace.get::<ConfigMap>(PLANNER_CONFIG).await.ok()??;
        (map["metadata"]["ownerReferences"][0]["uid"] == json!(graph.uid())).then_some(())
    });
    owned.await.unwrap();

    ns.set_graph_state("successful", "All resources are ready").await;
    let request = ns.wait_for_phase("Deployed").await;
    assert_eq!(request["status"]["deploymentInfo"], json!({ "replicas": 3, "availableReplicas": 1 }));
    let events = ["DeploymentReady", "DynamoGraphDeployment qwen-dgd is ready"];
    ns.kubectl_output("deployed").assert_status("Deployed", "Deployed", &["Deployment is healthy"], &events);
}

#[tokio::test]
async fn request_without_hardware_discovers_cluster_gpus() {
    let Some(ns) = TestNamespace::open("gpus").await else { return };
    ns.apply_request(json!({ "model": "Qwen/Qwen3-0.6B", "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0" }))
        .await;
    let request = ns.wait_for_phase("Profiling").await;
    let hardware = &request["spec"]["hardware"];
    assert_eq!((&hardware["gpuSku"], &hardware["numGpusPerNode"]), (&json!("h100_sxm"), &json!(8)), "{hardware}");
    let job = json!(ns.job().await.spec.unwrap().template.spec.unwrap().containers[0].args);
    assert!(job[1].as_str().unwrap().contains("h100_sxm"), "the profiler gets the hardware: {job}");
    assert_eq!(
        condition(&request, "SpecAccepted")["status"],
        "True",
        "the discovery does not count as a change of the spec"
    );
}

#[tokio::test]
async fn disabled_auto_apply_stops_at_ready() {
    let Some(ns) = TestNamespace::open("by-hand").await else { return };
    ns.apply_request(spec(json!({ "autoApply": false }))).await;
    ns.complete_profiling().await;
    let request = ns.wait_for_phase("Ready").await;
    assert_eq!(request["status"]["profilingResults"]["selectedConfig"]["metadata"]["name"], GRAPH);
    assert!(ns.graphs().get_opt(GRAPH).await.unwrap().is_none(), "the graph is not created");
    let output = ns.kubectl_output("ready");
    let messages = ["Profiling complete, spec available", "spec.autoApply", "nvidia.com/generated-dgd-spec"];
    output.assert_status("Ready", "SpecGenerated", &messages, &["SpecGenerated"]);
    assert_eq!(output.column("DGD"), GRAPH, "the name that the graph will have");

    ns.patch_request(json!({ "spec": { "autoApply": true } })).await;
    ns.wait_for_phase("Deploying").await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
    let events = ["DeploymentCreated", "DeploymentReady"];
    ns.kubectl_output("activated").assert_status("Deployed", "Deployed", &["Deployment is healthy"], &events);
}

/// Only a thorough search deploys graphs of its own.
#[tokio::test]
async fn rapid_profiler_may_only_deliver_its_result() {
    for (strategy, deploys) in [("rapid", false), ("thorough", true)] {
        let Some(ns) = TestNamespace::open(&format!("rights-{strategy}")).await else { return };
        ns.apply_request(spec(json!({ "searchStrategy": strategy }))).await;
        ns.job().await;
        let account = ns.env.cluster.service_account(ns.name(), names::SERVICE_ACCOUNT).await.unwrap();
        wait::until_allowed(&account, "update", "", "configmaps", Some(ns.name())).await.unwrap();
        if deploys {
            wait::until_allowed(&account, "create", "", "pods", Some(ns.name())).await.unwrap();
        }
        let container = json!({ "name": "main", "image": "i" });
        let pod: Pod = object(json!({ "metadata": { "name": "own" }, "spec": { "containers": [container] } }));
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let created = ns.namespace.api_as::<Pod>(&account).create(&dry_run, &pod).await;
        let denied = created.is_err_and(|error| error.to_string().contains("forbidden"));
        assert_eq!(denied, !deploys, "{strategy}");
    }
}

/// Document 001, item 2.8. The admission webhook judges each change.
#[tokio::test]
async fn deploying_request_without_auto_apply_returns_to_ready() {
    let Some(ns) = TestNamespace::open("undecided").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_profiling().await;
    let is_followed = |request: &Value| condition(request, "DeploymentReady")["reason"] == "DeploymentInProgress";
    ns.wait_for("the graph is followed", is_followed).await;
    let graph = ns.graph().await.uid();
    let both = Patch::Merge(json!({ "spec": { "autoApply": false, "model": "Qwen/Qwen3-32B" } }));
    let rejection = ns.requests().patch(REQUEST, &PatchParams::default(), &both).await.unwrap_err().to_string();
    assert!(rejection.contains("In this phase only spec.autoApply can be changed"), "{rejection}");
    ns.patch_request(json!({ "spec": { "autoApply": false } })).await;
    let request = ns.wait_for_phase("Ready").await;
    let succeeded = condition(&request, "Succeeded");
    assert_eq!((&succeeded["status"], &succeeded["reason"]), (&json!("True"), &json!("SpecGenerated")));
    let messages =
        ["Profiling complete, spec available", "DGD qwen-dgd exists; set spec.autoApply to true to follow its state"];
    ns.kubectl_output("undecided").assert_status("Ready", "SpecGenerated", &messages, &["DeploymentCreated"]);
    // The graph belongs to its user meanwhile.
    ns.set_graph_state("successful", "").await;
    ns.patch_request(json!({ "metadata": { "annotations": { "example.com/touched": "true" } } })).await;
    assert_eq!(ns.wait_for_phase("Ready").await["status"]["phase"], "Ready");
    assert_eq!(ns.graph().await.uid(), graph, "the graph stays");

    ns.patch_request(json!({ "spec": { "autoApply": true } })).await;
    ns.wait_for_phase("Deployed").await;
    assert_eq!(ns.graph().await.uid(), graph);
    let rejection = Patch::Merge(json!({ "spec": { "autoApply": false } }));
    let rejection = ns.requests().patch(REQUEST, &PatchParams::default(), &rejection).await.unwrap_err().to_string();
    assert!(rejection.contains("phase \"Deployed\""), "{rejection}");
}

#[tokio::test]
async fn degraded_graph_is_reported_and_recovers() {
    let Some(ns) = TestNamespace::open("degraded").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_deployment().await;
    ns.set_graph_state("pending", "Resources not ready: VllmDecodeWorker: 1/2 pods are ready").await;
    ns.wait_for_phase("Deploying").await;
    let output = ns.kubectl_output("degraded");
    output.assert_status("Deploying", "Deploying", &["degraded", "1/2 pods are ready"], &["DeploymentDegraded"]);
    let request = ns.object("v1beta1").await;
    assert_eq!(condition(&request, "DeploymentReady")["reason"], "DeploymentDegraded");
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
    ns.kubectl_output("healed").assert_status("Deployed", "Deployed", &["Deployment is healthy"], &["DeploymentReady"]);
}

#[tokio::test]
async fn deleted_graph_fails_its_request() {
    let Some(ns) = TestNamespace::open("graph-gone").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_deployment().await;
    ns.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    let request = ns.wait_for_phase("Failed").await;
    assert_eq!((&request["status"]["dgdName"], &request["status"]["deploymentInfo"]), (&Value::Null, &Value::Null));
    let output = ns.kubectl_output("graph-deleted");
    let messages = ["DeploymentDeleted", "Deployment was deleted by user. Create a new DGDR to redeploy."];
    output.assert_status(
        "Failed",
        "Failed",
        &messages,
        &["DeploymentDeleted", "DGD qwen-dgd was deleted. DGDR will not recreate it."],
    );
    assert!(ns.graphs().get_opt(GRAPH).await.unwrap().is_none());
}
