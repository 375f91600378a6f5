//! Certificates in files that another tool, such as cert-manager, keeps up to date.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::client::Body;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use steersman::certs::SECRET;
use steersman::certs::generation::{CertificatePair, generate};
use steersman::installation::NAMESPACE;
use steersman_testkit::wait;

use super::WebhookEnv;
use crate::process::operator::OperatorProcess;

fn generate_pair() -> CertificatePair {
    generate(&["127.0.0.1".to_owned()], Duration::from_secs(3600), Timestamp::now()).unwrap()
}

/// Writes the files as the kubelet does: into a new folder, and then it swaps one symbolic link.
fn mount(folder: &Path, generation: usize, pair: &CertificatePair) {
    let data = folder.join(format!("..{generation}"));
    fs::create_dir(&data).unwrap();
    fs::write(data.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(data.join("tls.key"), &pair.key).unwrap();
    let swap = folder.join("..swap");
    std::os::unix::fs::symlink(&data, &swap).unwrap();
    fs::rename(&swap, folder.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(folder.join("..data").join(name), link).unwrap();
        }
    }
}

/// The HTTP status of a conversion request from a client that trusts only the CA of `pair`. None if the request fails.
async fn convert_status(operator: &OperatorProcess, pair: &CertificatePair) -> Option<u16> {
    let mut config = Config::new(operator.address("webhook")?.parse().unwrap());
    let ca = CertificateDer::from_pem_slice(pair.ca().unwrap().as_bytes()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let request = http::Request::post("/convert").body(Body::from(b"{}".to_vec())).unwrap();
    Some(client.send(request).await.ok()?.status().as_u16())
}

#[tokio::test]
async fn certificate_directory_is_served_without_a_secret() {
    let Some(env) = WebhookEnv::prepare().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let operator = env.start("alone", &["--webhook-certificate-directory", path]).await;
    operator
        .wait_for_log(
            "cannot load a certificate from the folder of --webhook-certificate-directory; retrying every 2 s",
        )
        .await;
    let (status, body) = operator.health("/readyz").await.unwrap();
    assert_eq!(status, 503);
    assert!(body.contains("waiting for the webhook certificate\n"), "{body}");

    let (first, second) = (generate_pair(), generate_pair());
    mount(folder.path(), 1, &first);
    operator.until_answer("/readyz", 200).await;
    assert_eq!(convert_status(&operator, &first).await, Some(200));
    assert_eq!(convert_status(&operator, &second).await, None, "the second certificate is not served yet");
    mount(folder.path(), 2, &second);
    let second_served = async || convert_status(&operator, &second).await;
    assert_eq!(wait::eventually("the new files are served", second_served).await.unwrap(), 200);

    mount(folder.path(), 3, &CertificatePair { certificate: second.certificate.clone(), key: first.key.clone() });
    let mismatch_logged = async || operator.log().contains("the key does not belong to the certificate").then_some(());
    wait::eventually("files that do not belong together are named", mismatch_logged).await.unwrap();
    assert_eq!(convert_status(&operator, &second).await, Some(200), "the last valid certificate is still served");
    let secrets: Api<Secret> = Api::namespaced(env.admin.clone(), NAMESPACE);
    assert!(secrets.get_opt(SECRET).await.unwrap().is_none());
    operator.assert_log_is_json();
}
