//! Adoption of a server from the Go operator: without a restart, even if the adopting reconcile crashes at any call.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use steersman_reconcile::ADOPTED_LABEL;

use super::*;

/// The Deployment that the Go operator writes for the same object: in its own order of fields, with the hash of a
/// ConfigMap and a variable of an old version.
fn go_operator_deployment(own: &DynamicObject) -> Value {
    let labels = json!({ "app.kubernetes.io/managed-by": "llama-stack-operator", "llamastack.io/watch": "true",
        "app.kubernetes.io/part-of": "llama-stack" });
    let selector = json!({ "app": "llama-stack", "app.kubernetes.io/instance": "starter" });
    let env = [("LLS_PORT", "8321"), ("HF_HOME", "/.llama"), ("LLS_OLD", "1"), ("INFERENCE_MODEL", "m")];
    let env: Vec<_> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let container = json!({ "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.2.12",
        "ports": [{ "containerPort": 8321 }], "env": env,
        "volumeMounts": [{ "name": "lls-storage", "mountPath": "/.llama" }] });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "starter", "labels": labels, "ownerReferences": [{ "apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "name": "starter", "uid": own.uid(), "controller": true,
            "blockOwnerDeletion": true }] },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": selector }, "strategy": { "type": "Recreate" },
            "template": {
                "metadata": { "labels": selector, "annotations": { "configmap.hash/user-config": "41-config" } },
                "spec": { "serviceAccountName": "starter-sa", "containers": [container],
                    "volumes": [{ "name": "lls-storage", "persistentVolumeClaim": { "claimName": "starter-pvc" } }] },
            },
        },
    })
}

/// Writes as the Go operator does: creates with the field manager `manager`, then applies with the object's name as field
/// manager.
async fn write_as_go_operator(client: &Client, namespace: &Namespace) -> Result<()> {
    let own = objects(client, namespace.name()).get("starter").await?;
    let deployment = go_operator_deployment(&own);
    let deployments: Api<Deployment> = namespace.api();
    if deployments.get_opt("starter").await?.is_none() {
        let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
        deployments.create(&manager, &object(deployment.clone())).await?;
        let account: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa",
            "labels": deployment["metadata"]["labels"], "ownerReferences": deployment["metadata"]["ownerReferences"] } }));
        namespace.api::<ServiceAccount>().create(&manager, &account).await?;
    }
    deployments.patch("starter", &PatchParams::apply("starter").force(), &Patch::Apply(deployment)).await?;
    Ok(())
}

async fn prepare_go_deployment(client: &Client, namespace: &Namespace) -> Result<()> {
    prepare(client, namespace).await?;
    write_as_go_operator(client, namespace).await
}

async fn status_text(client: &Client, namespace: &Namespace) -> String {
    objects(client, namespace.name()).get("starter").await.unwrap().data["status"].to_string()
}

#[tokio::test]
async fn go_operator_deployment_is_adopted_without_restart() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("adopt").await.unwrap();
    prepare_go_deployment(&admin, &namespace).await.unwrap();
    let deployments: Api<Deployment> = namespace.api();
    let before = deployments.get("starter").await.unwrap();

    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let adopted = deployments.get("starter").await.unwrap();
    assert_eq!(adopted.spec, before.spec);
    assert_eq!(adopted.metadata.generation, before.metadata.generation);
    assert!(adopted.labels().contains_key(ADOPTED_LABEL));
    let managers: Vec<_> = adopted.managed_fields().iter().map(|entry| entry.manager.as_deref().unwrap()).collect();
    assert_eq!(managers, ["steersman/llamastack"]);
    assert_eq!(adopted.owner_references()[0].api_version, "llamastack.io/v1alpha2");
    let status = status_text(&admin, &namespace).await;
    assert!(status.contains("AdoptedPodsKept") && status.contains("steersman.dev/adopted-"), "{status}");
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let settled = reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(settled, ReconcileOutcome::Reconciled { written: 0, .. }), "{settled:?}");

    // A manual restart of the pods is not reverted.
    let restarted = json!({ "spec": { "template": { "metadata": { "annotations": { "restartedAt": "now" } } } } });
    deployments.patch("starter", &PatchParams::default(), &Patch::Strategic(restarted)).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let template = deployments.get("starter").await.unwrap().spec.unwrap().template;
    assert_eq!(template.metadata.unwrap().annotations.unwrap()["restartedAt"], "now");

    // When the user removes a variable, the Deployment is rewritten, without the leftovers of the Go operator.
    remove_env(&admin, &namespace).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let changed = deployments.get("starter").await.unwrap();
    assert!(!changed.labels().contains_key(ADOPTED_LABEL));
    let pod = changed.spec.unwrap().template.spec.unwrap();
    let env: Vec<_> = pod.containers[0].env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(env, ["HF_HOME", "LLS_WORKERS", "LLS_PORT", "LLAMA_STACK_CONFIG"]);

    // The Go operator still runs: report the conflict and stop writing.
    write_as_go_operator(&admin, &namespace).await.unwrap();
    let contested = deployments.get("starter").await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap_err();
    let left = deployments.get("starter").await.unwrap();
    assert_eq!(left.metadata.resource_version, contested.metadata.resource_version);
    let status = status_text(&admin, &namespace).await;
    assert!(status.contains("another operator is writing this object (field manager"), "{status}");
}

#[tokio::test]
async fn adoption_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        "adopt-crash",
        (CountedCalls::Writes, &CallFault::ALL),
        async |namespace: &Namespace| prepare_go_deployment(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| reconcile_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| {
            let live = namespace.api::<Deployment>().get("starter").await?;
            anyhow::ensure!(live.metadata.generation == Some(1), "the pods were restarted");
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 8, "label, merge of field managers and apply are separate calls: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}
