//! Servers inside the cluster, by the names of their Services.
//! Comes in: an address of a Service; goes out: where to ask, by plain http too, and with any certificate.

use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

const SERVICES: &str = ".svc.cluster.local";

/// How Services are reached.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// All of them are asked here, and told by the name that they are asked for: for operators that run where the names of
    /// Services lead nowhere. None: each at its own address.
    pub through: Option<Authority>,
}

impl Inside {
    /// None: it is no Service's address.
    pub(super) fn address(&self, url: &Uri) -> Option<Uri> {
        url.host().filter(|host| host.ends_with(SERVICES))?;
        url.scheme().filter(|scheme| [&Scheme::HTTP, &Scheme::HTTPS].contains(scheme))?;
        let mut parts = url.clone().into_parts();
        parts.authority = self.through.clone().or(parts.authority);
        Uri::from_parts(parts).ok()
    }

    /// The name to ask for, where it is not the place that is asked.
    pub(super) fn host_header(&self, url: &Uri) -> Option<HeaderValue> {
        self.through.as_ref()?;
        HeaderValue::from_str(url.authority()?.as_str()).ok()
    }
}

/// Who answers is not asked for a proof. Users' certificates are often for the name outside and of an authority of their
/// own; nothing secret is sent, the answers are only shown, and from a server without TLS they would be believed as well.
#[derive(Debug)]
pub(super) struct AnyCertificate(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
