//! Namespaces with the annotation `wva.llmd.ai/exclude`.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::load_generator::LoadGenerator;
use crate::test_namespace::{TestNamespace, condition, desired, spec};

#[tokio::test]
async fn excluded_namespace_is_reported_once_and_resumes() {
    let (Some(ns), Some(clock)) = (TestNamespace::open("left").await, TestNamespace::open("clock").await) else {
        return;
    };
    // Another namespace needs an object, because the operator reconciles only while there are objects.
    clock.apply_variant("hand", spec("nothing", "none", json!({}))).await;
    ns.deploy("decode", "llama", 1).await;
    ns.apply_variant("llama", spec("decode", "llama", json!({}))).await;
    let _load = LoadGenerator::idle(&ns, "llama").await;
    ns.wait_until_settled("llama", 1).await;
    ns.wait_for_gauges("llama", [Some(1.0), Some(1.0), Some(1.0)]).await;

    let exclude = async |value: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "wva.llmd.ai/exclude": value } } }));
        let namespaces: Api<Namespace> = Api::all(ns.admin.clone());
        namespaces.patch(ns.name(), &PatchParams::default(), &patch).await.unwrap();
    };
    exclude(json!("true")).await;
    let message = "has annotation wva.llmd.ai/exclude=true";
    let object = ns.wait_for_condition("llama", "OptimizationReady", ["False", "NamespaceExcluded", message]).await;
    assert_eq!(condition(&object, "MetricsAvailable").1, "SkippedProcessing");
    assert_eq!((desired(&object), &object["status"]["actuation"]["applied"]), (Some(1), &json!(false)));
    assert_eq!(ns.event("llama", "NamespaceExcluded").await.0, "Normal");
    // Without a series, an HPA does not scale.
    ns.wait_for_gauges("llama", [None; 3]).await;
    ns.record_kubectl_output("llama", "namespace-excluded").await;
    ns.scale_workload("decode", 2).await;
    ns.assert_unchanged_for(3, &["llama"]).await;
    assert_eq!(ns.events("llama", "NamespaceExcluded").await.len(), 1, "the event is published once");

    exclude(Value::Null).await;
    let object = ns.wait_for_condition("llama", "OptimizationReady", ["True", "OptimizationSucceeded", ""]).await;
    assert_eq!(condition(&object, "MetricsAvailable").0, "True");
    assert!(ns.gauges("llama").await[0].is_some(), "the gauge is published again");
}
