//! Limits of the replicas: `minReplicas`, `maxReplicas` and the GPUs of the cluster.

use serde_json::json;
use steersman_testkit::NodePool;

use crate::env::{SATURATION_CONFIG_MAP, SCARCE_GPU};
use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::operator::DedicatedOperator;
use crate::test_namespace::{TestNamespace, condition, desired, reason, spec};

#[tokio::test]
async fn replica_bounds_hold_and_are_reported() {
    let Some(ns) = TestNamespace::open("bounds").await else { return };
    for model in ["busy", "idle"] {
        ns.deploy(&format!("{model}-decode"), model, 2).await;
    }
    ns.apply_variant("at-most-two", spec("busy-decode", "busy", json!({ "maxReplicas": 2 }))).await;
    ns.apply_variant("at-least-two", spec("idle-decode", "idle", json!({ "minReplicas": 2 }))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let (busy, _idle) = (LoadGenerator::new(&ns, "busy").await, LoadGenerator::idle(&ns, "idle").await);
    busy.start_load(2, 60).await;

    let limited = ["True", "OptimizationSucceeded", "2 replicas on A100; wanted 3, limited by maxReplicas=2"];
    ns.wait_for_condition("at-most-two", "OptimizationReady", limited).await;
    let (kind, message) = ns.event("at-most-two", "ResourceConstrained").await;
    assert_eq!(kind, "Warning");
    assert!(message.contains("wanted 3, limited by maxReplicas=2"), "{message}");
    let raised = ["True", "OptimizationSucceeded", "2 replicas on A100; wanted 1, limited by minReplicas=2"];
    ns.wait_for_condition("at-least-two", "OptimizationReady", raised).await;
    assert_eq!(ns.events("at-least-two", "ResourceConstrained").await, [], "minReplicas is no shortage");
    ns.record_kubectl_output("at-most-two", "bounds-max").await;
    ns.record_kubectl_output("at-least-two", "bounds-min").await;
    for name in ["at-most-two", "at-least-two"] {
        ns.wait_for_gauges(name, [Some(2.0), Some(2.0), Some(1.0)]).await;
    }
    ns.assert_unchanged_for(3, &["at-most-two", "at-least-two"]).await;

    // A change of the bounds takes effect at once.
    ns.patch_spec("at-most-two", json!({ "maxReplicas": 3 })).await;
    ns.wait_until_settled("at-most-two", 3).await;
    ns.patch_spec("at-most-two", json!({ "maxReplicas": 1 })).await;
    let object = ns.wait_for_desired("at-most-two", 1).await;
    // The reason is the second one if the third pod had no metrics yet.
    let reasons = ["maxReplicas=1", "clamped from 3 to 1 for bounds"];
    assert!(reasons.iter().any(|text| reason(&object).contains(text)), "{}", reason(&object));
}

#[tokio::test]
async fn gpu_limiter_stops_scale_up_without_nodes() {
    let Some(ns) = TestNamespace::excluded("scarce").await else { return };
    let operator = DedicatedOperator::start(ns.env.cluster, ns.name()).await;
    operator.use_prometheus(&ns.admin, &ns.env.prometheus).await;
    let limiter = json!({ "default": "enableLimiter: true\nanalyzerName: percentage" });
    operator.set_config_map(&ns.admin, SATURATION_CONFIG_MAP, limiter).await;
    let ns = TestNamespace { probe: operator.probe.clone(), ..ns };
    let gpu = json!({ "limits": { "nvidia.com/gpu": "1" } });
    ns.deploy_with_resources("decode", "llama", 2, gpu).await;
    ns.apply_variant("llama", spec("decode", "llama", json!({ "accelerator": "T4" }))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 60).await;
    // Both GPUs are in use.
    let limited = ["True", "OptimizationSucceeded", "2 replicas on T4; wanted 3, limited by gpu-limiter"];
    ns.wait_for_condition("llama", "OptimizationReady", limited).await;
    ns.event("llama", "ResourceConstrained").await;
    ns.record_kubectl_output("llama", "gpu-limited").await;
    ns.assert_unchanged_for(3, &["llama"]).await;
    assert_eq!(desired(&ns.object("llama").await), Some(2));
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;

    ns.env.cluster.add_nodes(&NodePool::with_gpus(SCARCE_GPU, 1).with_name("bought")).await.unwrap();
    let object = ns.wait_until_settled("llama", 3).await;
    assert!(!condition(&object, "OptimizationReady").2.contains("limited"), "{object:#}");
    ns.event("llama", "ScaledUp").await;
}
