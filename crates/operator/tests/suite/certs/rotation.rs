//! Rotations that users request while other users read and write objects.

use std::time::Instant;

use rustix::process::Signal;
use steersman_api::Family;
use steersman_testkit::wait;

use super::load::LoadGenerator;
use super::{WebhookEnv, ca_count};

/// A lifetime with which a rotation takes seconds, each step is long enough for a busy API server to notice, and the
/// certificate does not expire during a test on a slow machine.
pub const SHORT_LIFETIME: [&str; 2] = ["--webhook-certificate-validity", "15m"];

/// Requests that must be answered before the first rotation, after each, and after the leader has stopped.
const REQUESTS_PER_STEP: usize = 75;

#[tokio::test]
async fn certificates_and_cas_rotate_without_a_failed_request() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    for family in [Family::Llsd, Family::Dgdr] {
        env.install(family).await;
    }
    let mut first = env.start("first", &SHORT_LIFETIME).await;
    first.until_answer("/readyz", 200).await;
    // A standby is ready as well, so readiness does not show who leads.
    env.installation.until_led_by("first").await;
    let second = env.start("second", &SHORT_LIFETIME).await;
    second.until_answer("/readyz", 200).await;
    let load = LoadGenerator::start(&env, &[Family::Llsd, Family::Dgdr]).await;
    load.wait_for_requests(REQUESTS_PER_STEP).await;
    assert_eq!(env.installation.holder().await, "first");
    // A standby converts as well.
    second.until_metric("steersman_webhook_reviews_total{webhook=\"/convert\",outcome=\"answered\"}").await;

    for round in 1..=3 {
        let began = Instant::now();
        let (before, mut secret) = env.watch_secret().await;
        env.request_rotation().await;
        let begun = secret.until("holds a successor", |data| data.contains_key("next.crt")).await;
        assert_eq!(begun["tls.crt"], before["tls.crt"], "a certificate is not served before it is trusted");
        assert_eq!(ca_count(&begun["ca.crt"]), 2);
        let switched = secret.until("holds the successor alone", |data| !data.contains_key("next.crt")).await;
        assert_eq!(switched["tls.crt"], begun["next.crt"]);
        assert_eq!(ca_count(&switched["ca.crt"]), 2, "an operator that still serves the old certificate is trusted");
        let retired = secret.until("holds one CA", |data| ca_count(&data["ca.crt"]) == 1).await;
        assert_ne!(retired["ca.crt"], before["ca.crt"], "the CA has changed as well");
        for family in [Family::Llsd, Family::Dgdr] {
            assert_eq!(env.wait_until_trusted(family).await, retired["ca.crt"]);
        }
        load.wait_for_requests(REQUESTS_PER_STEP).await;
        println!("rotation {round}: {:?}, {} requests so far", began.elapsed(), load.answered());
    }

    // The leader stops under load. Like an endpoint that is not ready, it gets no new connections from then on.
    let leader = first.address("webhook").unwrap().trim_start_matches("https://").parse().unwrap();
    let connections = env.forwarder.connections();
    env.forwarder.remove_backend(leader);
    first.signal(Signal::TERM);
    env.installation.until_led_by("second").await;
    assert_eq!(first.exit_code().await, Some(0));
    load.wait_for_requests(REQUESTS_PER_STEP).await;
    let (_, mut secret) = env.watch_secret().await;
    env.request_rotation().await;
    secret.until("holds a successor", |data| data.contains_key("next.crt")).await;
    secret.until("holds one CA", |data| ca_count(&data["ca.crt"]) == 1).await;

    let (answered, failed) = load.stop().await;
    println!("{answered} requests through {connections:?} connections, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new());
    assert!(answered >= 5 * REQUESTS_PER_STEP, "{answered}");
    assert!(connections.iter().all(|count| *count > 0), "both operators have converted: {connections:?}");
    for operator in [&first, &second] {
        operator.assert_log_is_json();
        assert!(!operator.log().contains("PRIVATE KEY"));
    }
    for family in [Family::Llsd, Family::Dgdr] {
        env.uninstall(family).await;
    }
}

/// With the default lifetime a rotation waits for a minute between its steps, so the leader is killed in the middle.
#[tokio::test]
async fn new_leader_continues_an_interrupted_rotation() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    env.install(Family::Llsd).await;
    let leader = env.start("leader", &[]).await;
    leader.until_answer("/readyz", 200).await;
    env.installation.until_led_by("leader").await;
    env.request_rotation().await;
    let begun = env.wait_for_secret("holds a successor", |data| data.contains_key("next.crt")).await;
    assert_eq!(env.wait_until_trusted(Family::Llsd).await, begun["ca.crt"]);
    leader.signal(Signal::KILL);
    env.installation.extend_lease().await;

    let successor = env.start("successor", &SHORT_LIFETIME).await;
    successor.until_answer("/readyz", 200).await;
    successor.wait_for_log("waiting for the lease").await;
    assert!(env.secret().await.contains_key("next.crt"), "a standby does not rotate");
    env.installation.release_lease().await;
    env.installation.until_led_by("successor").await;
    let ended = env.wait_for_secret("holds the successor alone", |data| !data.contains_key("next.crt")).await;
    assert_eq!(ended["tls.crt"], begun["next.crt"], "the successor that the dead leader made");
    let rotation_ended = async || successor.log().contains("removed the old CA from the bundles").then_some(());
    wait::eventually("the rotation ends", rotation_ended).await.unwrap();
    env.uninstall(Family::Llsd).await;
}
