//! What single passes make of an object: its children, silence once they are there, and a word where they cannot be made.

use super::*;

#[tokio::test]
async fn a_pass_makes_the_children_and_the_next_one_is_silent() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("lives").await.unwrap();
    create(&admin, namespace.name()).await;

    let passed = pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(
        matches!(passed, ReconcileOutcome::Reconciled { written: 5, .. }),
        "four children and the status: {passed:?}"
    );
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.strategy.unwrap().type_.as_deref(), Some("Recreate"), "the volume can be mounted once");
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.containers[0].image.as_deref(), Some("docker.io/llamastack/distribution-starter:0.7.1"));
    assert_eq!(pod.service_account_name.as_deref(), Some("starter-sa"));
    let env = pod.containers[0].env.as_ref().unwrap();
    assert!(env.iter().any(|var| var.name == "INFERENCE_MODEL"), "{env:?}");
    let claim = namespace.all::<PersistentVolumeClaim>().get("starter-pvc").await.unwrap();
    let requests = claim.spec.unwrap().resources.unwrap().requests.unwrap();
    assert_eq!(requests["storage"].0, "20Gi");
    let service = namespace.all::<Service>().get("starter-service").await.unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 8321);
    let phase =
        async || objects(&admin, namespace.name()).get("starter").await.unwrap().data["status"]["phase"].clone();
    assert_eq!(phase().await, "Pending", "when it was observed, there was no Deployment yet");
    // In real life the Deployment's own event brings the next pass, which only has to tell of it.
    let passed = pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(passed, ReconcileOutcome::Reconciled { written: 1, .. }), "{passed:?}");
    assert_eq!(phase().await, "Initializing");

    let counter = Cutter::counting();
    for _ in 0..2 {
        let passed = pass_once(cluster, counter.around(&admin), namespace.name()).await.unwrap();
        assert!(matches!(passed, ReconcileOutcome::Reconciled { written: 0, .. }), "{passed:?}");
    }
    assert_eq!(counter.calls(), 0, "settled means silent");

    // A variable that the user takes away goes from the Deployment too.
    without_env(&admin, &namespace).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let deployment = namespace.all::<Deployment>().get("starter").await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert!(!pod.containers[0].env.iter().flatten().any(|var| var.name == "INFERENCE_MODEL"));
}

#[tokio::test]
async fn a_wrong_name_leaves_what_runs_and_says_so() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let namespace = cluster.namespace("wrong-name").await.unwrap();
    create(&admin, namespace.name()).await;
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let before = namespace.all::<Deployment>().get("starter").await.unwrap();

    let wrong = Patch::Merge(json!({ "spec": { "distribution": { "name": "startr" } } }));
    objects(&admin, namespace.name()).patch("starter", &PatchParams::default(), &wrong).await.unwrap();
    pass_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let after = namespace.all::<Deployment>().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "what runs is left alone");
    let own = objects(&admin, namespace.name()).get("starter").await.unwrap();
    let status = own.data["status"].to_string();
    assert!(status.contains("startr") && own.data["status"]["phase"] == "Failed", "{status}");
}
