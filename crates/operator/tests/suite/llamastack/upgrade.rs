//! Upgrade to an operator with another image for the same distribution name: image and configuration change together, or
//! not at all.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::generated_config::{
    condition, ensure_startable, final_state, finish_rollout, generated_config_maps, mounted_config_map,
    vllm_distribution,
};
use super::*;

const OLD_IMAGE: &str = "docker.io/llamastack/distribution-starter:0.6.0";

/// The reconciler of an earlier operator, which had another image for the name.
fn old_reconciler() -> LlamaStack {
    let mut old = reconciler();
    old.settings.operator_version = "0.0.1".to_owned();
    old.settings.distributions.insert("starter".to_owned(), OLD_IMAGE.to_owned());
    old
}

async fn reconcile_with(
    reconciler: &LlamaStack,
    cluster: &Cluster,
    client: Client,
    namespace: &str,
) -> Result<ReconcileOutcome> {
    let view = view(cluster, &client, namespace).await?;
    let context = ReconcileContext {
        cache: view.cache.clone(),
        ..ReconcileContext::new(reconciler, server(cluster, client), "test")
    };
    reconcile(reconciler, &context, &view.object).await.context("reconcile failed")
}

/// Runs a distribution with the old operator.
async fn prepare_old_deployment(cluster: &Cluster, client: &Client, namespace: &Namespace) -> Result<()> {
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await?;
    objects(client, namespace.name()).create(&PostParams::default(), &object(vllm_distribution())).await?;
    for _ in 0..3 {
        reconcile_with(&old_reconciler(), cluster, client.clone(), namespace.name()).await?;
        finish_rollout(namespace).await;
    }
    Ok(())
}

async fn image(namespace: &Namespace) -> String {
    let deployment = namespace.api::<Deployment>().get("starter").await.unwrap();
    deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap()
}

/// Covers FR-020b, FR-020c and FR-100.
#[tokio::test]
async fn operator_upgrade_updates_image_in_one_write() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("upgrade").await.unwrap();
    let name = namespace.name();
    prepare_old_deployment(cluster, &admin, &namespace).await.unwrap();
    assert_eq!(image(&namespace).await, OLD_IMAGE);
    let resolved =
        async || objects(&admin, name).get("starter").await.unwrap().data["status"]["resolvedDistribution"].clone();
    assert_eq!(resolved().await["image"], OLD_IMAGE);
    let before = namespace.api::<Deployment>().get("starter").await.unwrap();

    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    let after = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(image(&namespace).await, "docker.io/llamastack/distribution-starter:0.7.1");
    assert_eq!(
        after.metadata.generation,
        before.metadata.generation.map(|old| old + 1),
        "image and configuration must change in one write"
    );
    ensure_startable(&namespace).await.unwrap();
    assert_eq!(resolved().await["image"], image(&namespace).await, "FR-020a");
}

/// FR-101: the new operator cannot generate a configuration that the old one could.
#[tokio::test]
async fn failed_config_after_upgrade_keeps_deployment() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("upgrade-failed").await.unwrap();
    let name = namespace.name();
    prepare_old_deployment(cluster, &admin, &namespace).await.unwrap();
    let (mounted, maps) = (mounted_config_map(&namespace).await, generated_config_maps(&namespace).await);
    let before = namespace.api::<Deployment>().get("starter").await.unwrap();

    let mut newer = reconciler();
    newer.settings.distributions.remove("starter");
    reconcile_with(&newer, cluster, admin.clone(), name).await.unwrap();
    let condition = condition(&admin, &namespace, "ConfigGenerated").await;
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("UpgradeConfigFailure")));
    assert!(
        condition["message"].as_str().unwrap().starts_with("Config generation failed after operator upgrade: "),
        "{condition}"
    );
    let after = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!((mounted_config_map(&namespace).await, generated_config_maps(&namespace).await), (mounted, maps));
    assert!(namespace.api::<ConfigMap>().get_opt(&mounted_config_map(&namespace).await).await.unwrap().is_some());
}

#[tokio::test]
async fn upgrade_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        "upgrade-crash",
        (CountedCalls::Writes, &[CallFault::NotSent, CallFault::ResponseLost]),
        async |namespace: &Namespace| prepare_old_deployment(cluster, &admin, namespace).await,
        async |client, namespace: &Namespace, ()| {
            reconcile_once(cluster, client, namespace.name()).await?;
            finish_rollout(namespace).await;
            Ok(())
        },
        async |namespace: &Namespace| ensure_startable(namespace).await,
        async |namespace: &Namespace| final_state(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 2, "Deployment, status: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}
