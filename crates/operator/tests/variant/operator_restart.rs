//! Restart of the operator after a kill, and its idle state without objects.

use serde_json::json;

use crate::fake_hpa::FakeHpa;
use crate::load_generator::LoadGenerator;
use crate::operator::DedicatedOperator;
use crate::test_namespace::{TestNamespace, spec};

#[tokio::test]
async fn killed_operator_resumes_and_idle_operator_stops() {
    let Some(ns) = TestNamespace::excluded("killed").await else { return };
    let mut operator = DedicatedOperator::start(ns.env.cluster, ns.name()).await;
    operator.use_prometheus(&ns.admin, &ns.env.prometheus).await;
    let mut ns = TestNamespace { probe: operator.probe.clone(), ..ns };
    ns.deploy("decode", "llama", 1).await;
    ns.apply_variant("llama", spec("decode", "llama", json!({}))).await;
    let hpa = FakeHpa::start(&ns, &ns.probe);
    let load = LoadGenerator::new(&ns, "llama").await;
    load.start_load(1, 30).await;
    ns.wait_until_settled("llama", 2).await;
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    ns.assert_unchanged_for(1, &["llama"]).await;
    let before = ns.object("llama").await;

    // Without the HPA, the first published values cannot be hidden by a later scaling.
    drop(hpa);
    operator.kill();
    operator.restart();
    ns.probe = operator.probe.clone();
    ns.probe.wait_for_log("controller started").await;
    ns.wait_for_gauges("llama", [Some(2.0), Some(2.0), Some(1.0)]).await;
    let _hpa = FakeHpa::start(&ns, &ns.probe);
    ns.assert_unchanged_for(1, &["llama"]).await;
    assert_eq!(ns.object("llama").await["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(ns.events("llama", "ScaledUp").await.len(), 1, "the event is published once, across restarts");

    // After the deletion of the last object, the operator stops reconciling.
    ns.delete_variant("llama").await;
    ns.probe.wait_for_log("No active VariantAutoscalings found, skipping optimization").await;
    let reconciles = || operator.probe.log_count("Starting reconciliation");
    let before = reconciles();
    // Reconciles of the shared operator measure the time; they need an object.
    let Some(clock) = TestNamespace::open("clock").await else { return };
    clock.apply_variant("hand", spec("nothing", "none", json!({}))).await;
    clock.probe.wait_for_reconciles(3).await;
    // A reconcile at the time of the deletion may observe it before its event, which triggers one more. An operator that
    // does not stop would have made as many reconciles as the shared one.
    let idle = reconciles();
    assert!(idle <= before + 1, "{} reconciles without objects", idle - before);
    ns.apply_variant("again", spec("decode", "llama", json!({}))).await;
    ns.wait_until_settled("again", 2).await;
    ns.probe.wait_for_reconciles(2).await;
    assert!(reconciles() > idle + 2, "reconciles continue with a new object");
}
