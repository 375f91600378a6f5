//! Generated configurations: they wait for their Secrets, follow the spec, and leave no unused ConfigMap behind.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::Ingress;
use kube::ResourceExt;

use super::*;

pub fn vllm_distribution() -> Value {
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

pub async fn set_models(client: &Client, namespace: &Namespace, names: &[&str]) {
    let patch = Patch::Merge(json!({ "spec": { "resources": { "models": names } } }));
    objects(client, namespace.name()).patch("starter", &PatchParams::default(), &patch).await.unwrap();
}

/// Names of the generated ConfigMaps.
pub async fn generated_config_maps(namespace: &Namespace) -> BTreeSet<String> {
    let selector = ListParams::default().labels("app.kubernetes.io/component=generated-config");
    let listed = namespace.api::<ConfigMap>().list(&selector).await.unwrap();
    listed.items.iter().map(ResourceExt::name_any).collect()
}

pub async fn mounted_config_map(namespace: &Namespace) -> String {
    let deployment = namespace.api::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let mut maps = pod.volumes.into_iter().flatten().filter_map(|volume| volume.config_map);
    maps.next().unwrap().name
}

/// Sets the Deployment's status as its controller does once the rollout is complete.
pub async fn finish_rollout(namespace: &Namespace) {
    let deployments = namespace.api::<Deployment>();
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
async fn generated_config_waits_for_secret_and_follows_spec() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("generated").await.unwrap();
    let name = namespace.name();
    objects(&admin, name).create(&PostParams::default(), &object(vllm_distribution())).await.unwrap();
    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    assert!(namespace.api::<Deployment>().get_opt("starter").await.unwrap().is_none());
    assert_eq!(condition(&admin, &namespace, "SecretsResolved").await["reason"], "SecretNotFound");

    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    let first = mounted_config_map(&namespace).await;
    assert_eq!(generated_config_maps(&namespace).await, [first.clone()].into());
    let map = namespace.api::<ConfigMap>().get(&first).await.unwrap();
    assert_eq!(map.immutable, Some(true));
    assert!(!json!(map).to_string().contains("hush"), "a Secret's value is in no ConfigMap");
    assert!(namespace.api::<Ingress>().get_opt("starter-ingress").await.unwrap().is_some());
    finish_rollout(&namespace).await;
    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    assert_eq!(condition(&admin, &namespace, "DeploymentUpdated").await["status"], "True");
    let counter = FaultInjector::without_fault();
    let settled = reconcile_once(cluster, counter.wrap(&admin), name).await.unwrap();
    assert!(matches!(settled, ReconcileOutcome::Reconciled { written: 0, .. }), "{settled:?}");
    assert_eq!(counter.call_count(), 0, "a settled object must cause no write");

    // Each change creates a ConfigMap. After the rollout, the current and the previous one remain.
    let mut mounted = vec![first];
    for names in [["a"].as_slice(), &["a", "b"], &["a", "b", "c"]] {
        set_models(&admin, &namespace, names).await;
        reconcile_once(cluster, admin.clone(), name).await.unwrap();
        mounted.push(mounted_config_map(&namespace).await);
        let before = generated_config_maps(&namespace).await;
        assert!(
            before.contains(&mounted[mounted.len() - 1]) && before.contains(&mounted[mounted.len() - 2]),
            "{before:?}"
        );
        finish_rollout(&namespace).await;
        // The first reconcile writes the status; the second removes the ConfigMaps that the status no longer names.
        reconcile_once(cluster, admin.clone(), name).await.unwrap();
        reconcile_once(cluster, admin.clone(), name).await.unwrap();
    }
    let expected: BTreeSet<String> = mounted.iter().skip(2).cloned().collect();
    let newest = mounted[3].clone();
    let remaining = generated_config_maps(&namespace).await;
    assert!(remaining.len() == 2 && remaining.contains(&newest), "{remaining:?} of {mounted:?}, expected {expected:?}");

    // The Ingress is deleted once the spec no longer exposes the server.
    let hidden = Patch::Merge(json!({ "spec": { "networking": null } }));
    objects(&admin, name).patch("starter", &PatchParams::default(), &hidden).await.unwrap();
    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    assert!(namespace.api::<Ingress>().get_opt("starter-ingress").await.unwrap().is_none());

    // Deleting the Secret later leaves the Deployment unchanged.
    let before = namespace.api::<Deployment>().get("starter").await.unwrap();
    namespace.api::<Secret>().delete("vllm", &DeleteParams::default()).await.unwrap();
    reconcile_once(cluster, admin.clone(), name).await.unwrap();
    let after = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(condition(&admin, &namespace, "ConfigGenerated").await["status"], "False");
}

/// Generates two configurations, and changes the spec so that a third is needed.
async fn prepare_config_change(cluster: &Cluster, client: &Client, namespace: &Namespace) -> Result<()> {
    let name = namespace.name();
    let secret: Secret = object(json!({ "metadata": { "name": "vllm" }, "stringData": { "token": "hush" } }));
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await?;
    objects(client, name).create(&PostParams::default(), &object(vllm_distribution())).await?;
    for names in [["a"].as_slice(), &["a", "b"]] {
        for _ in 0..2 {
            reconcile_once(cluster, client.clone(), name).await?;
            finish_rollout(namespace).await;
        }
        set_models(client, namespace, names).await;
    }
    Ok(())
}

/// Fails unless the ConfigMap that new pods mount is one of the generated ones.
pub async fn ensure_startable(namespace: &Namespace) -> Result<()> {
    let name = mounted_config_map(namespace).await;
    anyhow::ensure!(
        generated_config_maps(namespace).await.contains(&name),
        "the mounted ConfigMap {name} does not exist"
    );
    Ok(())
}

/// A comparable end state: the snapshot, the mounted ConfigMap, and the number of generated ones. The names of older
/// ConfigMaps are left out, because which of them remains depends on creation times.
pub async fn final_state(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let (mut state, current) = (snapshot(client, namespace).await?, mounted_config_map(namespace).await);
    for object in &mut state {
        if let Some(generation) = object.pointer_mut("/status/configGeneration").and_then(Value::as_object_mut) {
            generation.remove("generatedAt");
        }
    }
    let maps = list_all::<ConfigMap>(client, namespace.name()).await?;
    state.push(json!({ "metadata": { "name": "how-many" }, "maps": generated_config_maps(namespace).await.len() }));
    state.extend(maps.into_iter().filter(|map| map["metadata"]["name"] == current.as_str()));
    Ok(state)
}

#[tokio::test]
async fn config_change_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let run = async |delete_early: bool| {
        crash_at_every_call_with_invariant(
            cluster,
            "config-crash",
            (CountedCalls::Writes, &[CallFault::NotSent, CallFault::ResponseLost]),
            async |namespace: &Namespace| prepare_config_change(cluster, &admin, namespace).await,
            async |client, namespace: &Namespace, ()| {
                // A planted bug: the mounted ConfigMap is deleted as soon as the spec changes.
                let own = objects(&client, namespace.name()).get("starter").await?;
                let observed_generation = own.data["status"]["conditions"][0]["observedGeneration"].as_i64();
                if delete_early && observed_generation != own.metadata.generation {
                    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.name());
                    maps.delete(&mounted_config_map(namespace).await, &DeleteParams::default()).await?;
                }
                reconcile_once(cluster, client, namespace.name()).await?;
                finish_rollout(namespace).await;
                Ok(())
            },
            async |namespace: &Namespace| ensure_startable(namespace).await,
            async |namespace: &Namespace| final_state(&admin, namespace).await,
        )
        .await
    };
    let crashes = run(false).await.unwrap();
    assert!(crashes.calls >= 4, "ConfigMap, Deployment, deletion of old ConfigMaps, status: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
    let broken = run(true).await.unwrap().failures;
    assert!(broken.iter().any(|flaw| flaw.contains("the mounted ConfigMap")), "{broken:#?}");
}
