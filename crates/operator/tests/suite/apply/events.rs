//! Events: a repeated note is counted in a series, another note is another event.

use k8s_openapi::api::events::v1::Event as KubeEvent;
use steersman_reconcile::Event;
use steersman_runtime::apply::Recorder;
use steersman_testkit::fault_injection::CallFault;

use super::*;

fn warning(message: &str) -> Event {
    Event::warning("ImageUnknown", message)
}

async fn list_events(namespace: &Namespace) -> Vec<(String, i32)> {
    let events = namespace.api::<KubeEvent>().list(&ListParams::default()).await.unwrap();
    let summarize = |event: KubeEvent| (event.note.unwrap_or_default(), event.series.map_or(1, |series| series.count));
    let mut notes: Vec<_> = events.into_iter().map(summarize).collect();
    notes.sort();
    notes
}

#[tokio::test]
async fn repeated_event_is_counted_changed_one_is_new() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("events").await.unwrap();
    let owner = owner(&namespace).await;
    let admin = cluster.admin().await.unwrap();
    let recorder = Recorder::new(server(cluster, admin.clone()), "steersman/llsd", "steersman-0");
    recorder.publish(&owner, &warning("no image a")).await;
    recorder.publish(&owner, &warning("no image b")).await;
    recorder.publish(&owner, &warning("no image a")).await;
    let total = |notes: Vec<(String, i32)>| -> i32 { notes.iter().map(|(_, count)| count).sum() };
    assert_eq!(total(list_events(&namespace).await), 3);
    assert!(list_events(&namespace).await.iter().any(|(note, _)| note == "no image b"));

    // A recorder that starts after a crash counts on, and one that cannot write loses the event.
    let next = Recorder::new(server(cluster, admin.clone()), "steersman/llsd", "steersman-1");
    next.publish(&owner, &warning("no image a")).await;
    assert_eq!(total(list_events(&namespace).await), 4);
    let unreachable = FaultInjector::fail_call(1, CallFault::NotSent).then_unreachable().wrap(&admin);
    Recorder::new(server(cluster, unreachable), "steersman/llsd", "steersman-2")
        .publish(&owner, &warning("lost"))
        .await;
    assert_eq!(total(list_events(&namespace).await), 4, "a lost event fails no reconcile");

    recorder.publish(&owner, &warning(&"ä".repeat(3000))).await;
    assert_eq!(total(list_events(&namespace).await), 5, "long notes are truncated, not refused");
}
