//! Passes with a planted bug: the crash harness finds what it is for.

use super::*;

/// The harness finds what it is for: a pass that reports success before it has created anything, and believes its own
/// report the next time.
#[tokio::test]
async fn a_status_before_the_children_is_caught() {
    let Some((cluster, admin)) = with_crd().await else { return };
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

/// Another planted bug: what is replaced goes before its successor is there. In the end all is the same, but in between
/// a crash leaves the server without an address.
#[tokio::test]
async fn a_sweep_before_the_successor_is_caught() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let service = |name: &str| -> Service {
        object(json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }))
    };
    let swept = async |early: bool| {
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
                if early {
                    remove().await?;
                }
                if services.get_opt("new").await?.is_none() {
                    services.create(&PostParams::default(), &service("new")).await?;
                }
                Ok(remove().await?)
            },
            async |namespace: &Namespace| {
                let there = namespace.all::<Service>().list(&ListParams::default()).await?;
                anyhow::ensure!(!there.items.is_empty(), "there is no Service");
                Ok(())
            },
            async |namespace: &Namespace| all::<Service>(&admin, namespace.name()).await,
        )
        .await
        .unwrap()
    };
    assert!(swept(false).await.broken.is_empty());
    let broken = swept(true).await.broken;
    assert!(!broken.is_empty() && broken.iter().all(|flaw| flaw.contains("there is no Service")), "{broken:#?}");
}
