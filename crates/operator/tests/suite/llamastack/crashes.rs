//! User actions, with a crash at every write of the following reconciles. The end state is the same as without a crash,
//! and the Deployment never lacks an object that its pods need.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use steersman_testkit::fault_injection::SweepReport;

use super::generated_config::{
    condition, ensure_startable, final_state, finish_rollout, generated_config_maps, mounted_config_map, set_models,
    vllm_distribution,
};
use super::*;

/// Process deaths: before a write, or after it and before its response.
const CRASHES: [CallFault; 2] = [CallFault::NotSent, CallFault::ResponseLost];

async fn create_secret(namespace: &Namespace) -> Result<()> {
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await?;
    Ok(())
}

async fn delete_secret(namespace: &Namespace) -> Result<()> {
    namespace.api::<Secret>().delete("vllm", &DeleteParams::default()).await?;
    Ok(())
}

/// Creates a configuration of the user's own.
async fn create_user_config(namespace: &Namespace) -> Result<()> {
    let map: ConfigMap = object(json!({ "metadata": { "name": "mine" }, "data": { "config.yaml": "version: 2\n" } }));
    namespace.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    Ok(())
}

async fn patch_spec(client: &Client, namespace: &Namespace, patch: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": patch }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Creates the object and reconciles it until it has settled.
async fn create_settled(cluster: &Cluster, client: &Client, namespace: &Namespace, own: Value) -> Result<()> {
    objects(client, namespace.name()).create(&PostParams::default(), &object(own)).await?;
    for _ in 0..3 {
        reconcile_once(cluster, client.clone(), namespace.name()).await?;
        finish_rollout(namespace).await;
    }
    Ok(())
}

/// Reconciles the state from `prepare` with a crash at each write. The Deployment completes its rollout after each
/// reconcile.
async fn run_with_crashes(
    cluster: &Cluster,
    admin: &Client,
    prefix: &str,
    prepare: impl AsyncFn(&Namespace) -> Result<()>,
    invariant: impl AsyncFn(&Namespace) -> Result<()>,
) -> SweepReport {
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        prefix,
        (CountedCalls::Writes, &CRASHES),
        prepare,
        async |client, namespace: &Namespace, ()| {
            reconcile_once(cluster, client, namespace.name()).await?;
            if namespace.api::<Deployment>().get_opt("starter").await?.is_some() {
                finish_rollout(namespace).await;
            }
            Ok(())
        },
        invariant,
        async |namespace: &Namespace| final_state(admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
    crashes
}

/// A distribution that needs every kind of child.
fn distribution_with_all_children() -> Value {
    let mut own = vllm_distribution();
    own["spec"]["networking"] = json!({ "expose": { "hostname": "llama.example.com" },
       "allowedFrom": { "namespaces": ["apps"] } });
    own["spec"]["workload"] = json!({ "replicas": 2, "autoscaling": { "maxReplicas": 3 },
       "storage": { "size": "5Gi" } });
    own
}

/// Fails if there is a Deployment whose pods cannot start.
async fn ensure_startable_if_deployed(namespace: &Namespace) -> Result<()> {
    match namespace.api::<Deployment>().get_opt("starter").await? {
        Some(_) => ensure_startable(namespace).await,
        None => Ok(()),
    }
}

#[tokio::test]
async fn creation_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        create_secret(namespace).await?;
        objects(&admin, namespace.name())
            .create(&PostParams::default(), &object(distribution_with_all_children()))
            .await?;
        Ok(())
    };
    let crashes = run_with_crashes(cluster, &admin, "create-crash", prepare, ensure_startable_if_deployed).await;
    assert!(crashes.calls >= 10, "nine children, an event, status: {crashes:?}");
}

#[tokio::test]
async fn distribution_change_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        create_secret(namespace).await?;
        create_settled(cluster, &admin, namespace, vllm_distribution()).await?;
        patch_spec(&admin, namespace, json!({ "distribution": { "name": "starter-gpu" } })).await
    };
    // FR-020c: image and configuration always belong to the same distribution.
    let image_matches_config = async |namespace: &Namespace| {
        ensure_startable(namespace).await?;
        let map = namespace.api::<ConfigMap>().get(&mounted_config_map(namespace).await).await?;
        let deployment = namespace.api::<Deployment>().get("starter").await?;
        let image = deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap();
        let gpu = map.data.unwrap()["config.yaml"].contains("distro_name: starter-gpu");
        anyhow::ensure!(
            image.contains("distribution-starter-gpu:") == gpu,
            "{image} with the configuration of the other distribution"
        );
        Ok(())
    };
    let crashes = run_with_crashes(cluster, &admin, "other-crash", prepare, image_matches_config).await;
    assert!(crashes.calls >= 3, "ConfigMap, Deployment, status: {crashes:?}");
}

#[tokio::test]
async fn late_secret_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        objects(&admin, namespace.name()).create(&PostParams::default(), &object(vllm_distribution())).await?;
        reconcile_once(cluster, admin.clone(), namespace.name()).await?;
        let condition = condition(&admin, namespace, "SecretsResolved").await;
        anyhow::ensure!(condition["reason"] == "SecretNotFound", "{condition}");
        create_secret(namespace).await
    };
    let crashes = run_with_crashes(cluster, &admin, "late-crash", prepare, ensure_startable_if_deployed).await;
    assert!(crashes.calls >= 5, "{crashes:?}");
}

#[tokio::test]
async fn secret_deletion_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    // The spec changes at the same time; the change has to wait for the Secret.
    let prepare = async |namespace: &Namespace| {
        create_secret(namespace).await?;
        create_settled(cluster, &admin, namespace, vllm_distribution()).await?;
        delete_secret(namespace).await?;
        set_models(&admin, namespace, &["later"]).await;
        Ok(())
    };
    let untouched = async |namespace: &Namespace| {
        let generation = namespace.api::<Deployment>().get("starter").await?.metadata.generation;
        anyhow::ensure!(generation == Some(1), "the Deployment was changed");
        anyhow::ensure!(generated_config_maps(namespace).await.len() == 1, "another ConfigMap was generated");
        ensure_startable(namespace).await
    };
    let crashes = run_with_crashes(cluster, &admin, "gone-crash", prepare, untouched).await;
    assert!(crashes.calls >= 1, "status: {crashes:?}");
}

/// Fails unless the mounted ConfigMap exists, generated or not.
async fn ensure_mounted_config_exists(namespace: &Namespace) -> Result<()> {
    let name = mounted_config_map(namespace).await;
    let found = namespace.api::<ConfigMap>().get_opt(&name).await?;
    anyhow::ensure!(found.is_some(), "the mounted ConfigMap {name} does not exist");
    Ok(())
}

#[tokio::test]
async fn config_override_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let providers = || vllm_distribution()["spec"]["providers"].clone();
    let enable = async |namespace: &Namespace| {
        create_secret(namespace).await?;
        create_user_config(namespace).await?;
        create_settled(cluster, &admin, namespace, vllm_distribution()).await?;
        patch_spec(&admin, namespace, json!({ "providers": null, "overrideConfig": { "configMapName": "mine" } })).await
    };
    let crashes = run_with_crashes(cluster, &admin, "override-crash", enable, ensure_mounted_config_exists).await;
    assert!(crashes.calls >= 2, "Deployment, status: {crashes:?}");
    let disable = async |namespace: &Namespace| {
        enable(namespace).await?;
        for _ in 0..3 {
            reconcile_once(cluster, admin.clone(), namespace.name()).await?;
            finish_rollout(namespace).await;
        }
        patch_spec(&admin, namespace, json!({ "providers": providers(), "overrideConfig": null })).await
    };
    let crashes = run_with_crashes(cluster, &admin, "generate-crash", disable, ensure_mounted_config_exists).await;
    assert!(crashes.calls >= 2, "{crashes:?}");
}

/// The children at the time of deletion depend on where the reconcile crashed. All of them must be owned by the object,
/// and none may be created while the object is being deleted.
#[tokio::test]
async fn deletion_during_rollout_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        "leaving-crash",
        (CountedCalls::Writes, &CRASHES),
        async |namespace: &Namespace| {
            create_secret(namespace).await?;
            create_settled(cluster, &admin, namespace, distribution_with_all_children()).await?;
            set_models(&admin, namespace, &["later"]).await;
            Ok(())
        },
        async |client, namespace: &Namespace, ()| {
            let own = objects(&admin, namespace.name());
            let deleting = own.get("starter").await?.metadata.deletion_timestamp.is_some();
            let children = async || all_children(&admin, namespace).await;
            let before = children().await?;
            let outcome = reconcile_once(cluster, client, namespace.name()).await;
            if deleting {
                anyhow::ensure!(children().await? == before, "a child was written for an object that is being deleted");
            } else {
                // The user deletes the object during the rollout, whether or not the reconcile succeeded.
                own.delete("starter", &DeleteParams::foreground()).await?;
            }
            outcome.map(|_| ())
        },
        async |namespace: &Namespace| ensure_startable(namespace).await,
        async |namespace: &Namespace| {
            let own = objects(&admin, namespace.name()).get("starter").await?;
            // This cluster has no garbage collector to remove the finalizer of foreground deletion.
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &free).await?;
            let uid = json!(own.metadata.uid);
            let children = all_children(&admin, namespace).await?;
            let orphans = children.iter().filter(|child| child["metadata"]["ownerReferences"][0]["uid"] != uid).count();
            anyhow::ensure!(children.len() >= 8, "expected at least 8 children");
            let phase = own.data["status"]["phase"].clone();
            Ok(vec![json!({ "metadata": { "name": "left" }, "orphans": orphans, "phase": phase })])
        },
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 4, "{crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

/// All children that a reconcile may create.
async fn all_children(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let name = namespace.name();
    let mut children = list_all::<Deployment>(client, name).await?;
    children.extend(list_all::<Service>(client, name).await?);
    children.extend(list_all::<PersistentVolumeClaim>(client, name).await?);
    children.extend(list_all::<ServiceAccount>(client, name).await?);
    children.extend(list_all::<ConfigMap>(client, name).await?);
    children.extend(list_all::<k8s_openapi::api::networking::v1::Ingress>(client, name).await?);
    children.extend(list_all::<k8s_openapi::api::networking::v1::NetworkPolicy>(client, name).await?);
    children.extend(list_all::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>(client, name).await?);
    children.extend(list_all::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(client, name).await?);
    children.retain(|child| !child["metadata"]["ownerReferences"].is_null());
    Ok(children)
}

#[tokio::test]
async fn first_reconcile_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call(
        cluster,
        "crash",
        &CallFault::ALL,
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| reconcile_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert_eq!(crashes.calls, 6, "four children, and the status before and after they are observed");
    assert_eq!(crashes.runs, crashes.calls * CallFault::ALL.len());
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

/// A failed read ends the reconcile before it writes anything.
#[tokio::test]
async fn first_reconcile_survives_failed_reads() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        "reads",
        (CountedCalls::All, &[CallFault::NotSent, CallFault::Status(500)]),
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| reconcile_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |_: &Namespace| Ok(()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls > 20, "reads must fail too: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

#[tokio::test]
async fn first_reconcile_survives_stale_cache() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = stale_view_at_every_reconcile(
        cluster,
        "stale",
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |namespace: &Namespace| remove_env(&admin, namespace).await,
        async |namespace: &Namespace| view(cluster, &admin, namespace.name()).await,
        async |client, view: &View| reconcile_view(cluster, client, view).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.runs >= 5, "{crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}
