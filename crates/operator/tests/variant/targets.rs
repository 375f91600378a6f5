//! Scale targets that conflict, are missing or are scaled manually, and deleted objects.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::wait;

use crate::env::INVALID_OBJECT;
use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::shared_env::objects;
use crate::test_namespace::{TestNamespace, condition, current, desired, spec};

#[tokio::test]
async fn older_object_wins_target_conflict_until_deleted() {
    let Some(ns) = TestNamespace::open("rivals").await else { return };
    ns.deploy("decode", "llama", 1).await;
    // By name it would be the second.
    ns.apply_variant("older", spec("decode", "llama", json!({}))).await;
    let load = LoadGenerator::idle(&ns, "llama").await;
    load.wait_for_pods(1).await;
    let object = ns.wait_until_settled("older", 1).await;
    let created: Timestamp = object["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    let later = async || (Timestamp::now().as_second() > created.as_second()).then_some(());
    wait::eventually("the next second has begun", later).await.unwrap();
    ns.apply_variant("newer", spec("decode", "llama", json!({}))).await;

    let older = format!("{}/older", ns.name());
    let lost = ["True", "SuppressedDueToConflict", older.as_str()];
    let object = ns.wait_for_condition("newer", "DeploymentTargetConflict", lost).await;
    let (_, _, message) = condition(&object, "DeploymentTargetConflict");
    assert!(message.ends_with("ACTION: Delete this VA or change scaleTargetRef to a unique deployment."), "{message}");
    assert_eq!(condition(&object, "Ready").1, "DeploymentTargetConflict");
    assert_eq!(desired(&object), None);
    let newer = format!("DELETE OR REASSIGN: {}/newer", ns.name());
    let won = ["True", "ConflictResolvedByArbitration", newer.as_str()];
    ns.wait_for_condition("older", "DeploymentTargetConflict", won).await;
    for name in ["older", "newer"] {
        let (kind, _) = ns.event(name, "DeploymentTargetConflict").await;
        assert_eq!(kind, "Warning");
        ns.record_kubectl_output(name, &format!("conflict-{name}")).await;
    }
    ns.wait_for_gauges("older", [Some(1.0), Some(1.0), Some(1.0)]).await;
    assert_eq!(ns.gauges("newer").await, [None; 3]);
    let contested = [("namespace", ns.name()), ("deployment", "decode")];
    assert_eq!(ns.probe.value("wva_deployment_target_conflicts_total", &contested).await, Some(2.0));
    let status = async |name: &str| {
        let labels = [("namespace", ns.name()), ("variant_name", name)];
        ns.probe.value("wva_conflict_resolution_status", &labels).await
    };
    assert_eq!((status("older").await, status("newer").await), (Some(1.0), Some(0.0)));
    ns.assert_unchanged_for(3, &["older", "newer"]).await;

    ns.delete_variant("older").await;
    let object = ns.wait_until_settled("newer", 1).await;
    for gone in ["DeploymentTargetConflict", "Ready"] {
        assert_eq!(condition(&object, gone), ("", "", ""), "condition {gone} was removed");
    }
    ns.wait_for_gauges("newer", [Some(1.0), Some(1.0), Some(1.0)]).await;
    ns.wait_for_gauges("older", [None; 3]).await;
    assert_eq!(ns.probe.series("wva_deployment_target_conflicts_total", &contested).await, []);
}

#[tokio::test]
async fn missing_target_is_reported_until_it_appears() {
    let Some(ns) = TestNamespace::open("later").await else { return };
    ns.apply_variant("llama", spec("decode", "llama", json!({}))).await;
    let missing = ["False", "TargetNotFound", "Scale target Deployment decode not found"];
    let object = ns.wait_for_condition("llama", "TargetResolved", missing).await;
    let (status, why, message) = condition(&object, "OptimizationReady");
    assert_eq!((status, why), ("False", "OptimizationFailed"));
    assert!(message.starts_with("Deployment not found"), "{message}");
    assert_eq!(desired(&object), None);
    assert_eq!(ns.gauges("llama").await, [None; 3], "no gauge is published without a decision");
    let (kind, message) = ns.event("llama", "OptimizationFailed").await;
    assert_eq!(kind, "Warning");
    assert!(message.starts_with("Deployment not found"), "{message}");
    ns.record_kubectl_output("llama", "target-missing").await;

    ns.deploy("decode", "llama", 2).await;
    ns.wait_for_condition("llama", "TargetResolved", ["True", "TargetFound", "Deployment decode found"]).await;
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 36).await;
    let object = ns.wait_until_settled("llama", 2).await;
    assert_eq!(condition(&object, "OptimizationReady").0, "True");

    ns.namespace.api::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    let object = ns.wait_for_condition("llama", "TargetResolved", missing).await;
    assert_eq!(desired(&object), Some(2), "the decision is kept until the target exists again");
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    ns.record_kubectl_output("llama", "target-gone").await;
}

#[tokio::test]
async fn manual_scaling_is_observed_and_reverted() {
    let Some(ns) = TestNamespace::open("hand").await else { return };
    ns.deploy("decode", "llama", 2).await;
    ns.apply_variant("llama", spec("decode", "llama", json!({}))).await;
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 36).await;
    ns.wait_until_settled("llama", 2).await;
    ns.scale_workload("decode", 4).await;
    let object = ns.wait_for("llama", "four replicas are running", |object| current(object) == Some(4)).await;
    // While the new pods have no metrics, the operator cannot know that they are too many.
    assert!((2..=4).contains(&desired(&object).unwrap()), "{object:#}");
    ns.record_kubectl_output("llama", "scaled-by-hand").await;
    // The HPA restores the desired replicas.
    let hpa = FakeHpa::start(&ns, &ns.probe);
    ns.wait_until_settled("llama", 2).await;
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;

    drop(hpa);
    ns.scale_workload("decode", 1).await;
    let object = ns.wait_for("llama", "one replica is running", |object| current(object) == Some(1)).await;
    assert_eq!(desired(&object), Some(2), "manual scaling does not change the desired replicas");
    ns.wait_for_gauges("llama", [Some(2.0), Some(1.0), Some(2.0)]).await;
}

#[tokio::test]
async fn deleted_object_removes_only_its_series() {
    let Some(ns) = TestNamespace::open("leaving").await else { return };
    for name in ["stays", "goes"] {
        ns.deploy(name, name, 1).await;
        ns.apply_variant(name, spec(name, name, json!({}))).await;
    }
    let _loads = (LoadGenerator::idle(&ns, "stays").await, LoadGenerator::idle(&ns, "goes").await);
    for name in ["stays", "goes"] {
        ns.wait_until_settled(name, 1).await;
        ns.wait_for_gauges(name, [Some(1.0), Some(1.0), Some(1.0)]).await;
    }
    ns.probe.wait_for_reconciles(2).await;
    let before = ns.object("stays").await;
    ns.delete_variant("goes").await;
    let gone = wait::eventually("no series has its name", async || {
        let text = ns.probe.metrics().await?;
        let label = format!("namespace=\"{}\"", ns.name());
        let found = text.lines().any(|line| line.contains(&label) && line.contains("variant_name=\"goes\""));
        (!found).then_some(())
    });
    gone.await.unwrap();
    ns.probe.wait_for_reconciles(2).await;
    let after = ns.object("stays").await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&before), version(&after), "{after:#}");
    assert_eq!(ns.gauges("stays").await, [Some(1.0), Some(1.0), Some(1.0)]);
    assert!(ns.namespace.get::<Deployment>("goes").await.unwrap().is_some(), "the workload is not owned by the object");
}

#[tokio::test]
async fn invalid_object_does_not_affect_others() {
    let Some(ns) = TestNamespace::open("bad").await else { return };
    for name in ["sound", "odd-number"] {
        ns.deploy(name, "llama", 1).await;
    }
    // The first object has an unknown target kind, the second a cost that is too large for a number.
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Rollout", "name": "decode" });
    ns.apply_variant("odd-kind", spec("x", "other", json!({ "scaleTargetRef": unknown }))).await;
    let endless = "9".repeat(400);
    ns.apply_variant("odd-number", spec("odd-number", "llama", json!({ "variantCost": endless }))).await;
    ns.apply_variant("sound", spec("sound", "llama", json!({ "variantCost": "5" }))).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(2, 60).await;
    ns.wait_until_settled("sound", 2).await;
    let object =
        ns.wait_for_condition("odd-kind", "TargetResolved", ["Unknown", "TargetUnknown", "Rollout decode"]).await;
    assert_eq!(condition(&object, "OptimizationReady").1, "OptimizationFailed");
    assert_eq!(desired(&object), None);
    ns.record_kubectl_output("odd-kind", "odd-kind").await;
    let object = ns.object("odd-number").await;
    assert_eq!(condition(&object, "SpecAccepted").1, "VariantCostInvalid");
    assert!(condition(&object, "SpecAccepted").2.contains("10 is used"), "{object:#}");
    ns.record_kubectl_output("odd-number", "odd-number").await;

    // The environment contains an object that cannot be decoded, older than all others.
    let is_warning = |line: &Value| line["msg"] == "cannot decode a VariantAutoscaling; it is not reconciled";
    let lines: Vec<Value> = ns.probe.log_lines().into_iter().filter(is_warning).collect();
    assert_eq!(lines.len(), 1, "expected one log line: {lines:?}");
    assert_eq!((&lines[0]["namespace"], &lines[0]["name"]), (&json!(INVALID_OBJECT.0), &json!(INVALID_OBJECT.1)));
    let cause = lines[0]["cause"].as_str().unwrap();
    assert!(cause.contains("variantCost"), "the cause names the field: {cause}");
    let object = objects(&ns.admin, Family::Va, INVALID_OBJECT.0, "v1alpha1").get(INVALID_OBJECT.1).await.unwrap();
    assert_eq!(object.data["status"], Value::Null, "the object is not reconciled");
    let events: Api<Event> = Api::namespaced(ns.admin.clone(), INVALID_OBJECT.0);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let unreadable: Vec<_> = events.iter().filter(|event| event.reason.as_deref() == Some("SpecUnreadable")).collect();
    assert_eq!(unreadable.len(), 1, "{events:?}");
    assert!(unreadable[0].message.as_ref().is_some_and(|message| message.contains(cause)), "{unreadable:?}");
}
