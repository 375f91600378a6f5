//! Lets only clients with a certificate of the configured CA send admission reviews.
//!
//! API servers send no certificate to conversion webhooks, so `/convert` is open to everybody.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use steersman_runtime::serve::UncheckedCertificates;
use tokio::time;

/// Poll interval. A mounted file changes by a swap of links, which watches on single files miss.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Causes of a file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    #[error("cannot read the file {} of --webhook-client-ca: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("the file {} of --webhook-client-ca is not PEM: {cause}", path.display())]
    NotPem { path: PathBuf, cause: pem::Error },
    #[error("the file {} of --webhook-client-ca has a certificate that is not one of a CA: {cause}", path.display())]
    NotACa { path: PathBuf, cause: rustls::Error },
    #[error("the file {} of --webhook-client-ca has no certificate; give a PEM file with CA certificates", path.display())]
    Empty { path: PathBuf, cause: VerifierBuilderError },
}

/// Causes of a refused client.
#[derive(Debug, thiserror::Error)]
pub enum ClientRefusal {
    #[error(
        "this webhook answers only clients with a certificate of its --webhook-client-ca; give the API server one by \
         kubeConfigFile in its AdmissionConfiguration"
    )]
    NoCertificate,
    #[error("the client certificate is not valid for the --webhook-client-ca of this webhook: {0}")]
    Invalid(rustls::Error),
}

/// The CA of the clients. Its file is read again when it changes.
#[derive(Debug)]
pub struct ClientCa {
    path: PathBuf,
    current: RwLock<LoadedCa>,
}

#[derive(Clone, Debug)]
struct LoadedCa {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    pub fn load(path: &Path) -> Result<Self, ClientCaError> {
        Ok(Self { path: path.to_owned(), current: RwLock::new(read(path)?) })
    }

    /// Checks the certificate of the client with the current CA, in every request: connections may be older than the file.
    pub fn check(&self, request: &Request<Body>) -> Result<(), ClientRefusal> {
        let certificates = request.extensions().get::<UncheckedCertificates>();
        let (own, intermediates) =
            certificates.and_then(|certificates| certificates.0.split_first()).ok_or(ClientRefusal::NoCertificate)?;
        let verified = self.current().verifier.verify_client_cert(own, intermediates, UnixTime::now());
        verified.map(|_| ()).map_err(ClientRefusal::Invalid)
    }

    /// Reads the file again and again. A file that cannot be used changes nothing: it may be read in the middle of a change.
    pub async fn follow(&self) -> Infallible {
        let mut logged = String::new();
        loop {
            time::sleep(POLL_INTERVAL).await;
            let path = self.path.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            match read {
                Ok(loaded) => {
                    logged.clear();
                    if loaded.pem != self.current().pem {
                        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                        tracing::info!(file = %self.path.display(), "loaded the changed CA of webhook clients");
                    }
                }
                Err(error) if logged != error.to_string() => {
                    tracing::warn!(%error, "cannot load the changed CA of webhook clients; retrying every 2 s");
                    logged = error.to_string();
                }
                Err(_) => {}
            }
        }
    }

    fn current(&self) -> LoadedCa {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(path: &Path) -> Result<LoadedCa, ClientCaError> {
    let path = || path.to_owned();
    let pem = std::fs::read(path()).map_err(|cause| ClientCaError::Unreadable { path: path(), cause })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|cause| ClientCaError::NotPem { path: path(), cause })?;
        roots.add(certificate).map_err(|cause| ClientCaError::NotACa { path: path(), cause })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()));
    let verifier = verifier.build().map_err(|cause| ClientCaError::Empty { path: path(), cause })?;
    Ok(LoadedCa { pem, verifier })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    struct TestCa {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn test_ca() -> TestCa {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        TestCa { pem, issuer: Issuer::new(parameters, key) }
    }

    fn request(ca: &TestCa, usage: ExtendedKeyUsagePurpose) -> Request<Body> {
        let mut parameters = CertificateParams::new(vec!["api-server".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![usage];
        let certificate = parameters.signed_by(&KeyPair::generate().unwrap(), &ca.issuer).unwrap();
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(UncheckedCertificates([certificate.der().clone()].into()));
        request
    }

    #[test]
    fn only_client_certificates_of_the_ca_pass() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let (own, other) = (test_ca(), test_ca());
        std::fs::write(&path, &own.pem).unwrap();
        let ca = ClientCa::load(&path).unwrap();
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        assert!(ca.check(&request(&own, usage.clone())).is_ok());
        assert!(matches!(ca.check(&request(&other, usage)), Err(ClientRefusal::Invalid(_))));
        let server = ca.check(&request(&own, ExtendedKeyUsagePurpose::ServerAuth));
        assert!(matches!(server, Err(ClientRefusal::Invalid(_))), "a certificate for servers");
        assert!(matches!(ca.check(&Request::new(Body::empty())), Err(ClientRefusal::NoCertificate)));
    }

    #[test]
    fn unusable_file_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let error = || ClientCa::load(&path).unwrap_err().to_string();
        assert!(error().starts_with("cannot read the file "), "{}", error());
        let not_pem = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        let not_a_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, expected) in [
            ("", "ca.pem of --webhook-client-ca has no certificate"),
            ("no certificate", "ca.pem of --webhook-client-ca has no certificate"),
            (not_pem, "ca.pem of --webhook-client-ca is not PEM"),
            (not_a_certificate, "ca.pem of --webhook-client-ca has a certificate that is not one of a CA"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(error().contains(expected), "{}", error());
        }
    }
}
