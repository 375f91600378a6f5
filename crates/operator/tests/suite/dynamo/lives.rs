//! The whole lives of requests, by single passes.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use steersman::relay::PROFILING_ROLE;

use super::*;

#[tokio::test]
async fn a_request_is_profiled_deployed_and_watched_over() {
    let Some(scene) = Scene::new("happy", spec(json!({}))).await else { return };
    scene.settle().await;
    let status = scene.status().await;
    assert_eq!((&status["phase"], &status["profilingJobName"]), (&json!("Profiling"), &json!("profile-qwen")));
    assert_eq!(status["profilingPhase"], "Initializing");
    let request = scene.request().await;
    let job = scene.job().await;
    assert_eq!(job.owner_references()[0].uid, request.uid().unwrap());
    let account = scene.namespace.all::<ServiceAccount>().get(names::SERVICE_ACCOUNT).await.unwrap();
    let binding = scene.namespace.all::<RoleBinding>().get(names::ROLE_BINDING).await.unwrap();
    assert!(account.owner_references().is_empty() && binding.owner_references().is_empty(), "all requests share them");
    assert_eq!(binding.role_ref.name, PROFILING_ROLE);
    scene.assert_silent().await;

    scene.deliver(json!({ "phase": "SweepingPrefill", "message": "Sweeping parallelization strategies" })).await;
    scene.settle().await;
    let status = scene.status().await;
    assert_eq!(status["profilingPhase"], "SweepingPrefill");
    let said = ("SweepingPrefill".to_owned(), "Sweeping parallelization strategies".to_owned());
    assert_eq!(condition(&status, "Profiling"), said);

    scene.profiled().await;
    let status = scene.status().await;
    assert_eq!((&status["phase"], &status["dgdName"]), (&json!("Deploying"), &json!(GRAPH)));
    assert_eq!(status["profilingPhase"], Value::Null, "cleared on success");
    let graph = scene.graphs().get(GRAPH).await.unwrap();
    assert!(graph.owner_references().is_empty(), "it outlives the request");
    assert_eq!(graph.labels()[names::LABEL_NAME], NAME);
    assert_eq!(graph.annotations()[names::REQUEST_UID], request.uid().unwrap());
    let config = scene.namespace.all::<ConfigMap>().get("planner-config-1a2b").await.unwrap();
    assert_eq!(Some(&config.owner_references()[0].uid), graph.metadata.uid.as_ref(), "it goes with the graph");
    assert_eq!(scene.request().await.annotations()[names::GENERATED_GRAPH], "", "created, and seen");
    scene.assert_silent().await;

    scene.graph_is("successful").await;
    scene.settle().await;
    assert_eq!(scene.says().await, ("Deployed".into(), "Deployment is healthy".into()));
    assert_eq!(scene.status().await["deploymentInfo"], json!({ "replicas": 3, "availableReplicas": 1 }));
    scene.graph_is("pending").await;
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Deploying");
    assert_eq!(condition(&scene.status().await, "DeploymentReady").0, "DeploymentDegraded");
    scene.graph_is("successful").await;
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Deployed");
    scene.assert_silent().await;

    scene.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Failed");
    assert!(said.contains("Deployment was deleted by user"), "{said}");
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none(), "it is not made again");
}

#[tokio::test]
async fn without_auto_apply_the_graph_waits_until_it_is_asked_for() {
    let Some(scene) = Scene::new("by-hand", spec(json!({ "autoApply": false }))).await else { return };
    scene.profiled().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Ready");
    assert!(said.starts_with("Profiling complete, spec available: set spec.autoApply to true"), "{said}");
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none());
    assert!(scene.request().await.annotations()[names::GENERATED_GRAPH].contains("VllmDecodeWorker"));
    scene.assert_silent().await;

    scene.change(json!({ "spec": { "autoApply": true } })).await;
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Deploying");
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_some());
}

#[tokio::test]
async fn the_profilers_verdict_ends_a_request_and_says_why() {
    let Some(scene) = Scene::new("verdict", spec(json!({}))).await else { return };
    scene.settle().await;
    let verdict =
        json!({ "phase": "SelectingConfig", "profiler_status": "failed", "profiler_error": "no plan meets TTFT" });
    scene.deliver(verdict).await;
    scene.job_ends().await;
    scene.settle().await;
    let status = scene.status().await;
    assert_eq!(status["phase"], "Failed");
    let said = ("SelectingConfigFailed".to_owned(), "profiling failed: no plan meets TTFT".to_owned());
    assert_eq!(condition(&status, "Profiling"), said);
    assert_eq!(condition(&status, "Succeeded").0, "Failed");
    scene.assert_silent().await;
}

#[tokio::test]
async fn a_failed_job_is_told_with_how_its_pod_ended() {
    let Some(scene) = Scene::new("job-failed", spec(json!({}))).await else { return };
    scene.settle().await;
    let ended = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    a_pod(&scene.namespace, "Failed", ended).await;
    scene.job_fails("Job has reached the specified backoff limit").await;
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Failed");
    assert!(said.contains("Job has reached the specified backoff limit. Details: Pod: profile-qwen-x"), "{said}");
    assert!(said.contains("ExitCode: 137, Reason: OOMKilled"), "{said}");
}

#[tokio::test]
async fn a_job_that_somebody_deletes_is_made_again() {
    let Some(scene) = Scene::new("job-gone", spec(json!({}))).await else { return };
    scene.settle().await;
    let before = scene.job().await.uid();
    scene.namespace.all::<Job>().delete("profile-qwen", &DeleteParams::background()).await.unwrap();
    scene.settle().await;
    assert_ne!(scene.job().await.uid(), before);
    assert_eq!(scene.says().await.0, "Profiling");
}

#[tokio::test]
async fn a_foreign_graph_of_the_same_name_is_left_alone() {
    let Some(scene) = Scene::new("foreign", spec(json!({}))).await else { return };
    let foreign: DynamicObject = object(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": { "name": GRAPH }, "spec": { "components": [] } }));
    let foreign = scene.graphs().create(&PostParams::default(), &foreign).await.unwrap();
    scene.profiled().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Deploying");
    assert!(said.contains("DGD qwen-dgd exists and was not made for this request; it is left as it is"), "{said}");
    assert_eq!(scene.graphs().get(GRAPH).await.unwrap().resource_version(), foreign.resource_version());
    scene.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.graphs().get(GRAPH).await.unwrap().labels()[names::LABEL_NAME], NAME);
}

#[tokio::test]
async fn gpus_are_found_by_the_labels_of_nodes_and_written_to_the_request() {
    let Some(scene) = Scene::new("gpus", spec(json!({ "hardware": {} }))).await else { return };
    let _turn = without_gpus(&scene.admin).await;
    scene.settle().await;
    let (phase, said) = scene.says().await;
    assert_eq!(phase, "Pending");
    assert!(said.contains("GPU hardware info required but auto-discovery failed"), "{said}");
    let node: Node = object(json!({ "metadata": { "name": "gpu-0", "labels": { "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771" } } }));
    Api::all(scene.admin.clone()).create(&PostParams::default(), &node).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.says().await.0, "Profiling");
    let hardware = scene.request().await.data["spec"]["hardware"].clone();
    assert_eq!((&hardware["gpuSku"], &hardware["totalGpus"]), (&json!("h200_sxm"), &json!(8)));
    let args = scene.job().await.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
    assert!(args[1].contains("h200_sxm"), "the profiler is told: {args:?}");
}

#[tokio::test]
async fn a_change_while_profiling_is_refused_until_it_is_taken_back() {
    let Some(scene) = Scene::new("changed", spec(json!({}))).await else { return };
    scene.settle().await;
    let job = scene.job().await.uid();
    scene.change(json!({ "spec": { "model": "other" } })).await;
    scene.settle().await;
    let status = scene.status().await;
    assert_eq!(
        (status["phase"].clone(), condition(&status, "SpecAccepted").0),
        (json!("Profiling"), "SpecChangeRejected".into())
    );
    scene.change(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await;
    scene.profiled().await;
    assert_eq!(scene.says().await.0, "Deploying");
    assert_eq!(scene.job().await.uid(), job);
}

#[tokio::test]
async fn the_finalizer_of_an_earlier_operator_does_not_hold_a_request_back() {
    let Some(scene) = Scene::new("finalizer", spec(json!({}))).await else { return };
    scene.change(json!({ "metadata": { "finalizers": ["nvidia.com/finalizer"] } })).await;
    scene.requests().delete(NAME, &DeleteParams::default()).await.unwrap();
    let passed = pass_once(scene.cluster, scene.admin.clone(), scene.namespace.name()).await.unwrap();
    assert_eq!(passed, ReconcileOutcome::Deleting);
    assert!(scene.requests().get_opt(NAME).await.unwrap().is_none());
}
