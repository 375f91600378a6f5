//! Lines of the log that people of the Go operator look for, as a process says them: once, not with every pass.

use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn what_people_look_for_in_the_log_is_said_once_however_many_passes_there_are() {
    let Some(scene) = Scene::new("lines").await else { return };
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    let entry = "modelID: meta/llama\nenableScaleToZero: true";
    scene.set(ZERO, json!({ "model.a": entry, "model.b": entry })).await;
    scene.deploy("decode", 1).await;
    scene.create("old", spec("decode")).await;
    scene.create("young", spec("decode")).await;
    let leaving = json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": "leaving", "finalizers": ["example.com/stay"] }, "spec": spec("other") });
    scene.objects().create(&PostParams::default(), &object(leaving)).await.unwrap();
    scene.objects().delete("leaving", &DeleteParams::default()).await.unwrap();
    let (_turn, place) = scene.place().await;
    let operator = place.start_with("va", &scene.flags(), &[("WVA_SCALE_TO_ZERO", "True")]).await;
    for (passes, interval) in [(1, "2h"), (2, "3h"), (3, "4h")] {
        let what = format!("{passes} passes");
        let began = || operator.times_said("Starting reconciliation", |_| true);
        let made = wait::eventually(&what, async || (began() >= passes).then_some(())).await;
        made.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
        scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": interval })).await;
    }
    let always = |_: &Value| true;
    let of = |line: &Value, field: &str, value: &str| line[field] == value;
    let costs = "Warning: Multiple variants detected with some using default variantCost";
    let conflict =
        "Several VariantAutoscalings target the same deployment: the oldest decides, the others are suppressed";
    let suppressed = format!("{}/young", scene.namespace.name());
    let twice = "Duplicate modelID found in scale-to-zero ConfigMap - first key wins (lexicographic order): meta/llama";
    for (count, what) in [
        (operator.times_said("Scaling to zero is enabled!", always), "sleep"),
        (operator.times_said("skipping deleted variantAutoscaling", |line| of(line, "name", "leaving")), "leaving"),
        (operator.times_said(costs, |line| line["variantsUsingDefault"] == 2), "costs"),
        (operator.times_said(conflict, |line| of(line, "suppressed", &suppressed)), "conflict"),
        (operator.log().matches(twice).count(), "twice"),
    ] {
        assert_eq!(count, 1, "{what}: {}", operator.log());
    }
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.objects().patch("leaving", &PatchParams::default(), &none).await.unwrap();
}
