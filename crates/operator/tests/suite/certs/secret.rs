//! Secrets of the webhook that are deleted or corrupted while users read and write objects.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use steersman::certs::SECRET;
use steersman_api::Family;

use super::load::LoadGenerator;
use super::rotation::SHORT_LIFETIME;
use super::{WebhookEnv, ca_count};

#[tokio::test]
async fn broken_secret_is_restored_without_failed_requests() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    env.install(Family::Llsd).await;
    let operator = env.start("alone", &SHORT_LIFETIME).await;
    operator.until_answer("/readyz", 200).await;
    env.installation.until_led_by("alone").await;
    let load = LoadGenerator::start(&env, &[Family::Llsd]).await;

    let (before, mut secret) = env.watch_secret().await;
    env.secrets().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let restored = secret.until("exists again", |data| data.contains_key("next.crt")).await;
    assert_eq!(restored["tls.crt"], before["tls.crt"], "the old certificate is served until the new one is trusted");
    let fresh = secret.until("holds one CA", |data| ca_count(&data["ca.crt"]) == 1).await;
    assert_ne!(fresh["tls.crt"], before["tls.crt"], "deleting the Secret requests a new certificate");
    assert_eq!(env.wait_until_trusted(Family::Llsd).await, fresh["ca.crt"]);
    load.wait_for_requests(20).await;

    for (key, why) in [
        ("tls.crt", "tls.crt cannot be used: the certificate is not PEM"),
        ("tls.key", "tls.crt cannot be used: the key is not a PEM private key"),
        ("ca.crt", "ca.crt cannot be used: it does not have the CA of tls.crt"),
    ] {
        let before = env.wait_for_secret("holds one CA", |data| ca_count(&data["ca.crt"]) == 1).await;
        let corrupted = json!({ "stringData": { key: "-----BEGIN CERTIFICATE-----\nnonsense\n" } });
        env.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(corrupted)).await.unwrap();
        let repaired = env
            .wait_for_secret("is repaired", |data| ca_count(&data["ca.crt"]) == 1 && data["ca.crt"] != before["ca.crt"])
            .await;
        assert_eq!(env.wait_until_trusted(Family::Llsd).await, repaired["ca.crt"]);
        assert!(operator.log().contains(why), "{why} in\n{}", operator.log());
        load.wait_for_requests(20).await;
    }
    let (answered, failed) = load.stop().await;
    println!("{answered} requests, {} failed", failed.len());
    assert_eq!(failed, Vec::<String>::new());
    assert!(operator.has_logged("replacing the webhook certificate, because its Secret cannot be used"));
    assert!(!operator.log().contains("nonsense"), "content of the Secret is in the log");
    operator.assert_log_is_json();
    env.uninstall(Family::Llsd).await;
}

/// No operator serves yet, so no client trusts the old certificate and it can be replaced at once.
#[tokio::test]
async fn operator_starts_with_a_corrupted_secret() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let corrupted = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET, "labels": { "kept": "yes" } },
        "data": { "tls.crt": "AAAA", "tls.key": "AAAA", "ca.crt": "AAAA" },
    });
    let params = PatchParams::apply("other-manager");
    env.secrets().patch(SECRET, &params, &Patch::Apply(corrupted)).await.unwrap();
    let operator = env.start("alone", &SHORT_LIFETIME).await;
    operator.until_answer("/readyz", 200).await;
    let secret = env.secrets().get(SECRET).await.unwrap();
    assert_eq!(ca_count(&secret.data.unwrap()["ca.crt"]), 1);
    assert_eq!(secret.metadata.labels.unwrap()["kept"], "yes", "labels of other tools stay");
    assert!(
        operator.has_logged("replacing the webhook certificate, because its Secret cannot be used"),
        "{}",
        operator.log()
    );
}
