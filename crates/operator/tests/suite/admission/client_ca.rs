//! `--webhook-client-ca`: only clients with a certificate of this CA may send admission reviews. The API server of the local
//! cluster has one, by its AdmissionConfiguration.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::client::Body;
use kube::{Client, Config};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use steersman_api::Family;

use super::{AdmissionEnv, manifest, minimal_object};
use crate::command::{output_of, steersman};

struct TestCa {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate of a client with its key, in base64 as in a kubeconfig.
    fn client(&self) -> (String, String) {
        let mut parameters = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        (STANDARD.encode(certificate.pem()), STANDARD.encode(key.serialize_pem()))
    }
}

/// Status and text of the response to an empty review from a client of this CA, or from one without a certificate.
async fn post(env: &AdmissionEnv, path: &str, ca: Option<&TestCa>) -> (u16, String) {
    let mut config = Config::new(env.operator.address("webhook").unwrap().parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    if let Some((certificate, key)) = ca.map(TestCa::client) {
        config.auth_info.client_certificate_data = Some(certificate);
        config.auth_info.client_key_data = Some(key.into());
    }
    let request = http::Request::post(path).body(Body::from(b"{}".to_vec())).unwrap();
    let response = Client::try_from(config).unwrap().send(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn webhooks_require_certificate_of_client_ca() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let (ca, other) = (TestCa::new(), TestCa::new());
    std::fs::write(&file, &ca.pem).unwrap();
    let Some(env) = AdmissionEnv::start_family(Family::Llsd, "client-ca", &["--webhook-client-ca", text(&file)]).await
    else {
        return;
    };
    for path in ["/validate/llsd", "/mutate/dgdr"] {
        let (status, text) = post(&env, path, None).await;
        assert!(status == 403 && text.contains("answers only clients with a certificate"), "{path}: {status} {text}");
        let (status, text) = post(&env, path, Some(&other)).await;
        assert!(status == 403 && text.contains("the client certificate is not valid for"), "{path}: {status} {text}");
        let (status, text) = post(&env, path, Some(&ca)).await;
        assert!(status == 200 && text.contains("AdmissionReview"), "{path}: {status} {text}");
    }
    // API servers send no certificate to conversion webhooks.
    for client in [None, Some(&other), Some(&ca)] {
        assert_eq!(post(&env, "/convert", client).await.0, 200);
    }

    // The CA is not the one of the API server: users see why their objects are refused.
    let refused = async || {
        let object = minimal_object("v1alpha2", "probe", "starter");
        let error = env.dry_run_create("v1alpha2", &object).await.err()?;
        error.contains("the client certificate is not valid for the --webhook-client-ca").then_some(())
    };
    env.wait_for("the API server is refused, with the reason", refused).await;

    // The changed file is used without a restart, also for connections that are open.
    std::fs::write(&file, "").unwrap();
    env.operator.wait_for_log("cannot load the changed CA of webhook clients; retrying every 2 s").await;
    assert_eq!(post(&env, "/validate/llsd", Some(&ca)).await.0, 200, "the last usable CA counts");
    std::fs::copy(env.cluster().client_ca(), &file).unwrap();
    env.wait_until_called().await;
    assert_eq!(post(&env, "/validate/llsd", Some(&ca)).await.0, 403, "the former CA does not count");
    let wrong = manifest("stack", json!({ "distribution": { "name": "startr" } }));
    assert!(env.apply(&wrong, &[]).await.failure().contains("Unknown distribution"));
    env.apply(&json!(minimal_object("v1alpha1", "stack", "starter")), &[]).await.ok();
    env.operator.assert_log_is_json();
}

#[test]
fn unusable_client_ca_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "users": [{ "name": "a", "user": { "token": "t" } }] });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    std::fs::write(&file, "no certificate").unwrap();
    let flags =
        ["--webhook-address", "127.0.0.1:0", "--kubeconfig", text(&kubeconfig), "--webhook-client-ca", text(&file)];
    let error = output_of(steersman(&["run"]).args(flags)).one_line_failure();
    assert!(error.contains("ca.pem of --webhook-client-ca has no certificate; give a PEM file"), "{error}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
