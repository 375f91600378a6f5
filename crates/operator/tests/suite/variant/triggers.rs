//! What makes a pass and what does not, by the log lines and counters that people check it with.

use k8s_openapi::api::core::v1::Namespace as CoreNamespace;
use kube::api::DeleteParams;
use steersman_testkit::operator::STEADY;
use steersman_testkit::{metrics, wait};

use super::process::until_desired;
use super::*;
use crate::process::operator::Operator;

const CHANGED: &str = "ConfigMap changed, triggering global reconciliation";
const BEGAN: &str = "Starting reconciliation";
const SKIPPED: &str = "No VariantAutoscalings found, skipping ConfigMap reconciliation";

/// No tick comes in between.
const RARELY: &str = "1h";

impl Scene {
    async fn start(&self, place: &Place, more: &[&str]) -> Operator {
        place.start("va", &[&self.flags()[..], &STEADY, more].concat()).await
    }

    async fn fleet(&self, count: usize) {
        self.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": RARELY })).await;
        for number in 0..count {
            self.deploy(&format!("decode-{number}"), 1).await;
            self.create(&format!("v-{number}"), spec(&format!("decode-{number}"))).await;
        }
    }
}

/// Passes that got to their end, and what they decided on.
async fn counts(operator: &Operator) -> (u64, u64) {
    // A process that has just begun does not answer yet.
    let answer = wait::eventually("measurements", async || operator.metrics("/metrics", None).await).await;
    let (_, text) = answer.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let sum = |series: &str| metrics::sum(&text, series) as u64;
    (sum("controller_runtime_reconcile_total{controller=\"va\""), sum("steersman_fleet_decisions_total"))
}

async fn until_passes(operator: &Operator, passes: u64) {
    let what = format!("{passes} passes");
    let made = wait::eventually(&what, async || (counts(operator).await.0 >= passes).then_some(()));
    made.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

fn lines(operator: &Operator, map: &str) -> usize {
    operator.times_said(CHANGED, |line| line["configMap"] == map)
}

#[tokio::test]
async fn one_change_of_a_setting_is_one_line_and_one_pass_over_all_objects() {
    let Some(scene) = Scene::new("trigger").await else { return };
    scene.fleet(10).await;
    let (_turn, place) = scene.place().await;
    let operator = scene.start(&place, &[]).await;
    until_passes(&operator, 1).await;
    assert_eq!(counts(&operator).await, (1, 10), "{}", operator.log());

    // Name of the map, and what is done to it. Of the main map both names count.
    let mut made = 1;
    for (map, data) in [
        (MAIN, Some(json!({ "GLOBAL_OPT_INTERVAL": "2h" }))),
        (ZERO, Some(json!({ "__defaults__": "enableScaleToZero: false" }))),
        (ZERO, Some(json!({ "__defaults__": "enableScaleToZero: true" }))),
        ("variantautoscaling-config", Some(json!({ "GLOBAL_OPT_INTERVAL": RARELY }))),
        ("accelerator-unit-costs", Some(json!({ "A100": r#"{"device": "A100", "cost": "40"}"# }))),
        ("wva-saturation-scaling-config", Some(json!({ "default": "kvCacheThreshold: 0.8" }))),
        (ZERO, None),
    ] {
        let before = lines(&operator, map);
        match data {
            Some(data) => scene.set(map, data).await,
            None => drop(scene.settings.all::<ConfigMap>().delete(map, &DeleteParams::default()).await.unwrap()),
        }
        made += 1;
        until_passes(&operator, made).await;
        // An earlier change with a second pass would show by now.
        assert_eq!(counts(&operator).await, (made, made * 10), "{map}\n{}", operator.log());
        assert_eq!(lines(&operator, map), before + 1, "{}", operator.log());
    }
    let told = |line: &Value| line["totalVAs"] == 10 && line["trigger"] == "v-0" && line["level"] == "INFO";
    assert_eq!(operator.times_said(CHANGED, told), 7, "{}", operator.log());
    assert_eq!(operator.times_said(BEGAN, |_| true), 8);
    operator.assert_log_is_json();
}

#[tokio::test]
async fn what_does_not_matter_makes_neither_a_line_nor_a_pass() {
    let Some(scene) = Scene::new("other").await else { return };
    scene.fleet(2).await;
    let (_turn, place) = scene.place().await;
    // So that nothing hides in the pass of something else.
    let operator = scene.start(&place, &["--variant-settle", "1ms"]).await;
    until_passes(&operator, 1).await;

    scene.set("something-else", json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    set(&scene.namespace, MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    let elsewhere = scene.cluster.namespace("elsewhere").await.unwrap();
    set(&elsewhere, ZERO, json!({ "__defaults__": "enableScaleToZero: true" })).await;
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "1" } } }));
    let ours = PatchParams::default();
    scene.settings.all::<ConfigMap>().patch(MAIN, &ours, &note).await.unwrap();
    scene.objects().patch("v-0", &ours, &note).await.unwrap();
    scene.namespace.all::<Deployment>().patch("decode-0", &ours, &note).await.unwrap();
    Api::<CoreNamespace>::all(scene.admin.clone()).patch(scene.namespace.name(), &ours, &note).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "currentAlloc": { "numReplicas": 1 } } }));
    scene.objects().patch_status("v-0", &ours, &status).await.unwrap();
    scene.deploy("nobodys", 1).await;

    // Each watch brings what it sees in order: what the above had caused would come before these.
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "2h" })).await;
    until_passes(&operator, 2).await;
    scene.scale("decode-1", 2).await;
    until_passes(&operator, 3).await;
    let bound = Patch::Merge(json!({ "spec": { "maxReplicas": 5 } }));
    scene.objects().patch("v-1", &ours, &bound).await.unwrap();
    until_passes(&operator, 4).await;
    assert_eq!(counts(&operator).await, (4, 8), "{}", operator.log());
    assert_eq!(operator.times_said(CHANGED, |_| true), 1, "{}", operator.log());
    assert_eq!(operator.times_said(BEGAN, |_| true), 4, "{}", operator.log());
}

#[tokio::test]
async fn several_changes_in_one_settle_window_are_a_line_each_and_one_pass() {
    let Some(scene) = Scene::new("settle").await else { return };
    scene.fleet(3).await;
    let (_turn, place) = scene.place().await;
    let operator = scene.start(&place, &["--variant-settle", "5s"]).await;
    until_passes(&operator, 1).await;
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "2h" })).await;
    scene.set(ZERO, json!({ "__defaults__": "enableScaleToZero: true" })).await;
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "3h" })).await;
    scene.scale("decode-1", 2).await;
    until_passes(&operator, 2).await;
    assert_eq!((lines(&operator, MAIN), lines(&operator, ZERO)), (2, 1), "{}", operator.log());
    assert_eq!(counts(&operator).await, (2, 6), "{}", operator.log());
    assert_eq!(scene.status("v-1").await["currentAlloc"]["numReplicas"], 2);
}

#[tokio::test]
async fn without_objects_a_change_is_one_line_and_nothing_else() {
    let Some(scene) = Scene::new("empty").await else { return };
    scene.fleet(0).await;
    let (_turn, place) = scene.place().await;
    let operator = scene.start(&place, &[]).await;
    operator.until_said("controller started").await;
    // The first change may come before everything was listed, and is then part of what is found.
    let mut hours = 2;
    let skipped = wait::eventually(SKIPPED, async || {
        scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": format!("{hours}h") })).await;
        hours += 1;
        operator.said(SKIPPED).then_some(())
    });
    skipped.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert!(operator.times_said(SKIPPED, |line| line["configMap"] == MAIN) > 0);
    // The same watch brings this one after all of them: none is left that the first object could be found with.
    scene.set(ZERO, json!({ "__defaults__": "enableScaleToZero: false" })).await;
    let last = async || (operator.times_said(SKIPPED, |line| line["configMap"] == ZERO) > 0).then_some(());
    let last = wait::eventually("the last change is told", last).await;
    last.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert!(!operator.said(BEGAN) && !operator.said(CHANGED), "{}", operator.log());

    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    // The object may be seen before its workload is: that is a pass of its own.
    until_desired(&scene, "v", 2, &operator).await;
    // From now on time alone makes passes, without being asked to start again.
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1s" })).await;
    until_passes(&operator, 5).await;
    assert_eq!(operator.times_said(CHANGED, |_| true), 1, "{}", operator.log());
}
