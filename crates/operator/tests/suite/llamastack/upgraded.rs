//! A newer operator with another image for the same name: image and configuration move together, or not at all.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::configured::{condition, generated, mounted, observed, startable, vllm};
use super::*;

const OLD_IMAGE: &str = "docker.io/llamastack/distribution-starter:0.6.0";

/// As an earlier version of the operator, which had another image for the name.
fn older() -> LlamaStack {
    let mut family = family();
    family.settings.operator_version = "0.0.1".to_owned();
    family.settings.distributions.insert("starter".to_owned(), OLD_IMAGE.to_owned());
    family
}

async fn pass_as(family: &LlamaStack, cluster: &Cluster, client: Client, namespace: &str) -> Result<ReconcileOutcome> {
    let view = view(cluster, &client, namespace).await?;
    let context = ReconcileContext {
        cache: view.cache.clone(),
        ..ReconcileContext::new(family, server(cluster, client), "test")
    };
    reconcile(family, &context, &view.object).await.context("a pass")
}

/// What the older operator leaves running.
async fn prepared(cluster: &Cluster, client: &Client, namespace: &Namespace) -> Result<()> {
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.all::<Secret>().create(&PostParams::default(), &secret).await?;
    objects(client, namespace.name()).create(&PostParams::default(), &object(vllm())).await?;
    for _ in 0..3 {
        pass_as(&older(), cluster, client.clone(), namespace.name()).await?;
        observed(namespace).await;
    }
    Ok(())
}

async fn image(namespace: &Namespace) -> String {
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap()
}

/// FR-020b, FR-020c, FR-100.
#[tokio::test]
async fn a_newer_operator_changes_image_and_status_in_one_step() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("upgrade").await.unwrap();
    let name = namespace.name();
    prepared(cluster, &admin, &namespace).await.unwrap();
    assert_eq!(image(&namespace).await, OLD_IMAGE);
    let resolved =
        async || objects(&admin, name).get("starter").await.unwrap().data["status"]["resolvedDistribution"].clone();
    assert_eq!(resolved().await["image"], OLD_IMAGE);
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();

    pass_once(cluster, admin.clone(), name).await.unwrap();
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(image(&namespace).await, "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(after.metadata.generation, before.metadata.generation.map(|old| old + 1), "one write");
    startable(&namespace).await.unwrap();
    assert_eq!(resolved().await["image"], image(&namespace).await, "FR-020a");
}

/// FR-101: the newer operator cannot build what the older one could.
#[tokio::test]
async fn a_newer_operator_that_cannot_build_the_configuration_leaves_what_runs() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("upgrade-failed").await.unwrap();
    let name = namespace.name();
    prepared(cluster, &admin, &namespace).await.unwrap();
    let (running, maps) = (mounted(&namespace).await, generated(&namespace).await);
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();

    let mut newer = family();
    newer.settings.distributions.remove("starter");
    pass_as(&newer, cluster, admin.clone(), name).await.unwrap();
    let told = condition(&admin, &namespace, "ConfigGenerated").await;
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("UpgradeConfigFailure")));
    assert!(
        told["message"].as_str().unwrap().starts_with("Config generation failed after operator upgrade: "),
        "{told}"
    );
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!((mounted(&namespace).await, generated(&namespace).await), (running, maps));
    assert!(namespace.all::<ConfigMap>().get_opt(&mounted(&namespace).await).await.unwrap().is_some());
}

#[tokio::test]
async fn an_upgrade_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere_and(
        cluster,
        "upgrade-crash",
        (Calls::Writes, &[Cut::NotSent, Cut::AnswerLost]),
        async |namespace: &Namespace| prepared(cluster, &admin, namespace).await,
        async |client, namespace: &Namespace, ()| {
            pass_once(cluster, client, namespace.name()).await?;
            observed(namespace).await;
            Ok(())
        },
        async |namespace: &Namespace| startable(namespace).await,
        async |namespace: &Namespace| super::configured::left(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 2, "the Deployment and the status: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}
