//! A server whose configuration is generated: it waits for its Secret, follows its spec, and leaves nothing behind.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt;

use super::*;

pub fn vllm() -> Value {
    json!({
        "apiVersion": "llamastack.io/v1alpha2",
        "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" },
        "spec": {
            "distribution": { "name": "starter" },
            "providers": { "inference": { "provider": "vllm", "endpoint": "http://vllm:8000",
                "apiKey": { "secretKeyRef": { "name": "vllm", "key": "token" } } } },
            "networking": { "expose": true },
        },
    })
}

pub async fn models(client: &Client, namespace: &Namespace, names: &[&str]) {
    let wish = Patch::Merge(json!({ "spec": { "resources": { "models": names } } }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &wish).await.unwrap();
}

/// Names of the generated ConfigMaps.
pub async fn generated(namespace: &Namespace) -> BTreeSet<String> {
    let wanted = ListParams::default().labels("app.kubernetes.io/component=generated-config");
    let listed = namespace.all::<ConfigMap>().list(&wanted).await.unwrap();
    listed.items.iter().map(ResourceExt::name_any).collect()
}

pub async fn mounted(namespace: &Namespace) -> String {
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let mut maps = pod.volumes.into_iter().flatten().filter_map(|volume| volume.config_map);
    maps.next().unwrap().name
}

/// As the Deployment's controller says it once all pods are new.
pub async fn observed(namespace: &Namespace) {
    let deployments = namespace.all::<Deployment>();
    let generation = deployments.get("starter").await.unwrap().metadata.generation;
    let status = Patch::Merge(json!({ "status": { "observedGeneration": generation, "replicas": 1,
        "updatedReplicas": 1 } }));
    deployments.patch_status("starter", &PatchParams::default(), &status).await.unwrap();
}

pub async fn condition(client: &Client, namespace: &Namespace, type_: &str) -> Value {
    let own = objects(client, namespace.name()).get("starter").await.unwrap();
    steersman_testkit::condition(&own.data, type_).clone()
}

#[tokio::test]
async fn a_generated_configuration_waits_for_its_secret_and_follows_its_spec() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("generated").await.unwrap();
    let name = namespace.name();
    objects(&admin, name).create(&PostParams::default(), &object(vllm())).await.unwrap();
    pass_once(cluster, admin.clone(), name).await.unwrap();
    assert!(namespace.all::<Deployment>().get_opt("starter").await.unwrap().is_none());
    assert_eq!(condition(&admin, &namespace, "SecretsResolved").await["reason"], "SecretNotFound");

    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.all::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    pass_once(cluster, admin.clone(), name).await.unwrap();
    let first = mounted(&namespace).await;
    assert_eq!(generated(&namespace).await, [first.clone()].into());
    let map = namespace.all::<ConfigMap>().get(&first).await.unwrap();
    assert_eq!(map.immutable, Some(true));
    assert!(!json!(map).to_string().contains("hush"), "a Secret's value is in no ConfigMap");
    assert!(namespace.all::<Ingress>().get_opt("starter-ingress").await.unwrap().is_some());
    observed(&namespace).await;
    pass_once(cluster, admin.clone(), name).await.unwrap();
    assert_eq!(condition(&admin, &namespace, "DeploymentUpdated").await["status"], "True");
    let counter = Cutter::counting();
    let settled = pass_once(cluster, counter.around(&admin), name).await.unwrap();
    assert!(matches!(settled, ReconcileOutcome::Reconciled { written: 0, .. }), "{settled:?}");
    assert_eq!(counter.calls(), 0, "settled means silent");

    // Each change makes a ConfigMap of its own. The old ones go once the Deployment has moved on; the last one stays.
    let mut seen = vec![first];
    for names in [["a"].as_slice(), &["a", "b"], &["a", "b", "c"]] {
        models(&admin, &namespace, names).await;
        pass_once(cluster, admin.clone(), name).await.unwrap();
        seen.push(mounted(&namespace).await);
        let before = generated(&namespace).await;
        assert!(before.contains(&seen[seen.len() - 1]) && before.contains(&seen[seen.len() - 2]), "{before:?}");
        observed(&namespace).await;
        // Once to tell of it, once to remove what the status no longer names.
        pass_once(cluster, admin.clone(), name).await.unwrap();
        pass_once(cluster, admin.clone(), name).await.unwrap();
    }
    let left: BTreeSet<String> = seen.iter().skip(2).cloned().collect();
    let newest = seen[3].clone();
    let there = generated(&namespace).await;
    assert!(there.len() == 2 && there.contains(&newest), "{there:?} of {seen:?}, wanted {left:?}");

    // What is no longer asked for goes.
    let hidden = Patch::Merge(json!({ "spec": { "networking": null } }));
    objects(&admin, name).patch("starter", &PatchParams::default(), &hidden).await.unwrap();
    pass_once(cluster, admin.clone(), name).await.unwrap();
    assert!(namespace.all::<Ingress>().get_opt("starter-ingress").await.unwrap().is_none());

    // A Secret that goes later takes nothing with it.
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();
    namespace.all::<Secret>().delete("vllm", &DeleteParams::default()).await.unwrap();
    pass_once(cluster, admin.clone(), name).await.unwrap();
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(condition(&admin, &namespace, "ConfigGenerated").await["status"], "False");
}

/// Two configurations are there, and a third is asked for.
async fn prepared(cluster: &Cluster, client: &Client, namespace: &Namespace) -> Result<()> {
    let name = namespace.name();
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.all::<Secret>().create(&PostParams::default(), &secret).await?;
    objects(client, name).create(&PostParams::default(), &object(vllm())).await?;
    for names in [["a"].as_slice(), &["a", "b"]] {
        for _ in 0..2 {
            pass_once(cluster, client.clone(), name).await?;
            observed(namespace).await;
        }
        models(client, namespace, names).await;
    }
    Ok(())
}

/// Whichever pod starts now finds what it mounts.
pub async fn startable(namespace: &Namespace) -> Result<()> {
    let wanted = mounted(namespace).await;
    anyhow::ensure!(generated(namespace).await.contains(&wanted), "ConfigMap {wanted} is mounted and not there");
    Ok(())
}

/// Which one stays beside the newest depends on the second in which they were made; how many, does not.
pub async fn left(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let (mut left, current) = (snapshot(client, namespace).await?, mounted(namespace).await);
    for object in &mut left {
        if let Some(generation) = object.pointer_mut("/status/configGeneration").and_then(Value::as_object_mut) {
            generation.remove("generatedAt");
        }
    }
    let maps = all::<ConfigMap>(client, namespace.name()).await?;
    left.push(json!({ "metadata": { "name": "how-many" }, "maps": generated(namespace).await.len() }));
    left.extend(maps.into_iter().filter(|map| map["metadata"]["name"] == current.as_str()));
    Ok(left)
}

#[tokio::test]
async fn a_change_of_configuration_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let changed = async |early: bool| {
        crash_everywhere_and(
            cluster,
            "config-crash",
            (Calls::Writes, &[Cut::NotSent, Cut::AnswerLost]),
            async |namespace: &Namespace| prepared(cluster, &admin, namespace).await,
            async |client, namespace: &Namespace, ()| {
                // The planted bug: what is mounted goes as soon as something else is asked for.
                let own = objects(&client, namespace.name()).get("starter").await?;
                let told = own.data["status"]["conditions"][0]["observedGeneration"].as_i64();
                if early && told != own.metadata.generation {
                    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.name());
                    maps.delete(&mounted(namespace).await, &DeleteParams::default()).await?;
                }
                pass_once(cluster, client, namespace.name()).await?;
                observed(namespace).await;
                Ok(())
            },
            async |namespace: &Namespace| startable(namespace).await,
            async |namespace: &Namespace| left(&admin, namespace).await,
        )
        .await
    };
    let crashes = changed(false).await.unwrap();
    assert!(crashes.calls >= 4, "the ConfigMap, the Deployment, the sweep and the status: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
    let broken = changed(true).await.unwrap().broken;
    assert!(broken.iter().any(|flaw| flaw.contains("is mounted and not there")), "{broken:#?}");
}
