//! A crash, an error or a timeout at any call, followed by a retry: the objects end as in an undisturbed run.

use anyhow::{Result, anyhow};
use steersman_testkit::cut::{Crashes, Cut, crash_everywhere};

use super::*;

/// All objects of the kinds that the plan writes.
async fn snapshot(client: &Client, namespace: &Namespace) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for kind in kinds() {
        for mut child in list(client, namespace, &kind).await {
            child.types = Some(kube::api::TypeMeta { api_version: kind.api_version(), kind: kind.kind.clone() });
            objects.push(serde_json::to_value(&child)?);
        }
    }
    Ok(objects)
}

async fn crashes(cluster: &Cluster, prefix: &str, cuts: &[Cut], legacy: bool) -> Crashes {
    let admin = cluster.admin().await.unwrap();
    let mut plan = stack_plan(env());
    plan.prune = kinds()[..3].to_vec();
    let prepare = async |namespace: &Namespace| {
        let owner = owner(namespace).await;
        // The plan prunes this Service, and adopts the Deployment below.
        let mut old = service("starter-old");
        old["metadata"]["ownerReferences"] = json!([owner.reference()]);
        let ours = PatchParams::apply(MANAGER).force();
        namespace.all::<Service>().patch("starter-old", &ours, &Patch::Apply(old)).await?;
        if legacy {
            let theirs: Deployment = object(deployment(env()));
            let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
            namespace.all::<Deployment>().create(&manager, &theirs).await?;
        }
        Ok(owner)
    };
    let reconcile = async |client: Client, namespace: &Namespace, owner: &Owner| {
        let live = live(&client, namespace).await;
        let outcome = apply(&server(cluster, client), MANAGER, owner, &plan, &live).await.outcome;
        outcome.failure.map_or(Ok(()), |failure| Err(anyhow!("{failure:?}")))
    };
    let snapshot = async |namespace: &Namespace| snapshot(&admin, namespace).await;
    crash_everywhere(cluster, prefix, cuts, prepare, reconcile, snapshot).await.unwrap()
}

#[tokio::test]
async fn plan_converges_after_a_fault_anywhere() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let crashes = crashes(cluster, "crash", &Cut::ALL, false).await;
    assert_eq!(crashes.calls, 5, "four children and one deletion");
    assert_eq!(crashes.runs, 5 * Cut::ALL.len());
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

#[tokio::test]
async fn adoption_converges_after_a_fault_anywhere() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let crashes = crashes(cluster, "crash-adopt", &[Cut::NotSent, Cut::AnswerLost, Cut::Status(409)], true).await;
    assert_eq!(crashes.calls, 6, "the Deployment takes two: fold the managed fields, then apply");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

/// The harness itself works: with `generateName` a crash leaves two objects, and the harness reports that.
#[tokio::test]
async fn generated_name_is_reported_as_duplicate() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let prepare = async |namespace: &Namespace| Ok(owner(namespace).await);
    let reconcile = async |client: Client, namespace: &Namespace, _: &Owner| {
        let owner = namespace.all::<ConfigMap>().get("starter").await?;
        if owner.annotations().contains_key("child") {
            return Ok(());
        }
        let child: ServiceAccount = object(json!({ "metadata": { "generateName": "starter-" } }));
        let created = namespace.seen_by::<ServiceAccount>(&client).create(&PostParams::default(), &child).await?;
        let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "child": created.name_any() } } }));
        namespace.seen_by::<ConfigMap>(&client).patch("starter", &PatchParams::default(), &annotation).await?;
        Ok(())
    };
    let snapshot = async |namespace: &Namespace| {
        let accounts = list(&admin, namespace, &kinds()[0]).await;
        Ok(accounts.iter().map(|_| json!({ "kind": "ServiceAccount", "metadata": { "name": "created-up" } })).collect())
    };
    let cuts = [Cut::NotSent, Cut::AnswerLost];
    let crashes = crash_everywhere(cluster, "created-up", &cuts, prepare, reconcile, snapshot).await.unwrap();
    assert_eq!(crashes.calls, 2);
    let flaws = crashes.broken.join("\n");
    assert_eq!(crashes.broken.len(), 2, "{flaws}");
    assert!(flaws.contains("AnswerLost at call 1 of 2: 2 objects instead of 1"), "{flaws}");
    assert!(flaws.contains("NotSent at call 2 of 2: 2 objects instead of 1"), "{flaws}");
}
