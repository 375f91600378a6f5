//! Missing or invalid metrics: the replicas stay as they are, and a condition gives the reason.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use steersman_testkit::prometheus::{ClientAuth, PrometheusServer};
use steersman_testkit::wait;
use tokio::sync::Mutex;

use crate::env::SATURATION_CONFIG_MAP;
use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::operator::DedicatedOperator;
use crate::test_namespace::{TestNamespace, condition, desired, reason, spec};

/// Time in which the default engine measures the request rate and the capacity of a replica.
const MEASUREMENT_LIMIT: Duration = Duration::from_secs(420);

#[tokio::test]
async fn prometheus_outage_keeps_replicas_until_recovery() {
    let Some(ns) = TestNamespace::excluded("outage").await else { return };
    let operator = DedicatedOperator::start(ns.env.cluster, ns.name()).await;
    let prometheus = Arc::new(Mutex::new(PrometheusServer::start(ClientAuth::NotRequired).await.unwrap().unwrap()));
    operator.use_prometheus(&ns.admin, &prometheus).await;
    let ns = TestNamespace { probe: operator.probe.clone(), ..ns };
    ns.deploy("decode", "llama", 2).await;
    ns.apply_variant("llama", spec("decode", "llama", json!({}))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::with_prometheus(&ns, "llama", &prometheus).await;
    load.start_load(2, 36).await;
    ns.wait_until_settled("llama", 2).await;

    prometheus.lock().await.stop();
    // Two pods cannot serve this load, but the operator has no metrics.
    load.set_load(78);
    let address = prometheus.lock().await.address();
    let down = ["False", "PrometheusError", address.as_str()];
    let object = ns.wait_for_condition("llama", "MetricsAvailable", down).await;
    let (_, _, message) = condition(&object, "MetricsAvailable");
    assert!(message.starts_with("Failed to query Prometheus: "), "{message}");
    assert!(message.contains("check that Prometheus runs and that PROMETHEUS_BASE_URL is right"), "{message}");
    let (status, why, message) = condition(&object, "OptimizationReady");
    assert_eq!((status, why), ("True", "FallbackUsed"), "{message}");
    assert!(message.ends_with("(2 replicas)"), "{message}");
    let (kind, _) = ns.event("llama", "MetricsUnavailable").await;
    assert_eq!(kind, "Warning");
    ns.record_kubectl_output("llama", "prometheus-down").await;
    ns.assert_unchanged_for(1, &["llama"]).await;
    assert_eq!(desired(&ns.object("llama").await), Some(2));
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    assert_eq!(ns.events("llama", "MetricsUnavailable").await.len(), 1, "the event is published once");

    prometheus.lock().await.restart().await.unwrap();
    let object = ns.wait_for_condition("llama", "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    assert_eq!(condition(&object, "OptimizationReady").1, "OptimizationSucceeded");
    // The scale-up follows once metrics are available.
    ns.wait_until_settled("llama", 3).await;
}

/// The metrics of a pod with these two values.
fn metrics_text(model: &str, kv: &str, queue: &str) -> String {
    let labels = format!("{{engine=\"0\",model_name=\"{model}\"}}");
    format!(
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{labels} {kv}\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{labels} {queue}\n"
    )
}

#[tokio::test]
async fn invalid_metrics_block_only_their_own_object() {
    let Some(ns) = TestNamespace::open("nonsense").await else { return };
    let cases = [
        ("nan", "NaN", "0", "has no KV cache usage"),
        ("infinite", "+Inf", "0", "has no KV cache usage"),
        ("negative", "0.5", "-3", "has no queue length"),
        ("percent", "73", "0", "has no KV cache usage"),
        ("text", "plenty", "0", "No vLLM metrics found for model 'text'"),
    ];
    let mut loads = Vec::new();
    for (model, kv, queue, _) in cases {
        ns.deploy(&format!("{model}-decode"), model, 1).await;
        ns.apply_variant(model, spec(&format!("{model}-decode"), model, json!({}))).await;
        let load = LoadGenerator::idle(&ns, model).await;
        load.override_metrics(&format!("{model}-decode"), Some(&metrics_text(model, kv, queue)));
        loads.push(load);
    }
    ns.deploy("sound-decode", "sound", 1).await;
    ns.apply_variant("sound", spec("sound-decode", "sound", json!({}))).await;
    let sound = LoadGenerator::new(&ns, "sound").await;
    sound.start_load(1, 30).await;
    for (model, _, _, message) in cases {
        let object = ns.wait_for_condition(model, "MetricsAvailable", ["False", "MetricsMissing", message]).await;
        assert_eq!(desired(&object), Some(1), "{model}");
        assert_eq!(condition(&object, "OptimizationReady").1, "FallbackUsed", "{model}");
        ns.wait_for_gauges(model, [Some(1.0), Some(1.0), Some(1.0)]).await;
        ns.record_kubectl_output(model, &format!("nonsense-{model}")).await;
    }
    // The object with valid metrics is scaled normally.
    ns.wait_for_desired("sound", 2).await;

    // Valid metrics of the same pod are used again.
    loads[0].override_metrics("nan-decode", None);
    let object = ns.wait_for_condition("nan", "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    assert_eq!(condition(&object, "OptimizationReady").1, "OptimizationSucceeded");
}

#[tokio::test]
async fn pod_without_metrics_blocks_its_model() {
    let Some(ns) = TestNamespace::open("silent").await else { return };
    let load = LoadGenerator::new(&ns, "llama").await;
    load.hide_metrics("silent-decode", true);
    ns.deploy("decode", "llama", 1).await;
    ns.deploy("silent-decode", "llama", 1).await;
    ns.apply_variant("loud", spec("decode", "llama", json!({}))).await;
    ns.apply_variant("silent", spec("silent-decode", "llama", json!({ "variantCost": "5" }))).await;
    load.start_load(2, 60).await;
    // The load of a model is that of all its pods: if one is unknown, neither variant is scaled.
    for name in ["loud", "silent"] {
        let partial = ["False", "MetricsMissing", "0 of 1 ready replicas of variant silent have metrics"];
        let object = ns.wait_for_condition(name, "MetricsAvailable", partial).await;
        assert_eq!(desired(&object), Some(1), "{name}");
    }
    ns.record_kubectl_output("loud", "silent-pod").await;
    ns.probe.wait_for_reconciles(3).await;
    for name in ["loud", "silent"] {
        assert_eq!(desired(&ns.object(name).await), Some(1), "{name}");
        ns.wait_for_gauges(name, [Some(1.0), Some(1.0), Some(1.0)]).await;
    }
    load.hide_metrics("silent-decode", false);
    for name in ["loud", "silent"] {
        ns.wait_for_condition(name, "MetricsAvailable", ["True", "MetricsFound", ""]).await;
    }
    ns.wait_for_desired("silent", 2).await;
    assert_eq!(desired(&ns.object("loud").await), Some(1), "only the cheaper variant is scaled up");
}

#[tokio::test]
async fn default_engine_scales_despite_silent_pod() {
    let Some(ns) = TestNamespace::excluded("demand").await else { return };
    let operator = DedicatedOperator::start(ns.env.cluster, ns.name()).await;
    operator.use_prometheus(&ns.admin, &ns.env.prometheus).await;
    operator.set_config_map(&ns.admin, SATURATION_CONFIG_MAP, json!({ "default": "analyzerName: \"\"" })).await;
    let ns = TestNamespace { probe: operator.probe.clone(), ..ns };
    let load = LoadGenerator::new(&ns, "llama").await;
    load.hide_metrics("silent-decode", true);
    ns.deploy("decode", "llama", 1).await;
    ns.deploy("silent-decode", "llama", 1).await;
    ns.apply_variant("loud", spec("decode", "llama", json!({}))).await;
    ns.apply_variant("silent", spec("silent-decode", "llama", json!({ "variantCost": "50" }))).await;
    // Two pods run 80 requests at once.
    load.start_load(2, 80).await;
    load.set_load(200);
    let what = "the variant with metrics grows";
    let grown = wait::eventually_within(MEASUREMENT_LIMIT, what, async || {
        Some(ns.object("loud").await).filter(|object| desired(object) > Some(1))
    });
    let object = grown.await.unwrap();
    assert!(reason(&object).starts_with("scale-up: "), "{}", reason(&object));
    let (status, why, message) = condition(&object, "MetricsAvailable");
    assert_eq!((status, why), ("True", "MetricsPartial"), "{message}");
    assert!(message.contains("no metrics of pod silent-decode-"), "{message}");
    assert_eq!(desired(&ns.object("silent").await), Some(1));
    ns.record_kubectl_output("loud", "measured-demand").await;
}
