//! Several operators at once: only the current leader writes.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;
use steersman_api::Family;
use steersman_testkit::audit::AuditedWrite;
use steersman_testkit::{Flavour, wait};

use super::process::{starter, test_env};
use crate::process::operator::OperatorProcess;
use crate::process::start_standby;
use crate::schemas::uninstall_crd;

/// Asserts that each write was made by the holder of the Lease, and returns the number of checked writes. The audit log
/// contains the writes of the Lease and of other objects in order.
fn assert_only_leaders_wrote(writes: &[AuditedWrite], identities: &[&str]) -> usize {
    let mut holder = String::new();
    let mut checked = 0;
    // Failed writes changed nothing.
    for written in writes.iter().filter(|written| written.succeeded()) {
        if written.is_lease() && written.uri.contains("steersman") {
            holder = written.holder().to_owned();
        }
        let writer = identities.iter().find(|identity| written.user_agent.ends_with(&format!(" {identity}")));
        // Every replica writes the webhook's certificate and its CA bundle in the CRDs, to be ready before it leads.
        let is_webhook = written.uri.contains("/secrets") || written.uri.contains("/customresourcedefinitions/");
        if let Some(writer) = writer.filter(|_| !written.is_lease() && !is_webhook) {
            assert_eq!(&holder, writer, "{written:?}");
            checked += 1;
        }
    }
    checked
}

#[tokio::test]
async fn audit_log_shows_only_leader_writes() {
    let Some(env) = test_env(Flavour::Bare, "leaders").await else { return };
    for index in 0..5 {
        env.create(&format!("busy-{index}"), starter()).await;
    }
    // Constant changes by users, so that every leader always has something to write.
    let (objects, stop) = (env.objects(), tokio_util::sync::CancellationToken::new());
    let user_changes = tokio::spawn({
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
    let until_writes = async |identity: &str, operator: &OperatorProcess| {
        let count = || env.writes_of(identity).iter().filter(|written| !written.is_lease()).count();
        let before = count();
        let more = async || (count() > before + 10).then_some(());
        wait::eventually(&format!("{identity} writes"), more).await.unwrap_or_else(|error| {
            panic!("{error}\n{}", operator.log());
        });
    };

    let mut first = env.installation.start("audit-1", &[]).await;
    env.installation.until_led_by("audit-1").await;
    until_writes("audit-1", &first).await;
    let second = start_standby(&env.installation, "audit-2").await;
    first.signal(Signal::TERM);
    env.installation.until_led_by("audit-2").await;
    assert_eq!(first.exit_code().await, Some(0));
    until_writes("audit-2", &second).await;

    // The second operator is paused while it works, and resumes after another one has become leader.
    let third = start_standby(&env.installation, "audit-3").await;
    second.signal(Signal::STOP);
    env.installation.until_led_by("audit-3").await;
    until_writes("audit-3", &third).await;
    second.signal(Signal::CONT);
    second.wait_for_log("lost the lease: standing by").await;
    until_writes("audit-3", &third).await;

    third.signal(Signal::KILL);
    env.installation.until_led_by("audit-2").await;
    until_writes("audit-2", &second).await;
    stop.cancel();
    user_changes.await.unwrap();
    let checked = assert_only_leaders_wrote(&env.cluster.audited_writes().unwrap(), &["audit-1", "audit-2", "audit-3"]);
    println!("{checked} writes, each by the current leader");
    assert!(checked > 40, "{checked}");
    uninstall_crd(&env.admin, Family::Llsd).await;
}
