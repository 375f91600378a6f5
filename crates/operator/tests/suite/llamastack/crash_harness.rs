//! Tests of the crash harness itself: it detects planted bugs.

use super::*;

/// The planted bug: a reconcile reports success before it has created anything, and relies on that status the next time.
#[tokio::test]
async fn harness_catches_status_written_before_children() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call(
        cluster,
        "planted",
        &[CallFault::NotSent],
        async |namespace: &Namespace| prepare(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| {
            let own = objects(&client, namespace.name());
            if own.get("starter").await?.data["status"]["phase"] == "Ready" {
                return Ok(());
            }
            let ready = Patch::Merge(json!({ "status": { "phase": "Ready" } }));
            own.patch_status("starter", &PatchParams::default(), &ready).await?;
            let account: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa" } }));
            let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace.name());
            accounts.create(&PostParams::default(), &account).await?;
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert_eq!(crashes.failures.len(), 1, "{:#?}", crashes.failures);
    assert!(crashes.failures[0].starts_with("NotSent at call 2 of 2"), "{:#?}", crashes.failures);
}

/// The planted bug: an object is deleted before its replacement exists. The end state is the same, but a crash in between
/// leaves the server without a Service.
#[tokio::test]
async fn harness_catches_deletion_before_replacement() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let service = |name: &str| -> Service {
        object(json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }))
    };
    let replace = async |delete_early: bool| {
        crash_at_every_call_with_invariant(
            cluster,
            "sweep",
            (CountedCalls::Writes, &[CallFault::NotSent, CallFault::ResponseLost]),
            async |namespace: &Namespace| {
                namespace.api::<Service>().create(&PostParams::default(), &service("old")).await?;
                Ok(())
            },
            async |client, namespace: &Namespace, ()| {
                let services: Api<Service> = Api::namespaced(client, namespace.name());
                let remove = async || match services.get_opt("old").await? {
                    Some(_) => services.delete("old", &DeleteParams::default()).await.map(|_| ()),
                    None => Ok(()),
                };
                if delete_early {
                    remove().await?;
                }
                if services.get_opt("new").await?.is_none() {
                    services.create(&PostParams::default(), &service("new")).await?;
                }
                Ok(remove().await?)
            },
            async |namespace: &Namespace| {
                let listed = namespace.api::<Service>().list(&ListParams::default()).await?;
                anyhow::ensure!(!listed.items.is_empty(), "there is no Service");
                Ok(())
            },
            async |namespace: &Namespace| list_all::<Service>(&admin, namespace.name()).await,
        )
        .await
        .unwrap()
    };
    assert!(replace(false).await.failures.is_empty());
    let broken = replace(true).await.failures;
    assert!(!broken.is_empty() && broken.iter().all(|flaw| flaw.contains("there is no Service")), "{broken:#?}");
}
