//! A server that the Go operator runs is taken over by a pass without a restart, wherever that pass is cut.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use steersman_reconcile::ADOPTED_LABEL;

use super::*;

/// What the Go operator writes for the same object: in its own order, with the hash of a ConfigMap and a variable of a
/// version that is gone.
fn their_deployment(own: &DynamicObject) -> Value {
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

/// Creates as `manager`, then applies under the name of the object.
async fn as_the_go_operator(client: &Client, namespace: &Namespace) -> Result<()> {
    let own = objects(client, namespace.name()).get("starter").await?;
    let wanted = their_deployment(&own);
    let deployments: Api<Deployment> = namespace.all();
    if deployments.get_opt("starter").await?.is_none() {
        let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
        deployments.create(&manager, &object(wanted.clone())).await?;
        let account: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa",
            "labels": wanted["metadata"]["labels"], "ownerReferences": wanted["metadata"]["ownerReferences"] } }));
        namespace.all::<ServiceAccount>().create(&manager, &account).await?;
    }
    deployments.patch("starter", &PatchParams::apply("starter").force(), &Patch::Apply(wanted)).await?;
    Ok(())
}

async fn prepared(client: &Client, namespace: &Namespace) -> Result<()> {
    prepare(client, namespace).await?;
    as_the_go_operator(client, namespace).await
}

async fn status(client: &Client, namespace: &Namespace) -> String {
    objects(client, namespace.name()).get("starter").await.unwrap().data["status"].to_string()
}

#[tokio::test]
async fn what_the_go_operator_runs_is_taken_over_without_a_restart() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("adopt").await.unwrap();
    prepared(&admin, &namespace).await.unwrap();
    let deployments: Api<Deployment> = namespace.all();
    let before = deployments.get("starter").await.unwrap();

    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let adopted = deployments.get("starter").await.unwrap();
    assert_eq!(adopted.spec, before.spec);
    assert_eq!(adopted.metadata.generation, before.metadata.generation);
    assert!(adopted.labels().contains_key(ADOPTED_LABEL));
    let managers: Vec<_> = adopted.managed_fields().iter().map(|entry| entry.manager.as_deref().unwrap()).collect();
    assert_eq!(managers, ["steersman/llamastack"]);
    assert_eq!(adopted.owner_references()[0].api_version, "llamastack.io/v1alpha2");
    let told = status(&admin, &namespace).await;
    assert!(told.contains("AdoptedPodsKept") && told.contains("steersman.dev/adopted-"), "{told}");
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let settled = pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(settled, ReconcileOutcome::Reconciled { written: 0, .. }), "{settled:?}");

    // Somebody restarts the pods by hand; that is not undone.
    let restarted = json!({ "spec": { "template": { "metadata": { "annotations": { "restartedAt": "now" } } } } });
    deployments.patch("starter", &PatchParams::default(), &Patch::Strategic(restarted)).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let template = deployments.get("starter").await.unwrap().spec.unwrap().template;
    assert_eq!(template.metadata.unwrap().annotations.unwrap()["restartedAt"], "now");

    // A variable that the user takes away goes, and with it what the Go operator had left.
    without_env(&admin, &namespace).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let changed = deployments.get("starter").await.unwrap();
    assert!(!changed.labels().contains_key(ADOPTED_LABEL));
    let pod = changed.spec.unwrap().template.spec.unwrap();
    let env: Vec<_> = pod.containers[0].env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(env, ["HF_HOME", "LLS_WORKERS", "LLS_PORT", "LLAMA_STACK_CONFIG"]);

    // The Go operator was not switched off: we stop, and say so.
    as_the_go_operator(&admin, &namespace).await.unwrap();
    let contested = deployments.get("starter").await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap_err();
    let left = deployments.get("starter").await.unwrap();
    assert_eq!(left.metadata.resource_version, contested.metadata.resource_version);
    let told = status(&admin, &namespace).await;
    assert!(told.contains("another operator is writing this object (field manager"), "{told}");
}

#[tokio::test]
async fn a_take_over_survives_a_crash_at_every_call() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere_and(
        cluster,
        "adopt-crash",
        (Calls::Writes, &Cut::ALL),
        async |namespace: &Namespace| prepared(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| pass_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| {
            let live = namespace.all::<Deployment>().get("starter").await?;
            anyhow::ensure!(live.metadata.generation == Some(1), "the pods were restarted");
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 8, "the mark, the fold and the apply are calls of their own: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}
