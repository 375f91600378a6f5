//! Adoption of children that the Go operator created.

use super::*;

/// Writes the Deployment as the Go operator does: it creates as `manager`, then applies under the name of the object.
async fn write_as_go_operator(namespace: &Namespace, owner: &Owner, env: Value) {
    let mut wanted = deployment(env);
    wanted["metadata"]["ownerReferences"] = json!([owner.reference()]);
    let created: Deployment = object(wanted.clone());
    let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    if namespace.api::<Deployment>().get_opt("starter").await.unwrap().is_none() {
        namespace.api::<Deployment>().create(&manager, &created).await.unwrap();
    }
    let applied = PatchParams::apply("starter").force();
    namespace.api::<Deployment>().patch("starter", &applied, &Patch::Apply(wanted)).await.unwrap();
}

fn managers(deployment: &Deployment) -> Vec<String> {
    deployment.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect()
}

fn deployment_plan(env: Value) -> Plan<()> {
    Plan { writes: vec![WriteOp::Owned(Write::Apply(object(deployment(env))))], ..Plan::default() }
}

#[tokio::test]
async fn fields_of_go_operator_become_ours() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("adopt").await.unwrap();
    let owner = owner(&namespace).await;
    write_as_go_operator(&namespace, &owner, env()).await;
    let before = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(managers(&before), ["starter", "manager"]);

    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(env())).await), 1);
    let adopted = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(managers(&adopted), [MANAGER]);
    assert_eq!(adopted.metadata.generation, before.metadata.generation, "no pod is restarted");
    assert_eq!(adopted.spec, before.spec);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(env())).await), 0);

    let fewer = json!([{ "name": "HF_HOME", "value": "/.llama" }]);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(fewer.clone())).await), 1);
    let pod = namespace.api::<Deployment>().get("starter").await.unwrap().spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.containers[0].env.as_ref().unwrap().len(), 1, "{:?}", pod.containers[0].env);

    // The Go operator still runs: we report it and stop, and continue once its managed fields are cleared as the message says.
    write_as_go_operator(&namespace, &owner, env()).await;
    let failure = reconcile(cluster, &namespace, &owner, &deployment_plan(fewer.clone())).await.failure.unwrap();
    assert!(failure.message.starts_with("another operator is writing this object"), "{failure:?}");
    assert!(!failure.transient);
    let contested = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert!(contested.spec.unwrap().template.spec.unwrap().containers[0].env.as_ref().unwrap().len() > 1);
    let cleared = Patch::Merge(json!({ "metadata": { "managedFields": [{}] } }));
    namespace.api::<Deployment>().patch("starter", &PatchParams::default(), &cleared).await.unwrap();
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(fewer.clone())).await), 1);
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(fewer)).await), 0);
}

#[tokio::test]
async fn uncontrolled_object_is_adopted_by_labels_and_selector() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("marks").await.unwrap();
    let owner = owner(&namespace).await;
    let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    let theirs: Deployment = object(deployment(env()));
    namespace.api::<Deployment>().create(&manager, &theirs).await.unwrap();
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(env())).await), 1);
    let adopted = namespace.api::<Deployment>().get("starter").await.unwrap();
    assert_eq!(adopted.owner_references()[0].uid, owner.uid);
    assert_eq!(managers(&adopted), [MANAGER]);

    let mut other = service("starter-service");
    other["spec"]["selector"] = json!({ "app": "something-else" });
    let other: Service = object(other);
    namespace.api::<Service>().create(&manager, &other).await.unwrap();
    let plan =
        Plan { writes: vec![WriteOp::Owned(Write::Apply(object(service("starter-service"))))], ..Plan::default() };
    let failure = reconcile(cluster, &namespace, &owner, &plan).await.failure.unwrap();
    assert!(failure.message.contains("was not created for"), "{failure:?}");
}

#[tokio::test]
async fn adoption_of_changed_object_conflicts_and_retries() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("adopt-late").await.unwrap();
    let owner = owner(&namespace).await;
    write_as_go_operator(&namespace, &owner, env()).await;
    let admin = cluster.admin().await.unwrap();
    let old = live(&admin, &namespace).await;
    let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "a": "b" } } }));
    namespace.api::<Deployment>().patch("starter", &PatchParams::default(), &annotation).await.unwrap();
    let outcome = apply(&server(cluster, admin), MANAGER, &owner, &deployment_plan(env()), &old).await.outcome;
    assert!(outcome.failure.as_ref().is_some_and(|failure| failure.transient), "{outcome:?}");
    assert_eq!(write_count(reconcile(cluster, &namespace, &owner, &deployment_plan(env())).await), 1);
}
