//! Certificates of clients: requested in the handshake, and passed on to the routes, which decide whether they need a valid one.
//!
//! The handshake proves that a client has the key of its certificate. It does not check who issued the certificate, so that a
//! route can explain a refusal, and other routes stay open.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Whether a server requests a certificate of its clients. They may have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    NotRequested,
    Requested,
}

/// The certificate of the client and its intermediate ones, in the extensions of a request. Nobody has checked the issuer.
#[derive(Clone, Debug)]
pub struct UncheckedCertificates(pub Arc<[CertificateDer<'static>]>);

/// A stream that may know the certificates of its client.
pub(super) trait CertifiedStream {
    fn client_certificates(&self) -> Option<UncheckedCertificates>;
}

impl CertifiedStream for TcpStream {
    fn client_certificates(&self) -> Option<UncheckedCertificates> {
        None
    }
}

impl<I> CertifiedStream for TlsStream<I> {
    fn client_certificates(&self) -> Option<UncheckedCertificates> {
        self.get_ref().1.peer_certificates().map(|certificates| UncheckedCertificates(certificates.into()))
    }
}

/// Accepts every certificate whose key the client has.
#[derive(Debug)]
pub(super) struct AnyIssuer {
    provider: CryptoProvider,
}

impl Default for AnyIssuer {
    fn default() -> Self {
        Self { provider: ring::default_provider() }
    }
}

impl ClientCertVerifier for AnyIssuer {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
