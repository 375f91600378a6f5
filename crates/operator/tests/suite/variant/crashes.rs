//! A crash, an error or silence at any call, and then again: the same statuses.

use steersman_testkit::cut::{Cut, crash_everywhere};

use super::*;

async fn pass_in(cluster: &Cluster, client: Client, namespace: &str) -> Result<()> {
    let scope = Scope::Namespace(namespace.to_owned());
    let given = given(cluster, client, scope, namespace, &[]);
    pass(&FleetController::new(&given, DebounceConfig::default())).await.map(|_| ())
}

/// When something was decided is another moment in each run.
fn timeless(object: &DynamicObject) -> serde_json::Result<Value> {
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
async fn a_fleet_comes_to_the_same_end_wherever_it_is_cut() {
    let Some((cluster, admin)) = with_crd().await else { return };
    let crashes = crash_everywhere(
        cluster,
        "crash-fleet",
        &Cut::ALL,
        async |namespace: &Namespace| {
            deploy(namespace, "decode", 2).await?;
            for (name, target) in [("first", "decode"), ("second", "absent")] {
                create(&admin, namespace.name(), name, spec(target)).await?;
            }
            Ok(())
        },
        async |client, namespace: &Namespace, ()| pass_in(cluster, client, namespace.name()).await,
        async |namespace: &Namespace| {
            let listed = objects(&admin, namespace.name()).list(&ListParams::default()).await?;
            Ok(listed.items.iter().map(timeless).collect::<serde_json::Result<Vec<_>>>()?)
        },
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 3, "an event and two statuses: {crashes:?}");
    assert!(crashes.broken.is_empty(), "{:#?}", crashes.broken);
}

/// One pass sees what the other has not written yet.
#[tokio::test]
async fn of_two_that_act_at_once_one_is_overtaken_and_nothing_is_lost() {
    let Some(scene) = Scene::new("two").await else { return };
    scene.deploy("decode", 2).await;
    scene.create("v", spec("decode")).await;
    let (one, other) = (scene.controller(scene.admin.clone()), scene.controller(scene.admin.clone()));
    one.fill().await.unwrap();
    other.fill().await.unwrap();
    assert_eq!(one.reconcile().await.written, 1);
    let late = other.reconcile().await;
    assert_eq!((late.written, late.conflicts, late.failed), (0, 1, 0), "{late:?}");
    assert_eq!(pass(&other).await.unwrap().written, 0, "it says the same");
    // What was written is known without a watch.
    assert_eq!(one.reconcile().await.written, 0);
}
