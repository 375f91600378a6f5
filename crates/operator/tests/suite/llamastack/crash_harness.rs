//! Tests of the crash harness itself: it detects planted bugs.

use super::*;

/// The planted bug: a reconcile reports success before it has created anything, and relies on that status the next time.
#[tokio::test]
async fn harness_catches_status_written_before_children() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "planted",
        &[Cut::NotSent],
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
    assert_eq!(crashes.broken.len(), 1, "{:#?}", crashes.broken);
    assert!(crashes.broken[0].starts_with("NotSent at call 2 of 2"), "{:#?}", crashes.broken);
}

/// The planted bug: an object is deleted before its replacement exists. The end state is the same, but a crash in between
/// leaves the server without a Service.
#[tokio::test]
async fn harness_catches_deletion_before_replacement() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let service = |name: &str| -> Service {
        object(json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }))
    };
    let replace = async |delete_early: bool| {
        crash_everywhere_and(
            cluster,
            "sweep",
            (Calls::Writes, &[Cut::NotSent, Cut::AnswerLost]),
            async |namespace: &Namespace| {
                namespace.all::<Service>().create(&PostParams::default(), &service("old")).await?;
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
                let listed = namespace.all::<Service>().list(&ListParams::default()).await?;
                anyhow::ensure!(!listed.items.is_empty(), "there is no Service");
                Ok(())
            },
            async |namespace: &Namespace| list_all::<Service>(&admin, namespace.name()).await,
        )
        .await
        .unwrap()
    };
    assert!(replace(false).await.broken.is_empty());
    let broken = replace(true).await.broken;
    assert!(!broken.is_empty() && broken.iter().all(|flaw| flaw.contains("there is no Service")), "{broken:#?}");
}
