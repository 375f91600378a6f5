//! Writes without ownership: unowned objects, deletions by uid, and patches of the owner.

use k8s_openapi::api::rbac::v1::RoleBinding;

use super::*;

fn plan(writes: Vec<WriteOp>) -> Plan<()> {
    Plan { writes, ..Plan::default() }
}

async fn apply_writes(cluster: &Cluster, namespace: &Namespace, owner: &Owner, writes: Vec<WriteOp>) -> Outcome {
    let client = cluster.admin().await.unwrap();
    let live = live(&client, namespace).await;
    apply(&server(cluster, client), MANAGER, owner, &plan(writes), &live).await.outcome
}

fn shared_account() -> Vec<WriteOp> {
    vec![WriteOp::Unowned(Write::Apply(object(account("shared-sa"))))]
}

#[tokio::test]
async fn unowned_object_has_no_owner_reference() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("free").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(write_count(apply_writes(cluster, &namespace, &owner, shared_account()).await), 1);
    let created = namespace.api::<ServiceAccount>().get("shared-sa").await.unwrap();
    assert!(created.owner_references().is_empty());
    assert_eq!(apply_writes(cluster, &namespace, &owner, shared_account()).await, Outcome::default());
}

#[tokio::test]
async fn unowned_object_without_labels_is_refused() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("free-foreign").await.unwrap();
    let owner = owner(&namespace).await;
    let accounts = namespace.api::<ServiceAccount>();
    let foreign: ServiceAccount = object(json!({ "metadata": { "name": "shared-sa", "labels": { "team": "a" } } }));
    let foreign = accounts.create(&PostParams::default(), &foreign).await.unwrap();
    let failure = apply_writes(cluster, &namespace, &owner, shared_account()).await.failure.unwrap();
    assert!(!failure.transient && failure.message.contains("it already exists without the labels"), "{failure:?}");
    assert!(failure.message.contains("app.kubernetes.io/managed-by=llama-stack-operator"), "{failure:?}");
    assert_eq!(accounts.get("shared-sa").await.unwrap().resource_version(), foreign.resource_version());

    let labelled = Patch::Merge(json!({ "metadata": { "labels": labels() } }));
    accounts.patch("shared-sa", &PatchParams::default(), &labelled).await.unwrap();
    assert_eq!(
        write_count(apply_writes(cluster, &namespace, &owner, shared_account()).await),
        1,
        "the object is adopted"
    );
    let taken = accounts.get("shared-sa").await.unwrap();
    assert_eq!((taken.uid(), taken.labels()["team"].as_str()), (foreign.uid(), "a"), "and keeps its uid and labels");

    // The owner reference that an earlier operator set is removed. An object with another controller is refused.
    let mut controlled = account("shared-sa");
    let reference = json!(owner.reference());
    controlled["metadata"]["ownerReferences"] = json!([reference]);
    accounts.patch("shared-sa", &PatchParams::default(), &Patch::Merge(controlled.clone())).await.unwrap();
    let released = apply_writes(cluster, &namespace, &owner, shared_account()).await;
    assert!(released.failure.is_none(), "{:?}", released.failure);
    let released = accounts.get("shared-sa").await.unwrap();
    assert_eq!((released.uid(), released.owner_references()), (foreign.uid(), [].as_slice()));
    controlled["metadata"]["ownerReferences"][0]["uid"] = json!("somebody-elses");
    accounts.patch("shared-sa", &PatchParams::default(), &Patch::Merge(controlled)).await.unwrap();
    let failure = apply_writes(cluster, &namespace, &owner, shared_account()).await.failure.unwrap();
    assert!(failure.message.contains("it is controlled by"), "{failure:?}");
}

#[tokio::test]
async fn conflicting_object_is_replaced_by_uid() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("successor").await.unwrap();
    let owner = owner(&namespace).await;
    let binding = |role: &str| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "b", "labels": labels() },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role } })
    };
    let bindings = namespace.api::<RoleBinding>();
    let old = bindings.create(&PostParams::default(), &object(binding("view"))).await.unwrap();
    let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding");
    let client = cluster.admin().await.unwrap();
    let mut live = Live::default();
    live.insert(&kind, list(&client, &namespace, &kind).await.remove(0));
    let replace = |uid: &str, version: &str| {
        let version = Some(version.to_owned());
        plan(vec![
            WriteOp::Delete { kind: kind.clone(), name: "b".into(), uid: uid.into(), version },
            WriteOp::Unowned(Write::Apply(object(binding("edit")))),
        ])
    };
    let (uid, version) = (old.uid().unwrap(), old.resource_version().unwrap());
    // An object with another uid or another resource version is not deleted.
    for plan in [replace("other", &version), replace(&uid, "1")] {
        let failure = apply(&server(cluster, client.clone()), MANAGER, &owner, &plan, &live).await.outcome.failure;
        assert!(failure.as_ref().is_some_and(|failure| failure.conflict), "{failure:?}");
        assert_eq!(bindings.get("b").await.unwrap().uid(), old.uid());
    }

    let outcome = apply(&server(cluster, client), MANAGER, &owner, &replace(&uid, &version), &live).await.outcome;
    assert_eq!(write_count(outcome), 2);
    let new = bindings.get("b").await.unwrap();
    assert_eq!((new.role_ref.name.as_str(), new.uid() == old.uid()), ("edit", false));
}

#[tokio::test]
async fn owner_patch_needs_the_observed_version() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("own").await.unwrap();
    let owner = owner(&namespace).await;
    let maps = namespace.api::<ConfigMap>();
    let version = maps.get("starter").await.unwrap().resource_version();
    let annotate =
        |text: &str| plan(vec![WriteOp::PatchOwner(json!({ "metadata": { "annotations": { "found": text } } }))]);
    let server = server(cluster, cluster.admin().await.unwrap());
    let live = Live::default().of_owner(version);
    let outcome = apply(&server, MANAGER, &owner, &annotate("first"), &live).await.outcome;
    assert_eq!(write_count(outcome), 1);
    let failure = apply(&server, MANAGER, &owner, &annotate("second"), &live).await.outcome.failure.unwrap();
    assert!(failure.conflict, "the object has changed: {failure:?}");
    assert_eq!(maps.get("starter").await.unwrap().annotations()["found"], "first");
}

#[tokio::test]
async fn unserved_kind_is_reported_with_remedy() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("unserved").await.unwrap();
    let owner = owner(&namespace).await;
    let graph = json!({ "apiVersion": "steersman.example/v1", "kind": "Graph", "metadata": { "name": "g" } });
    let writes = vec![WriteOp::Unowned(Write::CreateOnce(object(graph)))];
    let failure = apply_writes(cluster, &namespace, &owner, writes).await.failure.unwrap();
    let expected = "the cluster does not serve Graph (steersman.example/v1); install its CRD. The write is retried.";
    assert_eq!((failure.message.as_str(), failure.transient), (expected, true));
}
