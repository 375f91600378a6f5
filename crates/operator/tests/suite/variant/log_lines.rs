//! Log lines that users of the Go operator search for: written once, not with every reconcile.

use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;

#[tokio::test]
async fn go_operator_log_lines_appear_once() {
    let Some(test) = TestNamespace::new("lines").await else { return };
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    let entry = "modelID: meta/llama\nenableScaleToZero: true";
    test.set_config(SCALE_TO_ZERO_CONFIG, json!({ "model.a": entry, "model.b": entry })).await;
    test.deploy("decode", 1).await;
    test.create("old", spec("decode")).await;
    test.create("young", spec("decode")).await;
    let deleting = json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": { "name": "leaving", "finalizers": ["example.com/stay"] }, "spec": spec("other") });
    test.objects().create(&PostParams::default(), &object(deleting)).await.unwrap();
    test.objects().delete("leaving", &DeleteParams::default()).await.unwrap();
    let (_lease_lock, installation) = test.installation().await;
    let operator = installation.start_with("va", &test.flags(), &[("WVA_SCALE_TO_ZERO", "True")]).await;
    for (reconciles, interval) in [(1, "2h"), (2, "3h"), (3, "4h")] {
        let what = format!("{reconciles} reconciles");
        let started = || operator.count_logged("Starting reconciliation", |_| true);
        let reached = wait::eventually(&what, async || (started() >= reconciles).then_some(())).await;
        reached.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
        test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": interval })).await;
    }
    let always = |_: &Value| true;
    let field_is = |line: &Value, field: &str, value: &str| line[field] == value;
    let costs = "Warning: Multiple variants detected with some using default variantCost";
    let conflict =
        "Several VariantAutoscalings target the same deployment: the oldest decides, the others are suppressed";
    let suppressed = format!("{}/young", test.namespace.name());
    let duplicate =
        "Duplicate modelID found in scale-to-zero ConfigMap - first key wins (lexicographic order): meta/llama";
    for (count, what) in [
        (operator.count_logged("Scaling to zero is enabled!", always), "scale to zero"),
        (
            operator.count_logged("skipping deleted variantAutoscaling", |line| field_is(line, "name", "leaving")),
            "deleting object",
        ),
        (operator.count_logged(costs, |line| line["variantsUsingDefault"] == 2), "default costs"),
        (operator.count_logged(conflict, |line| field_is(line, "suppressed", &suppressed)), "target conflict"),
        (operator.log().matches(duplicate).count(), "duplicate model"),
    ] {
        assert_eq!(count, 1, "{what}: {}", operator.log());
    }
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    test.objects().patch("leaving", &PatchParams::default(), &none).await.unwrap();
}
