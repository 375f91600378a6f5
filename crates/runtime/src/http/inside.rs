//! Servers inside the cluster, by the names of their Services or the addresses of their pods.
//! Comes in: an address of a Service or a pod; goes out: where to ask, by plain http too, and with any certificate.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

const SERVICES: &str = ".svc.cluster.local";

/// How Services and pods are reached.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// All of them are asked here, and told by the name that they are asked for: for operators that run where the names of
    /// Services and the addresses of pods lead nowhere. None: each at its own address.
    pub through: Option<Authority>,
}

impl Inside {
    /// None: it is neither a Service's address nor one that a pod can have.
    pub(super) fn address(&self, url: &Uri) -> Option<Uri> {
        url.host().filter(|host| host.ends_with(SERVICES) || is_pod(host))?;
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

/// An address that other machines can have. Whoever may write the status of a pod says what its address is: the operator's own
/// machine and the cloud's services for it are not to be asked on anybody's word.
fn is_pod(host: &str) -> bool {
    let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else { return false };
    let local = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    !(local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_and_addresses_of_other_machines_are_inside() {
        let through = Inside { through: Some("127.0.0.1:7".parse().unwrap()) };
        for (url, at) in [
            ("http://a-service.ns.svc.cluster.local:8321/v1", "http://127.0.0.1:7/v1"),
            ("http://10.1.2.3:9400/metrics", "http://127.0.0.1:7/metrics"),
            ("https://[fd00::7]:9400/metrics", "https://127.0.0.1:7/metrics"),
        ] {
            let url: Uri = url.parse().unwrap();
            assert_eq!(Inside::default().address(&url), Some(url.clone()));
            assert_eq!(through.address(&url).unwrap(), at);
            assert_eq!(through.host_header(&url).unwrap(), url.authority().unwrap().as_str());
        }
        for url in [
            "http://127.0.0.1:9400/metrics",
            "http://169.254.169.254/latest/meta-data",
            "http://0.0.0.0:9400/",
            "http://255.255.255.255/",
            "http://224.0.0.1/",
            "http://[::1]:9400/",
            "http://[fe80::1]:9400/",
            "http://[::ffff:127.0.0.1]:9400/",
            "http://[::ffff:169.254.169.254]/",
            "http://10.1/",
            "http://example.com/",
            "ftp://10.1.2.3/",
        ] {
            let url: Uri = url.parse().unwrap();
            assert_eq!((Inside::default().address(&url), through.address(&url)), (None, None), "{url}");
        }
    }
}
