//! Changes that trigger a reconcile and changes that do not, by the log lines and counters that users check.

use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::DeleteParams;
use steersman_testkit::operator::LONG_LEASE_ARGS;
use steersman_testkit::{metrics, wait};

use super::process::until_desired;
use super::*;
use crate::process::operator::OperatorProcess;

const CONFIG_CHANGED_LINE: &str = "ConfigMap changed, triggering global reconciliation";
const STARTED_LINE: &str = "Starting reconciliation";
const SKIPPED_LINE: &str = "No VariantAutoscalings found, skipping ConfigMap reconciliation";
const EMPTY_FLEET_LINE: &str = "No active VariantAutoscalings found, skipping optimization";

/// A reconcile interval that no test reaches.
const UNREACHED_INTERVAL: &str = "1h";

impl TestNamespace {
    async fn start(&self, installation: &TestInstallation, more: &[&str]) -> OperatorProcess {
        installation.start("va", &[&self.flags()[..], &LONG_LEASE_ARGS, more].concat()).await
    }

    async fn create_fleet(&self, count: usize) {
        self.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": UNREACHED_INTERVAL })).await;
        for number in 0..count {
            self.deploy(&format!("decode-{number}"), 1).await;
            self.create(&format!("v-{number}"), spec(&format!("decode-{number}"))).await;
        }
    }
}

/// Numbers of completed reconciles and of decisions.
async fn reconcile_counts(operator: &OperatorProcess) -> (u64, u64) {
    // A process that has just started may not answer yet.
    let answer = wait::eventually("metrics are served", async || operator.metrics("/metrics", None).await).await;
    let (_, text) = answer.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let sum = |series: &str| metrics::sum_series(&text, series) as u64;
    (sum("controller_runtime_reconcile_total{controller=\"va\""), sum("steersman_fleet_decisions_total"))
}

async fn until_reconciles(operator: &OperatorProcess, reconciles: u64) {
    let what = format!("{reconciles} reconciles");
    let reached = wait::eventually(&what, async || (reconcile_counts(operator).await.0 >= reconciles).then_some(()));
    reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

fn changed_lines(operator: &OperatorProcess, map: &str) -> usize {
    operator.count_logged(CONFIG_CHANGED_LINE, |line| line["configMap"] == map)
}

#[tokio::test]
async fn config_change_causes_one_line_and_reconcile() {
    let Some(test) = TestNamespace::new("trigger").await else { return };
    test.create_fleet(10).await;
    let (_lease_lock, installation) = test.installation().await;
    let operator = test.start(&installation, &[]).await;
    until_reconciles(&operator, 1).await;
    assert_eq!(reconcile_counts(&operator).await, (1, 10), "{}", operator.log());

    // Each change of a ConfigMap: its name, and the new data or None for a deletion. The main ConfigMap has two names.
    let mut reconciles = 1;
    for (map, data) in [
        (MAIN_CONFIG, Some(json!({ "GLOBAL_OPT_INTERVAL": "2h" }))),
        (SCALE_TO_ZERO_CONFIG, Some(json!({ "__defaults__": "enableScaleToZero: false" }))),
        (SCALE_TO_ZERO_CONFIG, Some(json!({ "__defaults__": "enableScaleToZero: true" }))),
        ("variantautoscaling-config", Some(json!({ "GLOBAL_OPT_INTERVAL": UNREACHED_INTERVAL }))),
        ("accelerator-unit-costs", Some(json!({ "A100": r#"{"device": "A100", "cost": "40"}"# }))),
        ("wva-saturation-scaling-config", Some(json!({ "default": "kvCacheThreshold: 0.8" }))),
        (SCALE_TO_ZERO_CONFIG, None),
    ] {
        let before = changed_lines(&operator, map);
        match data {
            Some(data) => test.set_config(map, data).await,
            None => drop(test.settings.api::<ConfigMap>().delete(map, &DeleteParams::default()).await.unwrap()),
        }
        reconciles += 1;
        until_reconciles(&operator, reconciles).await;
        // A second reconcile for an earlier change would be counted by now.
        assert_eq!(reconcile_counts(&operator).await, (reconciles, reconciles * 10), "{map}\n{}", operator.log());
        assert_eq!(changed_lines(&operator, map), before + 1, "{}", operator.log());
    }
    let is_expected = |line: &Value| line["totalVAs"] == 10 && line["trigger"] == "v-0" && line["level"] == "INFO";
    assert_eq!(operator.count_logged(CONFIG_CHANGED_LINE, is_expected), 7, "{}", operator.log());
    assert_eq!(operator.count_logged(STARTED_LINE, |_| true), 8);
    operator.assert_log_is_json();
}

#[tokio::test]
async fn irrelevant_changes_cause_no_reconcile() {
    let Some(test) = TestNamespace::new("other").await else { return };
    test.create_fleet(2).await;
    let (_lease_lock, installation) = test.installation().await;
    // A minimal debounce window, so that no change is hidden in the reconcile of another.
    let operator = test.start(&installation, &["--variant-debounce", "1ms"]).await;
    until_reconciles(&operator, 1).await;

    test.set_config("something-else", json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    set_config_map(&test.namespace, MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    let elsewhere = test.cluster.namespace("elsewhere").await.unwrap();
    set_config_map(&elsewhere, SCALE_TO_ZERO_CONFIG, json!({ "__defaults__": "enableScaleToZero: true" })).await;
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "1" } } }));
    let params = PatchParams::default();
    test.settings.api::<ConfigMap>().patch(MAIN_CONFIG, &params, &note).await.unwrap();
    test.objects().patch("v-0", &params, &note).await.unwrap();
    test.namespace.api::<Deployment>().patch("decode-0", &params, &note).await.unwrap();
    Api::<CoreNamespace>::all(test.admin.clone()).patch(test.namespace.name(), &params, &note).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "currentAlloc": { "numReplicas": 1 } } }));
    test.objects().patch_status("v-0", &params, &status).await.unwrap();
    test.deploy("nobodys", 1).await;

    // Events of a watch arrive in order, so a reconcile for any change above would come before these.
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "2h" })).await;
    until_reconciles(&operator, 2).await;
    test.scale("decode-1", 2).await;
    until_reconciles(&operator, 3).await;
    let bound = Patch::Merge(json!({ "spec": { "maxReplicas": 5 } }));
    test.objects().patch("v-1", &params, &bound).await.unwrap();
    until_reconciles(&operator, 4).await;
    assert_eq!(reconcile_counts(&operator).await, (4, 8), "{}", operator.log());
    assert_eq!(operator.count_logged(CONFIG_CHANGED_LINE, |_| true), 1, "{}", operator.log());
    assert_eq!(operator.count_logged(STARTED_LINE, |_| true), 4, "{}", operator.log());
}

#[tokio::test]
async fn debounced_changes_cause_one_reconcile() {
    let Some(test) = TestNamespace::new("settle").await else { return };
    test.create_fleet(3).await;
    let (_lease_lock, installation) = test.installation().await;
    let operator = test.start(&installation, &["--variant-debounce", "5s"]).await;
    until_reconciles(&operator, 1).await;
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "2h" })).await;
    test.set_config(SCALE_TO_ZERO_CONFIG, json!({ "__defaults__": "enableScaleToZero: true" })).await;
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "3h" })).await;
    test.scale("decode-1", 2).await;
    until_reconciles(&operator, 2).await;
    assert_eq!(
        (changed_lines(&operator, MAIN_CONFIG), changed_lines(&operator, SCALE_TO_ZERO_CONFIG)),
        (2, 1),
        "{}",
        operator.log()
    );
    assert_eq!(reconcile_counts(&operator).await, (2, 6), "{}", operator.log());
    assert_eq!(test.status("v-1").await["currentAlloc"]["numReplicas"], 2);

    // An HPA must not follow a deleted object until the debounced reconcile.
    test.objects().delete("v-2", &DeleteParams::default()).await.unwrap();
    let without_series = wait::eventually("the series of the deleted object are gone", async || {
        let (_, text) = operator.metrics("/metrics", None).await?;
        (!text.contains(r#"variant_name="v-2""#)).then_some(text)
    });
    let text = without_series.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert!(text.contains(r#"variant_name="v-1""#), "{text}");
    let reconciles = metrics::sum_series(&text, "controller_runtime_reconcile_total{controller=\"va\"");
    assert_eq!(reconciles as u64, 2, "{}", operator.log());
}

#[tokio::test]
async fn config_change_without_objects_only_logs() {
    let Some(test) = TestNamespace::new("empty").await else { return };
    test.create_fleet(0).await;
    let (_lease_lock, installation) = test.installation().await;
    // A minimal debounce window, so that a reconcile without objects is not merged with the one for the first object.
    let operator = test.start(&installation, &["--variant-debounce", "1ms"]).await;
    operator.wait_for_log("controller started").await;
    // A change before the initial list is complete is part of that list, so the change is repeated until it is logged.
    let mut hours = 2;
    let skipped = wait::eventually(SKIPPED_LINE, async || {
        test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": format!("{hours}h") })).await;
        hours += 1;
        operator.has_logged(SKIPPED_LINE).then_some(())
    });
    skipped.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert!(operator.count_logged(SKIPPED_LINE, |line| line["configMap"] == MAIN_CONFIG) > 0);
    // This change comes last on the same watch: when it is logged, no earlier change is pending.
    test.set_config(SCALE_TO_ZERO_CONFIG, json!({ "__defaults__": "enableScaleToZero: false" })).await;
    let last = async || {
        (operator.count_logged(SKIPPED_LINE, |line| line["configMap"] == SCALE_TO_ZERO_CONFIG) > 0).then_some(())
    };
    let last = wait::eventually("the last change is logged", last).await;
    last.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert!(!operator.has_logged(STARTED_LINE) && !operator.has_logged(CONFIG_CHANGED_LINE), "{}", operator.log());

    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    // The object may be observed before its target, which causes a reconcile of its own.
    until_desired(&test, "v", 2, &operator).await;
    // The interval alone now triggers reconciles.
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    until_reconciles(&operator, 5).await;
    assert_eq!(operator.count_logged(CONFIG_CHANGED_LINE, |_| true), 1, "{}", operator.log());
    // A reconcile without objects logs this, even one that began only after the checks above.
    assert!(!operator.has_logged(EMPTY_FLEET_LINE), "{}", operator.log());
}
