//! A crash, an error or a timeout at any call, followed by a retry: the objects end as in an undisturbed run.

use anyhow::{Result, anyhow};
use steersman_testkit::fault_injection::{CallFault, SweepReport, crash_at_every_call};

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

async fn crashes(cluster: &Cluster, prefix: &str, faults: &[CallFault], legacy: bool) -> SweepReport {
    let admin = cluster.admin().await.unwrap();
    let mut plan = stack_plan(env());
    plan.prune = kinds()[..3].to_vec();
    let prepare = async |namespace: &Namespace| {
        let owner = owner(namespace).await;
        // The plan prunes this Service, and adopts the Deployment below.
        let mut old = service("starter-old");
        old["metadata"]["ownerReferences"] = json!([owner.reference()]);
        let ours = PatchParams::apply(MANAGER).force();
        namespace.api::<Service>().patch("starter-old", &ours, &Patch::Apply(old)).await?;
        if legacy {
            let theirs: Deployment = object(deployment(env()));
            let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
            namespace.api::<Deployment>().create(&manager, &theirs).await?;
        }
        Ok(owner)
    };
    let reconcile = async |client: Client, namespace: &Namespace, owner: &Owner| {
        let live = live(&client, namespace).await;
        let outcome = apply(&server(cluster, client), MANAGER, owner, &plan, &live).await.outcome;
        outcome.failure.map_or(Ok(()), |failure| Err(anyhow!("{failure:?}")))
    };
    let snapshot = async |namespace: &Namespace| snapshot(&admin, namespace).await;
    crash_at_every_call(cluster, prefix, faults, prepare, reconcile, snapshot).await.unwrap()
}

#[tokio::test]
async fn plan_converges_after_a_fault_anywhere() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let crashes = crashes(cluster, "crash", &CallFault::ALL, false).await;
    assert_eq!(crashes.calls, 5, "four children and one deletion");
    assert_eq!(crashes.runs, 5 * CallFault::ALL.len());
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

#[tokio::test]
async fn adoption_converges_after_a_fault_anywhere() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let crashes =
        crashes(cluster, "crash-adopt", &[CallFault::NotSent, CallFault::ResponseLost, CallFault::Status(409)], true)
            .await;
    assert_eq!(crashes.calls, 6, "the Deployment takes two: fold the managed fields, then apply");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

/// The harness itself works: with `generateName` a crash leaves two objects, and the harness reports that.
#[tokio::test]
async fn generated_name_is_reported_as_duplicate() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let admin = cluster.admin().await.unwrap();
    let prepare = async |namespace: &Namespace| Ok(owner(namespace).await);
    let reconcile = async |client: Client, namespace: &Namespace, _: &Owner| {
        let owner = namespace.api::<ConfigMap>().get("starter").await?;
        if owner.annotations().contains_key("child") {
            return Ok(());
        }
        let child: ServiceAccount = object(json!({ "metadata": { "generateName": "starter-" } }));
        let created = namespace.api_as::<ServiceAccount>(&client).create(&PostParams::default(), &child).await?;
        let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "child": created.name_any() } } }));
        namespace.api_as::<ConfigMap>(&client).patch("starter", &PatchParams::default(), &annotation).await?;
        Ok(())
    };
    let snapshot = async |namespace: &Namespace| {
        let accounts = list(&admin, namespace, &kinds()[0]).await;
        Ok(accounts.iter().map(|_| json!({ "kind": "ServiceAccount", "metadata": { "name": "created-up" } })).collect())
    };
    let faults = [CallFault::NotSent, CallFault::ResponseLost];
    let crashes = crash_at_every_call(cluster, "created-up", &faults, prepare, reconcile, snapshot).await.unwrap();
    assert_eq!(crashes.calls, 2);
    let flaws = crashes.failures.join("\n");
    assert_eq!(crashes.failures.len(), 2, "{flaws}");
    assert!(flaws.contains("ResponseLost at call 1 of 2: 2 objects instead of 1"), "{flaws}");
    assert!(flaws.contains("NotSent at call 2 of 2: 2 objects instead of 1"), "{flaws}");
}
