//! Changes of a spec after profiling has started.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::test_namespace::{GRAPH, REQUEST, TestNamespace, condition, spec};

#[tokio::test]
async fn spec_change_while_profiling_is_rejected() {
    let Some(ns) = TestNamespace::open("refused").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    let change = Patch::Merge(json!({ "spec": { "model": "Qwen/Qwen3-32B" } }));
    let rejection = ns.requests().patch(REQUEST, &PatchParams::default(), &change).await.unwrap_err().to_string();
    let expected =
        "spec: Forbidden: updates are forbidden while the resource is in phase \"Profiling\"; delete and recreate";
    assert!(rejection.contains(expected) && rejection.contains("spec.model"), "{rejection}");
    ns.patch_request(json!({ "metadata": { "labels": { "team": "search" } } })).await;
    profiler.succeed().await;
    let deploying = ns.wait_for_phase("Deploying").await;
    assert_eq!(condition(&deploying, "SpecAccepted")["status"], "True", "{deploying}");
}

#[tokio::test]
async fn stored_change_while_profiling_is_reported_and_ignored() {
    let Some(ns) = TestNamespace::without_admission("edited").await else { return };
    ns.apply_request(spec(json!({}))).await;
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    let job = ns.job().await;
    ns.patch_request(json!({ "spec": { "model": "Qwen/Qwen3-32B" } })).await;
    let rejected = |request: &serde_json::Value| condition(request, "SpecAccepted")["reason"] == "SpecChangeRejected";
    ns.wait_for("the change is rejected", rejected).await;
    let output = ns.kubectl_output("edited");
    let messages = ["Sweeping parallelization strategies", "spec was changed"];
    output.assert_status("Profiling", "Profiling", &messages, &["SpecChangeRejected"]);
    let event = "Cannot modify spec in phase 'Profiling'";
    assert!(output.description.contains(event), "{}", output.description);
    let now = ns.job().await;
    assert_eq!((now.uid(), json!(now.spec)), (job.uid(), json!(job.spec)), "the Job is unchanged");

    ns.patch_request(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await;
    ns.wait_for("the change is reverted", |request| !rejected(request)).await;
    profiler.report_and_wait("SelectingConfig", "Filtering results").await;
    assert!(!ns.kubectl_output("edit-taken-back").column("MESSAGE").contains("changed"));
    profiler.succeed().await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
}

#[tokio::test]
async fn stored_change_while_deployed_keeps_graph() {
    let Some(ns) = TestNamespace::without_admission("edited-late").await else { return };
    ns.apply_request(spec(json!({}))).await;
    ns.complete_deployment().await;
    let graph = ns.graph().await;
    ns.patch_request(json!({ "spec": { "autoApply": false, "backend": "sglang" } })).await;
    ns.wait_for("the change is rejected", |request| condition(request, "SpecAccepted")["status"] == "False").await;
    let output = ns.kubectl_output("edited-deployed");
    output.assert_status(
        "Deployed",
        "Deployed",
        &["Deployment is healthy", "spec was changed"],
        &["SpecChangeRejected"],
    );
    assert_eq!(ns.graphs().get(GRAPH).await.unwrap().resource_version(), graph.resource_version());
    ns.set_graph_state("failed", "VllmDecodeWorker: CrashLoopBackOff").await;
    ns.wait_for_phase("Deploying").await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
}
