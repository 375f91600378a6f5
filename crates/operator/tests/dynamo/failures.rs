//! Failures of profiling, and their messages.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::wait;

use crate::test_namespace::{GRAPH, JOB, TestNamespace, condition, spec};

/// Lets the profiler fail in this phase, and checks the message that the relay forwards.
async fn check_failure_in(phase: &str, error: &str) {
    let Some(ns) = TestNamespace::open(&format!("fails-{}", phase.to_lowercase())).await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait(phase, "On its way").await;
    profiler.fail(phase, error).await;
    let request = ns.wait_for_phase("Failed").await;
    let (reason, why) = (format!("{phase}Failed"), format!("profiling failed: {error}"));
    let profiling = condition(&request, "Profiling");
    assert_eq!((&profiling["reason"], &profiling["message"]), (&json!(reason), &json!(why)));
    assert_eq!(request["status"]["profilingPhase"], Value::Null, "profilingPhase is cleared on failure");
    let output = ns.kubectl_output(&format!("failed-{}", phase.to_lowercase()));
    output.assert_status(
        "Failed",
        "Failed",
        &[&reason, error, "kubectl logs -n", "To profile again: kubectl annotate"],
        &["ProfilingCheckFailed", error],
    );
    assert_eq!(output.column("MESSAGE").matches("rofiling failed").count(), 1, "the prefix occurs once");
    assert!(ns.graphs().get_opt(GRAPH).await.unwrap().is_none());
}

#[tokio::test]
async fn failure_while_initializing_is_reported() {
    check_failure_in("Initializing", "'hardware.gpuSku' is required in the DGDR spec.").await;
}

#[tokio::test]
async fn failure_while_sweeping_prefill_is_reported() {
    check_failure_in("SweepingPrefill", "no prefill candidate fits into 80 GB").await;
}

#[tokio::test]
async fn failure_while_sweeping_decode_is_reported() {
    check_failure_in("SweepingDecode", "deployment of candidate TP2 timed out after 3600 s").await;
}

#[tokio::test]
async fn failure_while_selecting_config_is_reported() {
    check_failure_in("SelectingConfig", "no plan meets TTFT 10 ms; the best has 87 ms").await;
}

#[tokio::test]
async fn failure_while_building_curves_is_reported() {
    check_failure_in("BuildingCurves", "raw_data.npz has no rows").await;
}

#[tokio::test]
async fn failure_while_generating_graph_is_reported() {
    check_failure_in("GeneratingDGD", "DGD name 'qwen-dgd' exceeds the 45-character pod-naming limit").await;
}

#[tokio::test]
async fn killed_pod_is_reported_with_exit_code() {
    let Some(ns) = TestNamespace::open("killed").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    profiler.kill().await;
    let request = ns.wait_for_phase("Failed").await;
    assert_eq!(condition(&request, "Profiling")["reason"], "SweepingPrefillFailed");
    let messages = ["SweepingPrefillFailed", "ExitCode: 137, Reason: OOMKilled", "kubectl logs -n"];
    ns.kubectl_output("failed-killed").assert_status("Failed", "Failed", &messages, &["ProfilingCheckFailed"]);
}

#[tokio::test]
async fn deleted_job_is_recreated_and_completes() {
    let Some(ns) = TestNamespace::open("job-gone").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    drop(profiler);
    let before = ns.job().await.uid();
    ns.api::<Job>().delete(JOB, &DeleteParams::background()).await.unwrap();
    ns.namespace.wait_for_event("ProfilingJobDeleted").await.unwrap();
    let request = ns.wait_for("profiling starts again", |request| {
        request["status"]["phase"] == "Profiling" && request["status"]["profilingPhase"] == "Initializing"
    });
    assert_eq!(request.await["status"]["profilingJobName"], JOB);
    assert_ne!(ns.job().await.uid(), before, "the Job is a new one");
    ns.kubectl_output("job-deleted").assert_status(
        "Profiling",
        "Profiling",
        &[],
        &["ProfilingJobDeleted", "profiling starts again"],
    );
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
    ns.graph().await;
}

/// The pod ends as by a kubelet on a node that is low on memory. A drained or preempted pod has the same condition.
#[tokio::test]
async fn evicted_pod_is_replaced_and_profiling_completes() {
    let Some(ns) = TestNamespace::open("evicted").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    drop(profiler);
    let (job, evicted) = (ns.job().await.uid(), ns.pod().await.name_any());
    let why = "The node was low on resource: memory.";
    let disrupted = json!({ "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": why,
        "lastTransitionTime": "2026-11-16T06:00:00Z" });
    let ended = json!({ "phase": "Failed", "reason": "Evicted", "message": why, "conditions": [disrupted] });
    let pods = ns.api::<Pod>();
    let patch = Patch::Strategic(json!({ "status": ended }));
    pods.patch_status(&evicted, &PatchParams::default(), &patch).await.unwrap();
    let another = wait::eventually("the Job has another pod", async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|pod| pod.name_any() != evicted)
    });
    another.await.unwrap();
    pods.delete(&evicted, &DeleteParams::default()).await.unwrap();
    wait::until_gone(pods, &evicted).await.unwrap();
    ns.complete_profiling().await;
    ns.wait_for_phase("Deploying").await;
    assert_eq!(ns.job().await.uid(), job, "the Job is the same");
}
