//! Profiling that comes to nothing, and what is said of it.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::wait;

use crate::scene::{GRAPH, JOB, Scene, condition, spec};

/// The profiler gives up in this sub-phase, and the relay tells why.
async fn fails_in(phase: &str, error: &str) {
    let Some(scene) = Scene::open(&format!("fails-{}", phase.to_lowercase())).await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard(phase, "On its way").await;
    profiler.fails(phase, error).await;
    let request = scene.until_phase("Failed").await;
    let (reason, why) = (format!("{phase}Failed"), format!("profiling failed: {error}"));
    let said = condition(&request, "Profiling");
    assert_eq!((&said["reason"], &said["message"]), (&json!(reason), &json!(why)));
    assert_eq!(request["status"]["profilingPhase"], Value::Null, "cleared on failure");
    let shown = scene.shown(&format!("failed-{}", phase.to_lowercase()));
    shown.assert(
        "Failed",
        "Failed",
        &[&reason, error, "kubectl logs -n", "create a new one"],
        &["ProfilingCheckFailed", error],
    );
    assert_eq!(shown.column("MESSAGE").matches("rofiling failed").count(), 1, "no prefix is doubled");
    assert!(scene.graphs().get_opt(GRAPH).await.unwrap().is_none());
}

#[tokio::test]
async fn a_profiler_that_fails_while_initializing_says_so() {
    fails_in("Initializing", "'hardware.gpuSku' is required in the DGDR spec.").await;
}

#[tokio::test]
async fn a_profiler_that_fails_while_sweeping_prefill_says_so() {
    fails_in("SweepingPrefill", "no prefill candidate fits into 80 GB").await;
}

#[tokio::test]
async fn a_profiler_that_fails_while_sweeping_decode_says_so() {
    fails_in("SweepingDecode", "deployment of candidate TP2 timed out after 3600 s").await;
}

#[tokio::test]
async fn a_profiler_that_fails_while_selecting_a_configuration_says_so() {
    fails_in("SelectingConfig", "no plan meets TTFT 10 ms; the best has 87 ms").await;
}

#[tokio::test]
async fn a_profiler_that_fails_while_building_curves_says_so() {
    fails_in("BuildingCurves", "raw_data.npz has no rows").await;
}

#[tokio::test]
async fn a_profiler_that_fails_while_generating_the_graph_says_so() {
    fails_in("GeneratingDGD", "DGD name 'qwen-dgd' exceeds the 45-character pod-naming limit").await;
}

#[tokio::test]
async fn a_pod_that_is_killed_without_a_word_is_told_with_its_exit_code() {
    let Some(scene) = Scene::open("killed").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    profiler.dies().await;
    let request = scene.until_phase("Failed").await;
    assert_eq!(condition(&request, "Profiling")["reason"], "SweepingPrefillFailed");
    let says = ["SweepingPrefillFailed", "ExitCode: 137, Reason: OOMKilled", "kubectl logs -n"];
    scene.shown("failed-killed").assert("Failed", "Failed", &says, &["ProfilingCheckFailed"]);
}

#[tokio::test]
async fn a_job_that_is_deleted_by_hand_is_made_again_and_comes_to_its_end() {
    let Some(scene) = Scene::open("job-gone").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    drop(profiler);
    let before = scene.job().await.uid();
    scene.all::<Job>().delete(JOB, &DeleteParams::background()).await.unwrap();
    scene.namespace.event("ProfilingJobDeleted").await.unwrap();
    let request = scene.until("profiling begins anew", |request| {
        request["status"]["phase"] == "Profiling" && request["status"]["profilingPhase"] == "Initializing"
    });
    assert_eq!(request.await["status"]["profilingJobName"], JOB);
    assert_ne!(scene.job().await.uid(), before, "another Job");
    scene.shown("job-deleted").assert("Profiling", "Profiling", &[], &["ProfilingJobDeleted", "begins anew"]);
    scene.profiled().await;
    scene.until_phase("Deploying").await;
    scene.graph().await;
}

/// As a kubelet ends a pod on a node that runs out of memory. A drained or preempted pod carries the same condition.
#[tokio::test]
async fn a_pod_that_is_evicted_is_replaced_and_profiling_comes_to_its_end() {
    let Some(scene) = Scene::open("evicted").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    drop(profiler);
    let (job, evicted) = (scene.job().await.uid(), scene.pod().await.name_any());
    let why = "The node was low on resource: memory.";
    let disrupted = json!({ "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": why,
        "lastTransitionTime": "2026-11-16T06:00:00Z" });
    let ended = json!({ "phase": "Failed", "reason": "Evicted", "message": why, "conditions": [disrupted] });
    let pods = scene.all::<Pod>();
    let patch = Patch::Strategic(json!({ "status": ended }));
    pods.patch_status(&evicted, &PatchParams::default(), &patch).await.unwrap();
    let another = wait::eventually("the Job has another pod", async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|pod| pod.name_any() != evicted)
    });
    another.await.unwrap();
    pods.delete(&evicted, &DeleteParams::default()).await.unwrap();
    wait::until_gone(pods, &evicted).await.unwrap();
    scene.profiled().await;
    scene.until_phase("Deploying").await;
    assert_eq!(scene.job().await.uid(), job, "the same Job");
}
