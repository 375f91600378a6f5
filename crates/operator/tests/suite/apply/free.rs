//! What an owner must not own, what stands in the way, and the owner itself.

use k8s_openapi::api::rbac::v1::RoleBinding;

use super::*;

/// A plan of these writes alone.
fn plan(writes: Vec<WriteOp>) -> Plan<()> {
    Plan { writes, ..Plan::default() }
}

async fn asked(cluster: &Cluster, namespace: &Namespace, owner: &Owner, asks: Vec<WriteOp>) -> Outcome {
    let client = cluster.admin().await.unwrap();
    let live = live(&client, namespace).await;
    apply(&server(cluster, client), MANAGER, owner, &plan(asks), &live).await.outcome
}

fn free() -> Vec<WriteOp> {
    vec![WriteOp::Unowned(Write::Apply(object(account("shared-sa"))))]
}

#[tokio::test]
async fn a_free_object_has_no_owner_and_is_left_alone_once_it_is_there() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("free").await.unwrap();
    let owner = owner(&namespace).await;
    assert_eq!(written(asked(cluster, &namespace, &owner, free()).await), 1);
    let made = namespace.all::<ServiceAccount>().get("shared-sa").await.unwrap();
    assert!(made.owner_references().is_empty());
    assert_eq!(asked(cluster, &namespace, &owner, free()).await, Outcome::default());
}

#[tokio::test]
async fn a_free_object_is_known_by_its_labels_and_refused_without_them() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("free-foreign").await.unwrap();
    let owner = owner(&namespace).await;
    let accounts = namespace.all::<ServiceAccount>();
    let foreign: ServiceAccount = object(json!({ "metadata": { "name": "shared-sa", "labels": { "team": "a" } } }));
    let foreign = accounts.create(&PostParams::default(), &foreign).await.unwrap();
    let failure = asked(cluster, &namespace, &owner, free()).await.failure.unwrap();
    assert!(
        !failure.transient && failure.message.contains("without the labels that say what it is for"),
        "{failure:?}"
    );
    assert!(failure.message.contains("app.kubernetes.io/managed-by=llama-stack-operator"), "{failure:?}");
    assert_eq!(accounts.get("shared-sa").await.unwrap().resource_version(), foreign.resource_version());

    let labelled = Patch::Merge(json!({ "metadata": { "labels": labels() } }));
    accounts.patch("shared-sa", &PatchParams::default(), &labelled).await.unwrap();
    assert_eq!(written(asked(cluster, &namespace, &owner, free()).await), 1, "it becomes ours");
    let taken = accounts.get("shared-sa").await.unwrap();
    assert_eq!((taken.uid(), taken.labels()["team"].as_str()), (foreign.uid(), "a"), "and stays what it was");

    // What an earlier operator gave to the owner is freed; what somebody else controls is theirs.
    let mut controlled = account("shared-sa");
    let reference = json!(owner.reference());
    controlled["metadata"]["ownerReferences"] = json!([reference]);
    accounts.patch("shared-sa", &PatchParams::default(), &Patch::Merge(controlled.clone())).await.unwrap();
    let freed = asked(cluster, &namespace, &owner, free()).await;
    assert!(freed.failure.is_none(), "{:?}", freed.failure);
    let freed = accounts.get("shared-sa").await.unwrap();
    assert_eq!((freed.uid(), freed.owner_references()), (foreign.uid(), [].as_slice()));
    controlled["metadata"]["ownerReferences"][0]["uid"] = json!("somebody-elses");
    accounts.patch("shared-sa", &PatchParams::default(), &Patch::Merge(controlled)).await.unwrap();
    let failure = asked(cluster, &namespace, &owner, free()).await.failure.unwrap();
    assert!(failure.message.contains("it is controlled by"), "{failure:?}");
}

#[tokio::test]
async fn what_stands_in_the_way_goes_by_its_uid_and_its_successor_comes_in_the_same_pass() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("successor").await.unwrap();
    let owner = owner(&namespace).await;
    let binding = |role: &str| {
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "b", "labels": labels() },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role } })
    };
    let bindings = namespace.all::<RoleBinding>();
    let old = bindings.create(&PostParams::default(), &object(binding("view"))).await.unwrap();
    let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "RoleBinding");
    let client = cluster.admin().await.unwrap();
    let mut live = Live::default();
    live.insert(&kind, all(&client, &namespace, &kind).await.remove(0));
    let asks = |uid: &str, version: &str| {
        let version = Some(version.to_owned());
        plan(vec![
            WriteOp::Delete { kind: kind.clone(), name: "b".into(), uid: uid.into(), version },
            WriteOp::Unowned(Write::Apply(object(binding("edit")))),
        ])
    };
    let (uid, version) = (old.uid().unwrap(), old.resource_version().unwrap());
    // Of another one with the same name, or of one that has changed since, nothing is removed.
    for asks in [asks("other", &version), asks(&uid, "1")] {
        let failure = apply(&server(cluster, client.clone()), MANAGER, &owner, &asks, &live).await.outcome.failure;
        assert!(failure.as_ref().is_some_and(|failure| failure.conflict), "{failure:?}");
        assert_eq!(bindings.get("b").await.unwrap().uid(), old.uid());
    }

    let outcome = apply(&server(cluster, client), MANAGER, &owner, &asks(&uid, &version), &live).await.outcome;
    assert_eq!(written(outcome), 2);
    let new = bindings.get("b").await.unwrap();
    assert_eq!((new.role_ref.name.as_str(), new.uid() == old.uid()), ("edit", false));
}

#[tokio::test]
async fn the_owner_is_changed_in_the_version_that_was_seen_and_in_no_other() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("own").await.unwrap();
    let owner = owner(&namespace).await;
    let maps = namespace.all::<ConfigMap>();
    let seen = maps.get("starter").await.unwrap().resource_version();
    let asks =
        |text: &str| plan(vec![WriteOp::PatchOwner(json!({ "metadata": { "annotations": { "found": text } } }))]);
    let server = server(cluster, cluster.admin().await.unwrap());
    let live = Live::default().of_owner(seen);
    let outcome = apply(&server, MANAGER, &owner, &asks("first"), &live).await.outcome;
    assert_eq!(written(outcome), 1);
    let failure = apply(&server, MANAGER, &owner, &asks("second"), &live).await.outcome.failure.unwrap();
    assert!(failure.conflict, "it has moved on: {failure:?}");
    assert_eq!(maps.get("starter").await.unwrap().annotations()["found"], "first");
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_serve_is_named_with_what_to_do() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("unserved").await.unwrap();
    let owner = owner(&namespace).await;
    let graph = json!({ "apiVersion": "steersman.example/v1", "kind": "Graph", "metadata": { "name": "g" } });
    let asks = vec![WriteOp::Unowned(Write::CreateOnce(object(graph)))];
    let failure = asked(cluster, &namespace, &owner, asks).await.failure.unwrap();
    let said = "the cluster does not serve Graph (steersman.example/v1); install its CRD, and it is tried again";
    assert_eq!((failure.message.as_str(), failure.transient), (said, true));
}
