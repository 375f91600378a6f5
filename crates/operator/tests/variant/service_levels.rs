//! Scaling by latency targets.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use steersman::installation;
use steersman_testkit::apply;

use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::test_namespace::{TestNamespace, condition, desired, reason, spec};

/// A model of its own, because all namespaces share the service classes.
const MODEL: &str = "llama-by-latency";
const CLASSES: &str = "service-classes-config";

/// A simulated server runs 40 requests at once, each for two seconds.
fn profile() -> Value {
    json!({ "maxBatchSize": 40, "perfParms": {
        "decodeParms": { "alpha": "222", "beta": "0.01" }, "prefillParms": { "gamma": "10", "delta": "0.001" } } })
}

async fn apply_class(ns: &TestNamespace, ttft: u32, tpot: u32) {
    let class =
        format!("name: Premium\npriority: 1\ndata:\n- model: {MODEL}\n  slo-ttft: {ttft}\n  slo-tpot: {tpot}\n");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CLASSES },
        "data": { "premium.yaml": class } });
    apply::apply_manifests(&ns.admin, Some(installation::NAMESPACE), &map.to_string()).await.unwrap();
}

#[tokio::test]
async fn wva_28_latency_targets_decide_replicas() {
    let Some(ns) = TestNamespace::open("latency").await else { return };
    apply_class(&ns, 500, 250).await;
    ns.deploy("decode", MODEL, 1).await;
    let class = json!({ "name": CLASSES, "key": "premium.yaml" });
    let more = json!({ "variantProfile": profile(), "sloClassRef": class, "acceleratorCount": 1, "maxReplicas": 6 });
    ns.apply_variant("llama", spec("decode", MODEL, more)).await;
    let load = LoadGenerator::idle(&ns, MODEL).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    load.wait_for_pods(1).await;
    // 50 requests at once, which are 25 requests/s. One replica serves nearly 20.
    load.set_load(50);
    let object = ns.wait_for_desired("llama", 2).await;
    assert_eq!(reason(&object), "Optimizer solution: cost and latency optimized allocation");
    let object = ns.wait_until_settled("llama", 2).await;
    let (_, accepted, message) = condition(&object, "SpecAccepted");
    assert_eq!(accepted, "SpecAccepted", "{message}");
    let predicted = [("variant_name", "llama"), ("namespace", ns.name()), ("model_name", MODEL)];
    let itl = ns.probe.value("wva_predicted_itl_seconds", &predicted).await.unwrap();
    assert!((0.2..0.25).contains(&itl), "{itl}");
    let level = &object["status"]["decision"]["serviceLevel"];
    assert_eq!((&level["class"], &level["target"]["ttftMilliseconds"]), (&json!("premium.yaml"), &json!(500.0)));
    assert!(level["growsAbove"].as_f64().is_some(), "{level:#}");
    ns.record_kubectl_output("llama", "latency-targets").await;
    // The same load keeps the number.
    ns.probe.wait_for_reconciles(10).await;
    assert_eq!(desired(&ns.object("llama").await), Some(2));

    apply_class(&ns, 500, 100).await;
    let object =
        ns.wait_for_condition("llama", "SpecAccepted", ["True", "LatencyTargetUnreachable", "slo-tpot 100 ms"]).await;
    assert_eq!(desired(&object), Some(2), "sized without targets");
    let maps: Api<ConfigMap> = Api::namespaced(ns.admin.clone(), installation::NAMESPACE);
    maps.delete(CLASSES, &DeleteParams::default()).await.unwrap();
    ns.wait_for_condition("llama", "SpecAccepted", ["True", "ServiceClassMissing", MODEL]).await;
}
