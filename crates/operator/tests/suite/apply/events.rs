//! Events: the same note is counted, another note is another event.

use k8s_openapi::api::events::v1::Event as KubeEvent;
use steersman_reconcile::Event;
use steersman_runtime::apply::Recorder;
use steersman_testkit::cut::Cut;

use super::*;

fn note(message: &str) -> Event {
    Event::warning("ImageUnknown", message)
}

async fn told(namespace: &Namespace) -> Vec<(String, i32)> {
    let events = namespace.all::<KubeEvent>().list(&ListParams::default()).await.unwrap();
    let told = |event: KubeEvent| (event.note.unwrap_or_default(), event.series.map_or(1, |series| series.count));
    let mut told: Vec<_> = events.into_iter().map(told).collect();
    told.sort();
    told
}

#[tokio::test]
async fn a_repeated_note_is_counted_and_a_changed_one_is_not_lost() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("events").await.unwrap();
    let owner = owner(&namespace).await;
    let admin = cluster.admin().await.unwrap();
    let recorder = Recorder::new(server(cluster, admin.clone()), "steersman/llsd", "steersman-0");
    recorder.publish(&owner, &note("no image a")).await;
    recorder.publish(&owner, &note("no image b")).await;
    recorder.publish(&owner, &note("no image a")).await;
    let counts = |told: Vec<(String, i32)>| -> i32 { told.iter().map(|(_, count)| count).sum() };
    assert_eq!(counts(told(&namespace).await), 3);
    assert!(told(&namespace).await.iter().any(|(note, _)| note == "no image b"));

    // One that starts again, as after a crash, and one that cannot write at all.
    let next = Recorder::new(server(cluster, admin.clone()), "steersman/llsd", "steersman-1");
    next.publish(&owner, &note("no image a")).await;
    assert_eq!(counts(told(&namespace).await), 4);
    let cut = Cutter::at(1, Cut::NotSent).then_gone().around(&admin);
    Recorder::new(server(cluster, cut), "steersman/llsd", "steersman-2").publish(&owner, &note("lost")).await;
    assert_eq!(counts(told(&namespace).await), 4, "and no pass fails for it");

    recorder.publish(&owner, &note(&"ä".repeat(3000))).await;
    assert_eq!(counts(told(&namespace).await), 5, "long notes are cut, not refused");
}
