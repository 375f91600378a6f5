//! The phases of requests, by single reconciles.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use steersman::relay::PROFILING_ROLE;

use super::*;

#[tokio::test]
async fn request_is_profiled_deployed_and_monitored() {
    let Some(test) = TestNamespace::new("happy", spec(json!({}))).await else { return };
    test.settle().await;
    let status = test.status().await;
    assert_eq!((&status["phase"], &status["profilingJobName"]), (&json!("Profiling"), &json!("profile-qwen")));
    assert_eq!(status["profilingPhase"], "Initializing");
    let request = test.request().await;
    let job = test.job().await;
    assert_eq!(job.owner_references()[0].uid, request.uid().unwrap());
    let account = test.namespace.api::<ServiceAccount>().get(names::SERVICE_ACCOUNT).await.unwrap();
    let binding = test.namespace.api::<RoleBinding>().get(names::ROLE_BINDING).await.unwrap();
    for owners in [account.owner_references(), binding.owner_references()] {
        let [owner] = owners else { panic!("one owner expected: {owners:?}") };
        assert_eq!((Some(&owner.uid), owner.controller), (request.uid().as_ref(), None), "requests share them");
    }
    assert_eq!(binding.role_ref.name, PROFILING_ROLE);
    test.assert_no_writes().await;

    test.deliver_output(json!({ "phase": "SweepingPrefill", "message": "Sweeping parallelization strategies" })).await;
    test.settle().await;
    let status = test.status().await;
    assert_eq!(status["profilingPhase"], "SweepingPrefill");
    let expected = ("SweepingPrefill".to_owned(), "Sweeping parallelization strategies".to_owned());
    assert_eq!(condition(&status, "Profiling"), expected);

    test.complete_profiling().await;
    let status = test.status().await;
    assert_eq!((&status["phase"], &status["dgdName"]), (&json!("Deploying"), &json!(GRAPH)));
    assert_eq!(status["profilingPhase"], Value::Null, "cleared on success");
    let graph = test.graphs().get(GRAPH).await.unwrap();
    assert!(graph.owner_references().is_empty(), "the graph must outlive the request");
    assert_eq!(graph.labels()[names::LABEL_NAME], NAME);
    assert_eq!(graph.annotations()[names::REQUEST_UID], request.uid().unwrap());
    let config = test.namespace.api::<ConfigMap>().get("planner-config-1a2b").await.unwrap();
    assert_eq!(
        Some(&config.owner_references()[0].uid),
        graph.metadata.uid.as_ref(),
        "the ConfigMap is deleted with the graph"
    );
    assert_eq!(
        test.request().await.annotations()[names::GENERATED_GRAPH],
        "",
        "emptied once the graph was created and observed"
    );
    test.assert_no_writes().await;

    test.set_graph_state("successful").await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await, ("Deployed".into(), "Deployment is healthy".into()));
    assert_eq!(test.status().await["deploymentInfo"], json!({ "replicas": 3, "availableReplicas": 1 }));
    test.set_graph_state("pending").await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    assert_eq!(condition(&test.status().await, "DeploymentReady").0, "DeploymentDegraded");
    test.set_graph_state("successful").await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deployed");
    test.assert_no_writes().await;

    test.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Failed");
    assert!(message.contains("Deployment was deleted by user"), "{message}");
    assert!(test.graphs().get_opt(GRAPH).await.unwrap().is_none(), "the graph must not be recreated");
}

#[tokio::test]
async fn disabled_auto_apply_stops_at_ready() {
    let Some(test) = TestNamespace::new("by-hand", spec(json!({ "autoApply": false }))).await else { return };
    test.complete_profiling().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Ready");
    assert!(message.starts_with("Profiling complete, spec available: set spec.autoApply to true"), "{message}");
    assert!(test.graphs().get_opt(GRAPH).await.unwrap().is_none());
    assert!(test.request().await.annotations()[names::GENERATED_GRAPH].contains("VllmDecodeWorker"));
    test.assert_no_writes().await;

    test.patch_request(json!({ "spec": { "autoApply": true } })).await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    assert!(test.graphs().get_opt(GRAPH).await.unwrap().is_some());
}

#[tokio::test]
async fn profiler_failure_fails_request_with_cause() {
    let Some(test) = TestNamespace::new("verdict", spec(json!({}))).await else { return };
    test.settle().await;
    let output =
        json!({ "phase": "SelectingConfig", "profiler_status": "failed", "profiler_error": "no plan meets TTFT" });
    test.deliver_output(output).await;
    test.complete_job().await;
    test.settle().await;
    let status = test.status().await;
    assert_eq!(status["phase"], "Failed");
    let expected = ("SelectingConfigFailed".to_owned(), "profiling failed: no plan meets TTFT".to_owned());
    assert_eq!(condition(&status, "Profiling"), expected);
    assert_eq!(condition(&status, "Succeeded").0, "Failed");
    test.assert_no_writes().await;
}

#[tokio::test]
async fn failed_job_reports_pod_exit_reason() {
    let Some(test) = TestNamespace::new("job-failed", spec(json!({}))).await else { return };
    test.settle().await;
    let ended = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    set_profiler_pod(&test.namespace, "Failed", ended).await;
    test.fail_job("Job has reached the specified backoff limit").await;
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Failed");
    assert!(message.contains("Job has reached the specified backoff limit. Details: Pod: profile-qwen-x"), "{message}");
    assert!(message.contains("ExitCode: 137, Reason: OOMKilled"), "{message}");
}

#[tokio::test]
async fn deleted_job_is_recreated() {
    let Some(test) = TestNamespace::new("job-gone", spec(json!({}))).await else { return };
    test.settle().await;
    let before = test.job().await.uid();
    test.namespace.api::<Job>().delete("profile-qwen", &DeleteParams::background()).await.unwrap();
    test.settle().await;
    assert_ne!(test.job().await.uid(), before);
    assert_eq!(test.phase_and_message().await.0, "Profiling");
}

#[tokio::test]
async fn foreign_graph_of_same_name_is_untouched() {
    let Some(test) = TestNamespace::new("foreign", spec(json!({}))).await else { return };
    let foreign: DynamicObject = object(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment",
        "metadata": { "name": GRAPH }, "spec": { "components": [] } }));
    let foreign = test.graphs().create(&PostParams::default(), &foreign).await.unwrap();
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Pending", "nothing is profiled for a name that is taken");
    assert!(
        message.contains("DGD qwen-dgd exists and was not created for this request. Steersman does not change it"),
        "{message}"
    );
    assert_eq!(test.graphs().get(GRAPH).await.unwrap().resource_version(), foreign.resource_version());
    test.graphs().delete(GRAPH, &DeleteParams::default()).await.unwrap();
    test.complete_profiling().await;
    assert_eq!(test.graphs().get(GRAPH).await.unwrap().labels()[names::LABEL_NAME], NAME);
}

#[tokio::test]
async fn retry_annotation_replaces_job_and_output() {
    let Some(test) = TestNamespace::new("retry", spec(json!({}))).await else { return };
    test.settle().await;
    let before = test.job().await.uid();
    test.deliver_output(json!({ "profiler_status": "failed", "profiler_error": "no plan" })).await;
    test.complete_job().await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Failed");
    test.patch_request(json!({ "metadata": { "annotations": { names::RETRY: "1" } } })).await;
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Profiling");
    assert_ne!(test.job().await.uid(), before);
    assert!(test.namespace.api::<ConfigMap>().get_opt(&names::output(NAME)).await.unwrap().is_none());
    test.complete_profiling().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    test.assert_no_writes().await;
}

#[tokio::test]
async fn node_labels_fill_request_hardware() {
    let Some(test) = TestNamespace::new("gpus", spec(json!({ "hardware": {} }))).await else { return };
    let _gpu_lock = lock_gpus(&test.admin).await;
    test.settle().await;
    let (phase, message) = test.phase_and_message().await;
    assert_eq!(phase, "Pending");
    assert!(message.contains("GPU hardware info required but auto-discovery failed"), "{message}");
    let node: Node = object(json!({ "metadata": { "name": "gpu-0", "labels": { "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771" } } }));
    Api::all(test.admin.clone()).create(&PostParams::default(), &node).await.unwrap();
    test.settle().await;
    assert_eq!(test.phase_and_message().await.0, "Profiling");
    let hardware = test.request().await.data["spec"]["hardware"].clone();
    assert_eq!((&hardware["gpuSku"], &hardware["totalGpus"]), (&json!("h200_sxm"), &json!(8)));
    let args = test.job().await.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
    assert!(args[1].contains("h200_sxm"), "the profiler must get the discovered hardware: {args:?}");
}

#[tokio::test]
async fn spec_change_while_profiling_is_rejected() {
    let Some(test) = TestNamespace::new("changed", spec(json!({}))).await else { return };
    test.settle().await;
    let job = test.job().await.uid();
    test.patch_request(json!({ "spec": { "model": "other" } })).await;
    test.settle().await;
    let status = test.status().await;
    assert_eq!(
        (status["phase"].clone(), condition(&status, "SpecAccepted").0),
        (json!("Profiling"), "SpecChangeRejected".into())
    );
    test.patch_request(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await;
    test.complete_profiling().await;
    assert_eq!(test.phase_and_message().await.0, "Deploying");
    assert_eq!(test.job().await.uid(), job);
}

#[tokio::test]
async fn legacy_finalizer_does_not_block_deletion() {
    let Some(test) = TestNamespace::new("finalizer", spec(json!({}))).await else { return };
    test.patch_request(json!({ "metadata": { "finalizers": ["nvidia.com/finalizer"] } })).await;
    test.requests().delete(NAME, &DeleteParams::default()).await.unwrap();
    let outcome = reconcile_once(test.cluster, test.admin.clone(), test.namespace.name()).await.unwrap();
    assert_eq!(outcome, ReconcileOutcome::Deleting);
    assert!(test.requests().get_opt(NAME).await.unwrap().is_none());
}
