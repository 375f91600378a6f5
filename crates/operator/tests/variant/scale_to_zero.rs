//! Scale to zero of models without requests.

use serde_json::{Value, json};

use crate::env::SCALE_TO_ZERO_CONFIG_MAP;
use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::test_namespace::{TestNamespace, condition, desired, reason, spec};

fn update_time(object: &Value) -> jiff::Timestamp {
    object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["updateTime"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn idle_model_scales_to_zero_after_retention() {
    let Some(ns) = TestNamespace::open("sleep").await else { return };
    let entry = |model: &str| format!("modelID: {model}\nenableScaleToZero: true\nretentionPeriod: 5s\n");
    ns.apply_config_map(SCALE_TO_ZERO_CONFIG_MAP, json!({ "model.idle": entry("idle"), "model.used": entry("used") }))
        .await;
    for model in ["idle", "used"] {
        ns.deploy(&format!("{model}-decode"), model, 1).await;
        ns.apply_variant(model, spec(&format!("{model}-decode"), model, json!({}))).await;
    }
    let used = LoadGenerator::new(&ns, "used").await;
    used.start_load(1, 4).await;
    let first = ns.wait_for_desired("idle", 1).await;
    ns.wait_until_settled("used", 1).await;
    let idle = LoadGenerator::idle(&ns, "idle").await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let object = ns.wait_for_desired("idle", 0).await;
    assert_eq!(reason(&object), "Scale to zero: no request for 5s");
    assert_eq!(object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["numReplicasChanged"], -1);
    let retention = update_time(&object).duration_since(update_time(&first));
    assert!(retention.as_secs() >= 5, "scaled to zero after {retention}");
    let (kind, message) = ns.event("idle", "ScaledToZero").await;
    assert_eq!((kind.as_str(), message.as_str()), ("Normal", "From 1 to 0 replicas: Scale to zero: no request for 5s"));

    idle.wait_for_pods(0).await;
    let no_replica = ["False", "MetricsMissing", "No replica of model 'idle' runs"];
    ns.wait_for_condition("idle", "MetricsAvailable", no_replica).await;
    ns.wait_for_gauges("idle", [Some(0.0), Some(0.0), Some(0.0)]).await;
    ns.assert_unchanged_for(3, &["idle"]).await;
    ns.record_kubectl_output("idle", "asleep").await;
    assert_eq!(ns.events("idle", "MetricsUnavailable").await, [], "scale to zero is not a failure");
    let object = ns.object("used").await;
    assert_eq!((desired(&object), condition(&object, "MetricsAvailable").0), (Some(1), "True"));
}

#[tokio::test]
async fn disabled_scale_to_zero_keeps_cheapest_replica() {
    let Some(ns) = TestNamespace::open("awake").await else { return };
    for (name, cost) in [("cheap", "10"), ("dear", "40")] {
        ns.deploy(name, "llama", 0).await;
        ns.apply_variant(name, spec(name, "llama", json!({ "variantCost": cost }))).await;
    }
    // Without a running replica, requests could not be observed.
    let object = ns.wait_for_desired("cheap", 1).await;
    assert_eq!(reason(&object), "First run: bootstrapping with 1 replica for Prometheus discovery");
    let object = ns.wait_for_desired("dear", 0).await;
    assert_eq!(reason(&object), "First run: no replica is running, waiting for requests");
    ns.record_kubectl_output("dear", "first-run-nothing-runs").await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::idle(&ns, "llama").await;
    load.wait_for_pods(1).await;
    ns.wait_until_settled("cheap", 1).await;
    ns.wait_for_gauges("cheap", [Some(1.0), Some(1.0), Some(1.0)]).await;
    ns.wait_for_gauges("dear", [Some(0.0), Some(0.0), Some(0.0)]).await;
    ns.assert_unchanged_for(4, &["cheap", "dear"]).await;
    assert_eq!(ns.events("cheap", "ScaledToZero").await, []);
}
