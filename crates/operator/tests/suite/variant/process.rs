//! `steersman run --controllers va` as a process, as the operator's account with exactly the rights that are shipped.

use kube::api::DeleteParams;
use steersman_testkit::wait;

use super::*;
use crate::process::operator::Operator;

pub async fn until_desired(scene: &Scene, name: &str, replicas: i64, operator: &Operator) {
    let what = format!("{name} is to have {replicas} replicas");
    let is = wait::eventually(&what, async || (scene.desired(name).await == Some(replicas)).then_some(()));
    is.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

#[tokio::test]
async fn a_variant_lives_by_watches_alone() {
    let Some(scene) = Scene::new("life").await else { return };
    scene.set(MAIN, json!({ "GLOBAL_OPT_INTERVAL": "1h" })).await;
    let (_turn, place) = scene.place().await;
    let operator = place.start("va", &scene.flags()).await;
    scene.create("v", spec("decode")).await;
    let resolved = async |reason: &str| {
        let what = format!("TargetResolved is {reason}");
        let told = wait::eventually(&what, async || {
            (condition(&scene.status("v").await, "TargetResolved").1 == reason).then_some(())
        });
        told.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    };
    resolved("TargetNotFound").await;
    scene.deploy("decode", 2).await;
    until_desired(&scene, "v", 2, &operator).await;
    resolved("TargetFound").await;
    scene.scale("decode", 4).await;
    until_desired(&scene, "v", 4, &operator).await;
    let patch = Patch::Merge(json!({ "spec": { "maxReplicas": 3 } }));
    scene.objects().patch("v", &PatchParams::default(), &patch).await.unwrap();
    until_desired(&scene, "v", 3, &operator).await;
    let series = format!(
        "wva_desired_replicas{{target_name=\"decode\",target_kind=\"Deployment\",variant_name=\"v\",\
         namespace=\"{}\",accelerator_type=\"A100\"}} 3",
        scene.namespace.name()
    );
    operator.until_metric(&series).await;
    scene.namespace.all::<Deployment>().delete("decode", &DeleteParams::default()).await.unwrap();
    resolved("TargetNotFound").await;
    operator.until_metric(&series).await;

    scene.objects().delete("v", &DeleteParams::default()).await.unwrap();
    let gone = wait::eventually("its series are gone", async || {
        let (_, text) = operator.metrics("/metrics", None).await?;
        (!text.contains("variant_name=\"v\"")).then_some(())
    });
    gone.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    operator.until_said("No active VariantAutoscalings found, skipping optimization").await;
    let forbidden = |line: &Value| line["cause"].as_str().is_some_and(|cause| cause.contains("forbidden"));
    let broken = operator.times_said("a watch broke off and is begun again until it holds", forbidden);
    assert_eq!(broken, 0, "{}", operator.log());
    operator.assert_log_is_json();
}
