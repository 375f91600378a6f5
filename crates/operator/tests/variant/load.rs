//! Scaling by load that rises, stays constant and falls.

use serde_json::json;

use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::test_namespace::{TestNamespace, condition, desired, reason, spec};

const MODEL: &str = "llama";

#[tokio::test]
async fn load_scales_cheaper_variant_up_and_down() {
    let Some(ns) = TestNamespace::open("load").await else { return };
    ns.deploy("on-l40s", MODEL, 1).await;
    ns.deploy("on-h100", MODEL, 1).await;
    let (cheap, expensive) = ("llama-l40s", "llama-h100");
    ns.apply_variant(cheap, spec("on-l40s", MODEL, json!({ "accelerator": "L40S", "variantCost": "15" }))).await;
    ns.apply_variant(expensive, spec("on-h100", MODEL, json!({ "accelerator": "H100", "variantCost": "80" }))).await;
    let load = LoadGenerator::new(&ns, MODEL).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    // The cache of each pod is three quarters full.
    load.start_load(2, 60).await;
    let object = ns.wait_for_desired(cheap, 2).await;
    assert!(
        reason(&object).starts_with("saturation-only mode: scale-up: KV spare Saturation low (0."),
        "{}",
        reason(&object)
    );
    assert_eq!(object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], 1);
    assert_eq!(object["status"]["desiredOptimizedAlloc"]["accelerator"], "L40S");
    assert_eq!(object["status"]["actuation"]["applied"], true);
    let (kind, message) = ns.event(cheap, "ScaledUp").await;
    assert_eq!(kind, "Normal");
    assert!(message.starts_with("From 1 to 2 replicas: saturation-only mode: scale-up"), "{message}");
    load.wait_for_pods(3).await;
    ns.wait_until_settled(cheap, 2).await;
    // Three pods are enough for this load.
    ns.probe.wait_for_reconciles(2).await;
    assert_eq!((desired(&ns.object(cheap).await), desired(&ns.object(expensive).await)), (Some(2), Some(1)));
    ns.wait_for_gauges(cheap, [Some(2.0), Some(2.0), Some(1.0)]).await;
    ns.wait_for_gauges(expensive, [Some(1.0), Some(1.0), Some(1.0)]).await;
    let labels = [
        ("variant_name", cheap),
        ("namespace", ns.name()),
        ("target_name", "on-l40s"),
        ("target_kind", "Deployment"),
        ("accelerator_type", "L40S"),
    ];
    assert_eq!(
        ns.probe.value("wva_desired_replicas", &labels).await,
        Some(2.0),
        "the labels of the old and the new operator"
    );
    let up = [("variant_name", cheap), ("namespace", ns.name()), ("direction", "up"), ("reason", "solver")];
    assert_eq!(ns.probe.value("wva_replica_scaling_total", &up).await, Some(1.0));
    ns.record_kubectl_output(cheap, "load-up").await;
    // The decision uses the measurements of the last minute, so the replicas fall with a delay.
    load.set_load(0);
    let object = ns.wait_for_desired(cheap, 1).await;
    assert_eq!(reason(&object), "saturation-only mode: scale-down");
    assert_eq!(object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], -1);
    let (_, message) = ns.event(cheap, "ScaledDown").await;
    assert!(message.starts_with("From 2 to 1 replicas: saturation-only mode: scale-down"), "{message}");
    load.wait_for_pods(2).await;
    ns.wait_until_settled(cheap, 1).await;
    ns.wait_for_gauges(cheap, [Some(1.0), Some(1.0), Some(1.0)]).await;
    ns.record_kubectl_output(cheap, "load-down").await;
    ns.probe.wait_for_reconciles(3).await;
    assert_eq!((desired(&ns.object(cheap).await), desired(&ns.object(expensive).await)), (Some(1), Some(1)));
    for (name, reason, times) in [
        (cheap, "MetricsUnavailable", 0),
        (cheap, "ScaledUp", 1),
        (cheap, "ScaledDown", 1),
        (expensive, "ScaledUp", 0),
        (expensive, "ScaledDown", 0),
    ] {
        assert_eq!(ns.events(name, reason).await.len(), times, "{name} {reason}");
    }
}

#[tokio::test]
async fn constant_load_causes_no_scaling() {
    let Some(ns) = TestNamespace::open("constant").await else { return };
    ns.deploy("decode", MODEL, 2).await;
    ns.apply_variant("llama", spec("decode", MODEL, json!({}))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::new(&ns, MODEL).await;
    // The load is too high for one pod; two have spare capacity.
    load.start_load(2, 36).await;
    let object = ns.wait_until_settled("llama", 2).await;
    assert!(reason(&object).starts_with("Last resort: first run"), "{}", reason(&object));
    for (type_, expected) in [
        ("TargetResolved", "TargetFound"),
        ("OptimizationReady", "OptimizationSucceeded"),
        ("SpecAccepted", "SpecAccepted"),
    ] {
        let (status, why, message) = condition(&object, type_);
        assert_eq!((status, why), ("True", expected), "{message}");
    }
    ns.record_kubectl_output("llama", "constant-load").await;
    ns.assert_unchanged_for(6, &["llama"]).await;

    assert_never_scaled(&ns, "llama").await;
}

#[tokio::test]
async fn server_restart_causes_no_scaling() {
    let Some(ns) = TestNamespace::open("restarted").await else { return };
    ns.deploy("decode", MODEL, 2).await;
    ns.apply_variant("llama", spec("decode", MODEL, json!({ "minReplicas": 2 }))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::new(&ns, MODEL).await;
    // The load is low enough for one pod, which takes over the requests of the restarted one.
    let pods = load.start_load(2, 16).await;
    ns.wait_until_settled("llama", 2).await;
    assert!(load.request_count(&pods[0]) > 0, "the pod has served requests");
    ns.assert_unchanged_for(2, &["llama"]).await;
    // The restart resets its counters.
    load.restart_server(&pods[0]);
    ns.assert_unchanged_for(6, &["llama"]).await;
    assert_never_scaled(&ns, "llama").await;
}

/// Asserts that two replicas are desired with metrics, and that the number never changed.
async fn assert_never_scaled(ns: &TestNamespace, name: &str) {
    let object = ns.object(name).await;
    assert_eq!((desired(&object), condition(&object, "MetricsAvailable").0), (Some(2), "True"));
    for direction in ["up", "down"] {
        let labels = [("variant_name", name), ("namespace", ns.name()), ("direction", direction)];
        assert_eq!(ns.probe.value("wva_replica_scaling_total", &labels).await, None, "{direction}");
    }
}
