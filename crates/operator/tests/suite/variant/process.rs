//! `steersman run --controllers va` as a process, under the operator's ServiceAccount with exactly the shipped roles.

use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;
use crate::process::operator::OperatorProcess;

pub async fn until_desired(test: &TestNamespace, name: &str, replicas: i64, operator: &OperatorProcess) {
    let what = format!("{name} has {replicas} desired replicas");
    let reached = wait::eventually(&what, async || (test.desired(name).await == Some(replicas)).then_some(()));
    reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

#[tokio::test]
async fn watches_drive_variant_through_its_lifecycle() {
    let Some(test) = TestNamespace::new("life").await else { return };
    test.set_config(MAIN_CONFIG, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    let (_lease_lock, installation) = test.installation().await;
    let operator = installation.start("va", &test.flags()).await;
    test.create("v", spec("decode")).await;
    let until_target_resolved = async |reason: &str| {
        let what = format!("TargetResolved is {reason}");
        let reached = wait::eventually(&what, async || {
            (condition(&test.status("v").await, "TargetResolved").1 == reason).then_some(())
        });
        reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    };
    until_target_resolved("TargetNotFound").await;
    test.deploy("decode", 2).await;
    until_desired(&test, "v", 2, &operator).await;
    until_target_resolved("TargetFound").await;
    test.scale("decode", 4).await;
    until_desired(&test, "v", 4, &operator).await;
    let patch = Patch::Merge(json!({ "spec": { "maxReplicas": 3 } }));
    test.objects().patch("v", &PatchParams::default(), &patch).await.unwrap();
    until_desired(&test, "v", 3, &operator).await;
    let series = format!(
        "wva_desired_replicas{{target_name=\"decode\",target_kind=\"Deployment\",variant_name=\"v\",\
         namespace=\"{}\",accelerator_type=\"A100\"}} 3",
        test.namespace.name()
    );
    operator.until_metric(&series).await;
    test.namespace.api::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    until_target_resolved("TargetNotFound").await;
    operator.until_metric(&series).await;

    test.objects().delete("v", &DeleteParams::default()).await.unwrap();
    let gone = wait::eventually("the series of the object are removed", async || {
        let (_, text) = operator.metrics("/metrics", None).await?;
        (!text.contains("variant_name=\"v\"")).then_some(())
    });
    gone.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    operator.wait_for_log("No active VariantAutoscalings found, skipping optimization").await;
    let forbidden = |line: &Value| line["cause"].as_str().is_some_and(|cause| cause.contains("forbidden"));
    let broken = operator.count_logged("watch failed; it is restarted until it works", forbidden);
    assert_eq!(broken, 0, "{}", operator.log());
    operator.assert_log_is_json();
}
