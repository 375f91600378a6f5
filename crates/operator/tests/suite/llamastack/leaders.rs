//! Several operators at once: each write is the leader's of its moment.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::audit::Written;
use steersman_testkit::{Flavour, wait};

use super::process::{starter, world};
use crate::process::operator::Operator;
use crate::process::standby;
use crate::schemas::uninstall;

/// Who held the Lease when each write was answered is in the same log, and in the same order, as the writes.
fn assert_only_leaders_wrote(writes: &[Written], identities: &[&str]) -> usize {
    let mut holder = String::new();
    let mut checked = 0;
    // What was refused or broke off changed nothing.
    for written in writes.iter().filter(|written| written.succeeded()) {
        if written.is_lease() && written.uri.contains("steersman") {
            holder = written.holder().to_owned();
        }
        let by = identities.iter().find(|identity| written.user_agent.ends_with(&format!(" {identity}")));
        // The webhook's certificate and the CRDs' trust in it are every replica's business: one is ready before it leads.
        let of_the_webhook = written.uri.contains("/secrets") || written.uri.contains("/customresourcedefinitions/");
        if let Some(by) = by.filter(|_| !written.is_lease() && !of_the_webhook) {
            assert_eq!(&holder, by, "{written:?}");
            checked += 1;
        }
    }
    checked
}

#[tokio::test]
async fn only_the_leader_writes_by_the_audit_log() {
    let Some(world) = world(Flavour::Bare, "leaders").await else { return };
    for index in 0..5 {
        world.create(&format!("busy-{index}"), starter()).await;
    }
    // Users who never rest, so that every leader always has something to write.
    let (objects, stop) = (world.objects(), tokio_util::sync::CancellationToken::new());
    let restless = tokio::spawn({
        let stop = stop.clone();
        async move {
            for turn in 0u64.. {
                let env = json!([{ "name": "TURN", "value": turn.to_string() }]);
                let patch = Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": env } } } }));
                let name = format!("busy-{}", turn % 5);
                objects.patch(&name, &PatchParams::default(), &patch).await.unwrap();
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(Duration::from_millis(20)) => {}
                }
            }
        }
    });
    let until_writes = async |identity: &str, operator: &Operator| {
        let count = || world.writes_of(identity).iter().filter(|written| !written.is_lease()).count();
        let before = count();
        let more = async || (count() > before + 10).then_some(());
        wait::eventually(&format!("{identity} writes"), more).await.unwrap_or_else(|error| {
            panic!("{error}\n{}", operator.log());
        });
    };

    let mut first = world.place.start("audit-1", &[]).await;
    world.place.until_led_by("audit-1").await;
    until_writes("audit-1", &first).await;
    let second = standby(&world.place, "audit-2").await;
    first.signal(Signal::TERM);
    world.place.until_led_by("audit-2").await;
    assert_eq!(first.exit_code().await, Some(0));
    until_writes("audit-2", &second).await;

    // Paused in the middle of its work, it wakes when another one leads.
    let third = standby(&world.place, "audit-3").await;
    second.signal(Signal::STOP);
    world.place.until_led_by("audit-3").await;
    until_writes("audit-3", &third).await;
    second.signal(Signal::CONT);
    second.until_said("lost the lease: standing by").await;
    until_writes("audit-3", &third).await;

    third.signal(Signal::KILL);
    world.place.until_led_by("audit-2").await;
    until_writes("audit-2", &second).await;
    stop.cancel();
    restless.await.unwrap();
    let checked = assert_only_leaders_wrote(&world.cluster.writes().unwrap(), &["audit-1", "audit-2", "audit-3"]);
    println!("{checked} writes, each by the leader of its moment");
    assert!(checked > 40, "{checked}");
    uninstall(&world.admin, Family::Llsd).await;
}
