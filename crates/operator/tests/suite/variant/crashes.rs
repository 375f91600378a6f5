//! The fleet after a crash, an error or a timeout at each write: the same statuses.

use steersman_testkit::fault_injection::{CallFault, crash_at_every_call};

use super::*;

async fn reconcile_namespace(cluster: &Cluster, client: Client, namespace: &str) -> Result<()> {
    let scope = Scope::Namespace(namespace.to_owned());
    let context = fleet_context(cluster, client, scope, namespace, &[]);
    reconcile_fleet(&FleetController::new(&context, DebounceConfig::default())).await.map(|_| ())
}

/// The object without the times of its decision, which differ between runs.
fn without_times(object: &DynamicObject) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    let times = ["/status/desiredOptimizedAlloc/lastRunTime", "/status/desiredOptimizedAlloc/lastUpdate/updateTime"];
    for time in times {
        if let Some(time) = value.pointer_mut(time) {
            *time = "a time".into();
        }
    }
    Ok(value)
}

#[tokio::test]
async fn fleet_status_is_same_after_any_crash() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call(
        cluster,
        "crash-fleet",
        &CallFault::ALL,
        async |namespace: &Namespace| {
            deploy(namespace, "decode", 2).await?;
            for (name, target) in [("first", "decode"), ("second", "absent")] {
                create(&admin, namespace.name(), name, spec(target)).await?;
            }
            Ok(())
        },
        async |client, namespace: &Namespace, ()| reconcile_namespace(cluster, client, namespace.name()).await,
        async |namespace: &Namespace| {
            let listed = objects(&admin, namespace.name()).list(&ListParams::default()).await?;
            Ok(listed.items.iter().map(without_times).collect::<serde_json::Result<Vec<_>>>()?)
        },
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 3, "expected an event and two statuses: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

/// The second controller reconciles from stores that were filled before the write of the first.
#[tokio::test]
async fn concurrent_writer_conflicts_without_lost_update() {
    let Some(test) = TestNamespace::new("two").await else { return };
    test.deploy("decode", 2).await;
    test.create("v", spec("decode")).await;
    let (one, other) = (test.controller(test.admin.clone()), test.controller(test.admin.clone()));
    one.fill().await.unwrap();
    other.fill().await.unwrap();
    assert_eq!(one.reconcile().await.written, 1);
    let late = other.reconcile().await;
    assert_eq!((late.written, late.conflicts, late.failed), (0, 1, 0), "{late:?}");
    assert_eq!(reconcile_fleet(&other).await.unwrap().written, 0, "the second controller must decide the same");
    // The first controller knows its own write without a watch event.
    assert_eq!(one.reconcile().await.written, 0);
}
