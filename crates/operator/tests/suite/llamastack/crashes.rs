//! What users do to an object, with a crash at every write of the passes that follow: in the end all is as if nothing had
//! happened, and at no moment is a Deployment without what its pods need.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use steersman_testkit::cut::Crashes;

use super::configured::{condition, generated, left, models, mounted, observed, startable, vllm};
use super::*;

/// A process dies before a write, or after one without knowing.
const DEATHS: [Cut; 2] = [Cut::NotSent, Cut::AnswerLost];

async fn secret(namespace: &Namespace) -> Result<()> {
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.all::<Secret>().create(&PostParams::default(), &secret).await?;
    Ok(())
}

async fn without_secret(namespace: &Namespace) -> Result<()> {
    namespace.all::<Secret>().delete("vllm", &DeleteParams::default()).await?;
    Ok(())
}

/// The user's own configuration.
async fn own_config(namespace: &Namespace) -> Result<()> {
    let map: ConfigMap = object(json!({ "metadata": { "name": "mine" }, "data": { "config.yaml": "version: 2\n" } }));
    namespace.all::<ConfigMap>().create(&PostParams::default(), &map).await?;
    Ok(())
}

async fn spec(client: &Client, namespace: &Namespace, patch: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": patch }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The object runs, and all has been told of it.
async fn running(cluster: &Cluster, client: &Client, namespace: &Namespace, wish: Value) -> Result<()> {
    objects(client, namespace.name()).create(&PostParams::default(), &object(wish)).await?;
    for _ in 0..3 {
        pass_once(cluster, client.clone(), namespace.name()).await?;
        observed(namespace).await;
    }
    Ok(())
}

/// Passes over what `prepare` left, each followed by what the Deployment's controller does.
async fn crashed(
    cluster: &Cluster,
    admin: &Client,
    prefix: &str,
    prepare: impl AsyncFn(&Namespace) -> Result<()>,
    always: impl AsyncFn(&Namespace) -> Result<()>,
) -> Crashes {
    let crashes = crash_everywhere_and(
        cluster,
        prefix,
        (Calls::Writes, &DEATHS),
        prepare,
        async |client, namespace: &Namespace, ()| {
            pass_once(cluster, client, namespace.name()).await?;
            if namespace.all::<Deployment>().get_opt("starter").await?.is_some() {
                observed(namespace).await;
            }
            Ok(())
        },
        always,
        async |namespace: &Namespace| left(admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    crashes
}

/// All that an object can have made for it.
fn everything() -> Value {
    let mut wish = vllm();
    wish["spec"]["networking"] = json!({ "expose": { "hostname": "llama.example.com" },
        "allowedFrom": { "namespaces": ["apps"] } });
    wish["spec"]["workload"] = json!({ "replicas": 2, "autoscaling": { "maxReplicas": 3 },
        "storage": { "size": "5Gi" } });
    wish
}

/// Before there is a Deployment, nothing needs anything.
async fn startable_if_there(namespace: &Namespace) -> Result<()> {
    match namespace.all::<Deployment>().get_opt("starter").await? {
        Some(_) => startable(namespace).await,
        None => Ok(()),
    }
}

#[tokio::test]
async fn a_creation_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        secret(namespace).await?;
        objects(&admin, namespace.name()).create(&PostParams::default(), &object(everything())).await?;
        Ok(())
    };
    let crashes = crashed(cluster, &admin, "create-crash", prepare, startable_if_there).await;
    assert!(crashes.calls >= 10, "nine children, an event and the status: {crashes:?}");
}

#[tokio::test]
async fn another_distribution_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        secret(namespace).await?;
        running(cluster, &admin, namespace, vllm()).await?;
        spec(&admin, namespace, json!({ "distribution": { "name": "starter-gpu" } })).await
    };
    // FR-020c: no pod ever starts with the image of one and the configuration of the other.
    let matched = async |namespace: &Namespace| {
        startable(namespace).await?;
        let map = namespace.all::<ConfigMap>().get(&mounted(namespace).await).await?;
        let deployment = namespace.all::<Deployment>().get("starter").await?;
        let image = deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap();
        let gpu = map.data.unwrap()["config.yaml"].contains("distro_name: starter-gpu");
        anyhow::ensure!(image.contains("distribution-starter-gpu:") == gpu, "{image} with the other's configuration");
        Ok(())
    };
    let crashes = crashed(cluster, &admin, "other-crash", prepare, matched).await;
    assert!(crashes.calls >= 3, "the ConfigMap, the Deployment and the status: {crashes:?}");
}

#[tokio::test]
async fn a_secret_that_comes_late_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let prepare = async |namespace: &Namespace| {
        objects(&admin, namespace.name()).create(&PostParams::default(), &object(vllm())).await?;
        pass_once(cluster, admin.clone(), namespace.name()).await?;
        let told = condition(&admin, namespace, "SecretsResolved").await;
        anyhow::ensure!(told["reason"] == "SecretNotFound", "{told}");
        secret(namespace).await
    };
    let crashes = crashed(cluster, &admin, "late-crash", prepare, startable_if_there).await;
    assert!(crashes.calls >= 5, "{crashes:?}");
}

#[tokio::test]
async fn a_secret_that_goes_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    // Beside it something else is asked for, which has to wait.
    let prepare = async |namespace: &Namespace| {
        secret(namespace).await?;
        running(cluster, &admin, namespace, vllm()).await?;
        without_secret(namespace).await?;
        models(&admin, namespace, &["later"]).await;
        Ok(())
    };
    let untouched = async |namespace: &Namespace| {
        let generation = namespace.all::<Deployment>().get("starter").await?.metadata.generation;
        anyhow::ensure!(generation == Some(1), "the Deployment was changed");
        anyhow::ensure!(generated(namespace).await.len() == 1, "there is another ConfigMap");
        startable(namespace).await
    };
    let crashes = crashed(cluster, &admin, "gone-crash", prepare, untouched).await;
    assert!(crashes.calls >= 1, "the status: {crashes:?}");
}

/// The ConfigMap that is mounted is there, whoever it belongs to.
async fn mountable(namespace: &Namespace) -> Result<()> {
    let wanted = mounted(namespace).await;
    let found = namespace.all::<ConfigMap>().get_opt(&wanted).await?;
    anyhow::ensure!(found.is_some(), "ConfigMap {wanted} is mounted and not there");
    Ok(())
}

#[tokio::test]
async fn an_override_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let providers = || vllm()["spec"]["providers"].clone();
    let on = async |namespace: &Namespace| {
        secret(namespace).await?;
        own_config(namespace).await?;
        running(cluster, &admin, namespace, vllm()).await?;
        spec(&admin, namespace, json!({ "providers": null, "overrideConfig": { "configMapName": "mine" } })).await
    };
    let crashes = crashed(cluster, &admin, "override-crash", on, mountable).await;
    assert!(crashes.calls >= 2, "the Deployment and the status: {crashes:?}");
    let off = async |namespace: &Namespace| {
        on(namespace).await?;
        for _ in 0..3 {
            pass_once(cluster, admin.clone(), namespace.name()).await?;
            observed(namespace).await;
        }
        spec(&admin, namespace, json!({ "providers": providers(), "overrideConfig": null })).await
    };
    let crashes = crashed(cluster, &admin, "generate-crash", off, mountable).await;
    assert!(crashes.calls >= 2, "{crashes:?}");
}

/// What is there when the object goes depends on where the pass was cut. That all of it goes with the object does not,
/// and nothing is made for one that is on its way out.
#[tokio::test]
async fn a_deletion_during_a_rollout_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere_and(
        cluster,
        "leaving-crash",
        (Calls::Writes, &DEATHS),
        async |namespace: &Namespace| {
            secret(namespace).await?;
            running(cluster, &admin, namespace, everything()).await?;
            models(&admin, namespace, &["later"]).await;
            Ok(())
        },
        async |client, namespace: &Namespace, ()| {
            let own = objects(&admin, namespace.name());
            let leaving = own.get("starter").await?.metadata.deletion_timestamp.is_some();
            let children = async || all_children(&admin, namespace).await;
            let before = children().await?;
            let passed = pass_once(cluster, client, namespace.name()).await;
            if leaving {
                anyhow::ensure!(children().await? == before, "something was made for an object that goes");
            } else {
                // The user does not wait for the rollout, nor does it matter how far the pass got.
                own.delete("starter", &DeleteParams::foreground()).await?;
            }
            passed.map(|_| ())
        },
        async |namespace: &Namespace| startable(namespace).await,
        async |namespace: &Namespace| {
            let own = objects(&admin, namespace.name()).get("starter").await?;
            // No garbage collector runs here, for which the object would wait.
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &free).await?;
            let uid = json!(own.metadata.uid);
            let children = all_children(&admin, namespace).await?;
            let orphans = children.iter().filter(|child| child["metadata"]["ownerReferences"][0]["uid"] != uid).count();
            anyhow::ensure!(children.len() >= 8, "the children are there to be seen");
            let phase = own.data["status"]["phase"].clone();
            Ok(vec![json!({ "metadata": { "name": "left" }, "orphans": orphans, "phase": phase })])
        },
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 4, "{crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

/// All children that a pass may make, as they are.
async fn all_children(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let name = namespace.name();
    let mut children = all::<Deployment>(client, name).await?;
    children.extend(all::<Service>(client, name).await?);
    children.extend(all::<PersistentVolumeClaim>(client, name).await?);
    children.extend(all::<ServiceAccount>(client, name).await?);
    children.extend(all::<ConfigMap>(client, name).await?);
    children.extend(all::<k8s_openapi::api::networking::v1::Ingress>(client, name).await?);
    children.extend(all::<k8s_openapi::api::networking::v1::NetworkPolicy>(client, name).await?);
    children.extend(all::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>(client, name).await?);
    children.extend(all::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(client, name).await?);
    children.retain(|child| !child["metadata"]["ownerReferences"].is_null());
    Ok(children)
}

#[tokio::test]
async fn a_first_pass_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "crash",
        &Cut::ALL,
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert_eq!(crashes.calls, 6, "four children, and the status before and after they are seen");
    assert_eq!(crashes.runs, crashes.calls * Cut::ALL.len());
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

/// Reads that fail end the pass before it has decided anything.
#[tokio::test]
async fn a_first_pass_survives_a_failed_read_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere_and(
        cluster,
        "reads",
        (Calls::All, &[Cut::NotSent, Cut::Status(500)]),
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |_: &Namespace| Ok(()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls > 20, "reads are cut too: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn a_first_pass_survives_a_watch_that_is_held_back() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = stale_everywhere(
        cluster,
        "stale",
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |namespace: &Namespace| without_env(&admin, namespace).await,
        async |namespace: &Namespace| view(cluster, &admin, namespace.name()).await,
        async |client, view: &View| pass_on(cluster, client, view).await.map(|_| ()),
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.runs >= 5, "{crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}
