//! Single reconciles of an object: its children, no writes once it has settled, and errors in its status.

use super::*;

#[tokio::test]
async fn first_reconcile_creates_children_then_settles() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("lives").await.unwrap();
    create(&admin, namespace.name()).await;

    let outcome = reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(
        matches!(outcome, ReconcileOutcome::Reconciled { written: 5, .. }),
        "four children and the status: {outcome:?}"
    );
    let deployment = namespace.api::<Deployment>().get("starter").await.unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("Recreate"), "the volume is ReadWriteOnce");
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.containers[0].image.as_deref(), Some("docker.io/llamastack/distribution-starter:0.7.1"));
    assert_eq!(pod.service_account_name.as_deref(), Some("starter-sa"));
    let env = pod.containers[0].env.as_ref().unwrap();
    assert!(env.iter().any(|var| var.name == "INFERENCE_MODEL"), "{env:?}");
    let claim = namespace.api::<PersistentVolumeClaim>().get("starter-pvc").await.unwrap();
    let requests = claim.spec.unwrap().resources.unwrap().requests.unwrap();
    assert_eq!(requests["storage"].0, "20Gi");
    let service = namespace.api::<Service>().get("starter-service").await.unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 8321);
    let phase =
        async || objects(&admin, namespace.name()).get("starter").await.unwrap().data["status"]["phase"].clone();
    assert_eq!(phase().await, "Pending", "the Deployment did not exist when the object was observed");
    // With watches, the event of the Deployment triggers this reconcile, which only updates the status.
    let outcome = reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(outcome, ReconcileOutcome::Reconciled { written: 1, .. }), "{outcome:?}");
    assert_eq!(phase().await, "Initializing");

    let counter = FaultInjector::without_fault();
    for _ in 0..2 {
        let outcome = reconcile_once(cluster, counter.wrap(&admin), namespace.name()).await.unwrap();
        assert!(matches!(outcome, ReconcileOutcome::Reconciled { written: 0, .. }), "{outcome:?}");
    }
    assert_eq!(counter.call_count(), 0, "a settled object must cause no write");

    remove_env(&admin, &namespace).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let deployment = namespace.api::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert!(!pod.containers[0].env.iter().flatten().any(|var| var.name == "INFERENCE_MODEL"));
}

#[tokio::test]
async fn unknown_distribution_keeps_deployment_and_is_reported() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("wrong-name").await.unwrap();
    create(&admin, namespace.name()).await;
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let before = namespace.api::<Deployment>().get("starter").await.unwrap();

    let wrong = Patch::Merge(json!({ "spec": { "distribution": { "name": "startr" } } }));
    objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let after = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "the Deployment must not change");
    let own = objects(&admin, namespace.name()).get("starter").await.unwrap();
    let status = own.data["status"].to_string();
    assert!(status.contains("startr") && own.data["status"]["phase"] == "Failed", "{status}");
}
