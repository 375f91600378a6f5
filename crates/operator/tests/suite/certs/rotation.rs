//! Rotations, asked for and finished while users work.

use std::time::Instant;

use rustix::process::Signal;
use steersman_api::Family;
use steersman_testkit::wait;

use super::load::Load;
use super::{Site, cas};

/// A life that makes a rotation take seconds, each step long enough for a busy API server to follow, and that does not run
/// out in a test however slow the machine is.
pub const SHORT: [&str; 2] = ["--webhook-certificate-life", "15m"];

/// So many requests are answered before the first rotation, after each, and after the leader has left.
const MORE: usize = 75;

#[tokio::test]
async fn certificates_and_cas_rotate_without_a_failed_request() {
    let Some(site) = Site::prepared().await else { return };
    for family in [Family::Llsd, Family::Dgdr] {
        site.install(family).await;
    }
    let mut first = site.start("first", &SHORT).await;
    first.until_answer("/readyz", 200).await;
    // Ready is also who stands by.
    site.place.until_led_by("first").await;
    let second = site.start("second", &SHORT).await;
    second.until_answer("/readyz", 200).await;
    let load = Load::start(&site, &[Family::Llsd, Family::Dgdr]).await;
    load.more(MORE).await;
    assert_eq!(site.place.holder().await, "first");
    // Who stands by converts as well.
    second.until_metric("steersman_webhook_reviews_total{webhook=\"/convert\",outcome=\"answered\"}").await;

    for round in 1..=3 {
        let began = Instant::now();
        let (before, mut secret) = site.follow_secret().await;
        site.ask().await;
        let begun = secret.until("holds a successor", |data| data.contains_key("next.crt")).await;
        assert_eq!(begun["tls.crt"], before["tls.crt"], "nobody shows what is not trusted yet");
        assert_eq!(cas(&begun["ca.crt"]), 2);
        let turned = secret.until("holds the successor alone", |data| !data.contains_key("next.crt")).await;
        assert_eq!(turned["tls.crt"], begun["next.crt"]);
        assert_eq!(cas(&turned["ca.crt"]), 2, "who has not followed yet is still trusted");
        let retired = secret.until("holds one CA", |data| cas(&data["ca.crt"]) == 1).await;
        assert_ne!(retired["ca.crt"], before["ca.crt"], "the CA has changed as well");
        for family in [Family::Llsd, Family::Dgdr] {
            assert_eq!(site.until_trusted(family).await, retired["ca.crt"]);
        }
        load.more(MORE).await;
        println!("rotation {round}: {:?}, {} requests so far", began.elapsed(), load.done());
    }

    // A leader leaves in the middle of it all: as endpoints do, it takes no new connections from then on.
    let leader = first.address("webhook").unwrap().trim_start_matches("https://").parse().unwrap();
    let shares = site.forwarder.connections();
    site.forwarder.no_longer_to(leader);
    first.signal(Signal::TERM);
    site.place.until_led_by("second").await;
    assert_eq!(first.exit_code().await, Some(0));
    load.more(MORE).await;
    let (_, mut secret) = site.follow_secret().await;
    site.ask().await;
    secret.until("holds a successor", |data| data.contains_key("next.crt")).await;
    secret.until("holds one CA", |data| cas(&data["ca.crt"]) == 1).await;

    let (good, failed) = load.stop().await;
    println!("{good} requests through {shares:?} connections, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new());
    assert!(good >= 5 * MORE, "{good}");
    assert!(shares.iter().all(|count| *count > 0), "both operators have converted: {shares:?}");
    for operator in [&first, &second] {
        operator.assert_log_is_json();
        assert!(!operator.log().contains("PRIVATE KEY"));
    }
    for family in [Family::Llsd, Family::Dgdr] {
        site.uninstall(family).await;
    }
}

/// With months to live a rotation settles for a minute: time enough to die in the middle.
#[tokio::test]
async fn a_rotation_goes_on_where_a_killed_leader_left_it() {
    let Some(site) = Site::prepared().await else { return };
    site.install(Family::Llsd).await;
    let leader = site.start("leader", &[]).await;
    leader.until_answer("/readyz", 200).await;
    site.place.until_led_by("leader").await;
    site.ask().await;
    let begun = site.until_secret("holds a successor", |data| data.contains_key("next.crt")).await;
    assert_eq!(site.until_trusted(Family::Llsd).await, begun["ca.crt"]);
    leader.signal(Signal::KILL);
    site.place.hold_on().await;

    let heir = site.start("heir", &SHORT).await;
    heir.until_answer("/readyz", 200).await;
    heir.until_said("waiting for the lease").await;
    assert!(site.secret().await.contains_key("next.crt"), "a standby serves and does not rotate");
    site.place.let_go().await;
    site.place.until_led_by("heir").await;
    let ended = site.until_secret("holds the successor alone", |data| !data.contains_key("next.crt")).await;
    assert_eq!(ended["tls.crt"], begun["next.crt"], "the successor that the dead leader made");
    let follows = async || heir.log().contains("the CA before is trusted no longer").then_some(());
    wait::eventually("the rotation ends", follows).await.unwrap();
    site.uninstall(Family::Llsd).await;
}
