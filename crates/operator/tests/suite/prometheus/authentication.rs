//! Authentication: of Prometheus by its certificate, and of the client by login, token or certificate.

use std::fs;

use steersman_plan::variant::config::prometheus::{CaCertificates, PrometheusConfig as Settings};
use steersman_testkit::pki::Authority;
use steersman_testkit::prometheus::{ClientAuth, PASSWORD, USER};

use super::{TestEnv, client, failure, pod, query_model, ready_pod, until, vllm};

/// The failure of a query with these settings.
async fn cause(settings: &Settings) -> String {
    failure(&query_model(&client(settings), "a", &[ready_pod("a", "one")]).await).to_owned()
}

#[tokio::test]
async fn untrusted_certificate_is_refused() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 5));
    let (good, host) = (env.settings(), env.prometheus.address());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();

    Authority::create(&folder.path().join("other")).unwrap();
    let other = Settings { ca: Some(CaCertificates::File(path("other/ca.pem"))), ..good.clone() };
    let message = cause(&other).await;
    assert!(message.starts_with(&format!("the certificate of {host} is not trusted (")), "{message}");
    assert!(message.contains("set PROMETHEUS_CA_CERT to its CA"), "{message}");

    let elsewhere = Settings { server_name: Some("prometheus.example".to_owned()), ..good.clone() };
    let message = cause(&elsewhere).await;
    assert!(message.contains("is not trusted") && message.contains("PROMETHEUS_SERVER_NAME"), "{message}");
    let named = Settings { server_name: Some("kubernetes.default.svc".to_owned()), ..good.clone() };
    until(&client(&named), "a", &[ready_pod("a", "one")], "the pod", |observed| pod(observed, "one").is_some()).await;

    // Without verification, any certificate is accepted.
    let unverified = Settings { insecure_skip_verify: true, ..other };
    until(&client(&unverified), "a", &[ready_pod("a", "one")], "the pod", |observed| pod(observed, "one").is_some())
        .await;

    // Certificate files may appear and change at runtime.
    let late = Settings { ca: Some(CaCertificates::File(path("late.pem"))), ..good };
    let late_client = client(&late);
    let message = failure(&query_model(&late_client, "a", &[]).await).to_owned();
    assert_eq!(message, format!("CA certificate file not found: {}", path("late.pem")));
    fs::copy(path("other/ca.pem"), path("late.pem")).unwrap();
    assert!(failure(&query_model(&late_client, "a", &[]).await).contains("is not trusted"));
    fs::copy(env.prometheus.file("ca.pem"), path("late.pem")).unwrap();
    until(&late_client, "a", &[ready_pod("a", "one")], "the pod", |observed| pod(observed, "one").is_some()).await;
}

#[tokio::test]
async fn url_credentials_are_sent_but_never_reported() {
    let Some(env) = TestEnv::start(ClientAuth::Password).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 5));
    let (settings, host) = (env.settings(), env.prometheus.address());
    assert_eq!(
        cause(&settings).await,
        format!("{host} answers 401: it requires a login; set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH")
    );
    let with = |password: &str| Settings {
        base_url: settings.base_url.replace("https://", &format!("https://{USER}:{password}@")),
        ..settings.clone()
    };
    let message = cause(&with("wrong-password")).await;
    assert_eq!(message, format!("{host} answers 401: it rejects the login in PROMETHEUS_BASE_URL; correct the login"));
    let right = client(&with(PASSWORD));
    assert!(!format!("{right:?}").contains(PASSWORD), "{right:?}");
    until(&right, "a", &[ready_pod("a", "one")], "the pod", |observed| pod(observed, "one").is_some()).await;
    // The message about a refused token names the source of the token.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token").display().to_string();
    fs::write(&path, "token-of-this-test\n").unwrap();
    let message = cause(&Settings { token_path: Some(path.clone()), ..settings.clone() }).await;
    assert_eq!(
        message,
        format!("{host} answers 401: it rejects the token from PROMETHEUS_TOKEN_PATH {path}; replace the token")
    );
}

#[tokio::test]
async fn client_certificate_authenticates() {
    let Some(env) = TestEnv::start(ClientAuth::Certificate).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 5));
    let settings = env.settings();
    let message = cause(&settings).await;
    assert!(message.contains("set PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH"), "{message}");
    let pair = (env.prometheus.file("client.pem"), env.prometheus.file("client-key.pem"));
    let known = Settings { client_cert_path: Some(pair.clone()), ..settings.clone() };
    until(&client(&known), "a", &[ready_pod("a", "one")], "the pod", |observed| pod(observed, "one").is_some()).await;
    let mixed = Settings { client_cert_path: Some((pair.0, env.prometheus.file("ca-key.pem"))), ..settings };
    let message = cause(&mixed).await;
    assert!(message.starts_with("failed to load client certificate from "), "{message}");
}
