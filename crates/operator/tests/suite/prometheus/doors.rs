//! Whom Prometheus lets in, and whom we believe.

use std::fs;

use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_testkit::pki::Authority;
use steersman_testkit::prometheus::{Door, PASSWORD, USER};

use super::{Scene, failure, look, place, pod, until, vllm, way};

/// What a look with these settings ends in.
async fn cause(settings: &Settings) -> String {
    failure(&look(&way(settings), "a", &[place("a", "one")]).await).to_owned()
}

#[tokio::test]
async fn only_a_server_that_proves_its_name_is_asked() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "one", &vllm("0.5", "3", 5));
    let (good, host) = (scene.settings(), scene.prometheus.address());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();

    Authority::create(&folder.path().join("other")).unwrap();
    let other = Settings { ca_cert_path: Some(path("other/ca.pem")), ..good.clone() };
    let said = cause(&other).await;
    assert!(said.starts_with(&format!("the certificate of {host} is not trusted (")), "{said}");
    assert!(said.contains("set PROMETHEUS_CA_CERT_PATH to its CA"), "{said}");

    let elsewhere = Settings { server_name: Some("prometheus.example".to_owned()), ..good.clone() };
    let said = cause(&elsewhere).await;
    assert!(said.contains("is not trusted") && said.contains("PROMETHEUS_SERVER_NAME"), "{said}");
    let named = Settings { server_name: Some("kubernetes.default.svc".to_owned()), ..good.clone() };
    until(&way(&named), "a", &[place("a", "one")], "the pod", |seen| pod(seen, "one").is_some()).await;

    // Whoever says so believes anybody.
    let anybody = Settings { insecure_skip_verify: true, ..other };
    until(&way(&anybody), "a", &[place("a", "one")], "the pod", |seen| pod(seen, "one").is_some()).await;

    // Files may come later and change.
    let late = Settings { ca_cert_path: Some(path("late.pem")), ..good };
    let late_way = way(&late);
    let said = failure(&look(&late_way, "a", &[]).await).to_owned();
    assert_eq!(said, format!("CA certificate file not found: {}", path("late.pem")));
    fs::copy(path("other/ca.pem"), path("late.pem")).unwrap();
    assert!(failure(&look(&late_way, "a", &[]).await).contains("is not trusted"));
    fs::copy(scene.prometheus.file("ca.pem"), path("late.pem")).unwrap();
    until(&late_way, "a", &[place("a", "one")], "the pod", |seen| pod(seen, "one").is_some()).await;
}

#[tokio::test]
async fn a_login_in_the_address_is_sent_and_never_told() {
    let Some(scene) = Scene::start(Door::Login).await else { return };
    scene.play("a", "one", &vllm("0.5", "3", 5));
    let (settings, host) = (scene.settings(), scene.prometheus.address());
    assert_eq!(
        cause(&settings).await,
        format!("{host} answers 401: it requires a login; set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH")
    );
    let with = |password: &str| Settings {
        base_url: settings.base_url.replace("https://", &format!("https://{USER}:{password}@")),
        ..settings.clone()
    };
    let said = cause(&with("wrong-password")).await;
    assert!(said.contains("401") && !said.contains("wrong-password"), "{said}");
    let right = way(&with(PASSWORD));
    assert!(!format!("{right:?}").contains(PASSWORD), "{right:?}");
    until(&right, "a", &[place("a", "one")], "the pod", |seen| pod(seen, "one").is_some()).await;
    // A token that is no good says where it came from.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token").display().to_string();
    fs::write(&path, "token-of-this-test\n").unwrap();
    let said = cause(&Settings { token_path: Some(path.clone()), ..settings.clone() }).await;
    assert_eq!(
        said,
        format!("{host} answers 401: it rejects the token from PROMETHEUS_TOKEN_PATH {path}; replace the token")
    );
}

#[tokio::test]
async fn a_certificate_of_our_own_opens_the_door() {
    let Some(scene) = Scene::start(Door::Certificate).await else { return };
    scene.play("a", "one", &vllm("0.5", "3", 5));
    let settings = scene.settings();
    let said = cause(&settings).await;
    assert!(said.contains("set PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH"), "{said}");
    let pair = (scene.prometheus.file("client.pem"), scene.prometheus.file("client-key.pem"));
    let known = Settings { client_cert_path: Some(pair.clone()), ..settings.clone() };
    until(&way(&known), "a", &[place("a", "one")], "the pod", |seen| pod(seen, "one").is_some()).await;
    let mixed = Settings { client_cert_path: Some((pair.0, scene.prometheus.file("ca-key.pem"))), ..settings };
    let said = cause(&mixed).await;
    assert!(said.starts_with("failed to load client certificate from "), "{said}");
}
