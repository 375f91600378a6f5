//! What becomes of a Secret that somebody deletes or spoils, while users work.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use steersman::certs::SECRET;
use steersman_api::Family;

use super::load::Load;
use super::rotation::SHORT;
use super::{Site, cas};

#[tokio::test]
async fn a_secret_that_is_deleted_or_spoilt_comes_back_without_a_failed_request() {
    let Some(site) = Site::prepared().await else { return };
    site.install(Family::Llsd).await;
    let operator = site.start("alone", &SHORT).await;
    operator.until_answer("/readyz", 200).await;
    site.place.until_led_by("alone").await;
    let load = Load::start(&site, &[Family::Llsd]).await;

    let (before, mut secret) = site.follow_secret().await;
    site.secrets().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let back = secret.until("is back", |data| data.contains_key("next.crt")).await;
    assert_eq!(back["tls.crt"], before["tls.crt"], "what is trusted is served until its successor is");
    let fresh = secret.until("holds one CA", |data| cas(&data["ca.crt"]) == 1).await;
    assert_ne!(fresh["tls.crt"], before["tls.crt"], "who deletes it wants another");
    assert_eq!(site.until_trusted(Family::Llsd).await, fresh["ca.crt"]);
    load.more(20).await;

    for (key, why) in [
        ("tls.crt", "its tls.crt cannot be used: the certificate is not PEM"),
        ("tls.key", "its tls.crt cannot be used: the key is not a PEM private key"),
        ("ca.crt", "its ca.crt cannot be used: it does not hold the CA of tls.crt"),
    ] {
        let before = site.until_secret("holds one CA", |data| cas(&data["ca.crt"]) == 1).await;
        let spoilt = json!({ "stringData": { key: "-----BEGIN CERTIFICATE-----\nnonsense\n" } });
        site.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(spoilt)).await.unwrap();
        let mended = site
            .until_secret("is mended", |data| cas(&data["ca.crt"]) == 1 && data["ca.crt"] != before["ca.crt"])
            .await;
        assert_eq!(site.until_trusted(Family::Llsd).await, mended["ca.crt"]);
        assert!(operator.log().contains(why), "{why} in\n{}", operator.log());
        load.more(20).await;
    }
    let (good, failed) = load.stop().await;
    println!("{good} requests, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new());
    assert!(operator.said("the secret of the webhook certificate is replaced"));
    assert!(!operator.log().contains("nonsense"), "nothing of the Secret is in the log");
    operator.assert_log_is_json();
    site.uninstall(Family::Llsd).await;
}

/// Before anybody serves there is nothing to go on with, and nobody who trusts it.
#[tokio::test]
async fn a_spoilt_secret_is_no_reason_not_to_start() {
    let Some(site) = Site::prepared().await else { return };
    let spoilt = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET, "labels": { "kept": "yes" } },
        "data": { "tls.crt": "AAAA", "tls.key": "AAAA", "ca.crt": "AAAA" },
    });
    let params = PatchParams::apply("somebody");
    site.secrets().patch(SECRET, &params, &Patch::Apply(spoilt)).await.unwrap();
    let operator = site.start("alone", &SHORT).await;
    operator.until_answer("/readyz", 200).await;
    let secret = site.secrets().get(SECRET).await.unwrap();
    assert_eq!(cas(&secret.data.unwrap()["ca.crt"]), 1);
    assert_eq!(secret.metadata.labels.unwrap()["kept"], "yes", "what is not ours in its metadata stays");
    assert!(operator.said("the secret of the webhook certificate is replaced"), "{}", operator.log());
}
