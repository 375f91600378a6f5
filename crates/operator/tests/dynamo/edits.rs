//! Changes of a spec that come too late.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::scene::{GRAPH, REQUEST, Scene, condition, spec};

#[tokio::test]
async fn a_change_while_profiling_is_refused_with_what_to_do_and_nothing_else_comes_of_it() {
    let Some(scene) = Scene::open("refused").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    let change = Patch::Merge(json!({ "spec": { "model": "Qwen/Qwen3-32B" } }));
    let refused = scene.requests().patch(REQUEST, &PatchParams::default(), &change).await.unwrap_err().to_string();
    let says =
        "spec: Forbidden: updates are forbidden while the resource is in phase \"Profiling\"; delete and recreate";
    assert!(refused.contains(says) && refused.contains("spec.model"), "{refused}");
    scene.change(json!({ "metadata": { "labels": { "team": "search" } } })).await;
    profiler.succeeds().await;
    let deploying = scene.until_phase("Deploying").await;
    assert_eq!(condition(&deploying, "SpecAccepted")["status"], "True", "{deploying}");
}

#[tokio::test]
async fn a_spec_that_is_changed_while_profiling_is_told_of_and_not_acted_on_until_it_is_changed_back() {
    let Some(scene) = Scene::unjudged("edited").await else { return };
    scene.ask(spec(json!({}))).await;
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    let job = scene.job().await;
    scene.change(json!({ "spec": { "model": "Qwen/Qwen3-32B" } })).await;
    let rejected = |request: &serde_json::Value| condition(request, "SpecAccepted")["reason"] == "SpecChangeRejected";
    scene.until("the change is refused", rejected).await;
    let shown = scene.shown("edited");
    let says = ["Sweeping parallelization strategies", "spec was changed"];
    shown.assert("Profiling", "Profiling", &says, &["SpecChangeRejected"]);
    let told = "Cannot modify spec in phase 'Profiling'";
    assert!(shown.description.contains(told), "{}", shown.description);
    let now = scene.job().await;
    assert_eq!((now.uid(), json!(now.spec)), (job.uid(), json!(job.spec)), "the Job stays as it is");

    scene.change(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await;
    scene.until("it is as before", |request| !rejected(request)).await;
    profiler.is_heard("SelectingConfig", "Filtering results").await;
    assert!(!scene.shown("edit-taken-back").column("MESSAGE").contains("changed"));
    profiler.succeeds().await;
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
}

#[tokio::test]
async fn a_spec_that_is_changed_while_deployed_leaves_the_graph_as_it_is() {
    let Some(scene) = Scene::unjudged("edited-late").await else { return };
    scene.ask(spec(json!({}))).await;
    scene.deployed().await;
    let graph = scene.graph().await;
    scene.change(json!({ "spec": { "autoApply": false, "backend": "sglang" } })).await;
    scene.until("the change is refused", |request| condition(request, "SpecAccepted")["status"] == "False").await;
    let shown = scene.shown("edited-deployed");
    shown.assert("Deployed", "Deployed", &["Deployment is healthy", "spec was changed"], &["SpecChangeRejected"]);
    assert_eq!(scene.graphs().get(GRAPH).await.unwrap().resource_version(), graph.resource_version());
    scene.graph_is("failed", "VllmDecodeWorker: CrashLoopBackOff").await;
    scene.until_phase("Deploying").await;
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
}
