//! Requests to servers inside the cluster, by the name of a Service or the address of a pod. Plain HTTP and any
//! certificate are accepted.

use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use rustls::DigitallySignedStruct;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::guard;

const SERVICES: &str = ".svc.cluster.local";

/// Routing of requests to Services and pods.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// Address of a gateway that receives all requests and routes them by their `Host` header, for operators outside
    /// the cluster network. `None` connects to each address directly.
    pub through: Option<Authority>,
}

impl Inside {
    /// The address to connect to. `None` if `url` is neither the address of a Service nor a possible address of a pod.
    pub(super) fn address(&self, url: &Uri) -> Option<Uri> {
        // Anyone who may write a pod's status chooses the address that we connect to.
        let is_pod = guard::literal(url).is_some_and(|address| guard::network(address).is_some());
        url.host().filter(|host| host.ends_with(SERVICES) || is_pod)?;
        url.scheme().filter(|scheme| [&Scheme::HTTP, &Scheme::HTTPS].contains(scheme))?;
        let mut parts = url.clone().into_parts();
        parts.authority = self.through.clone().or(parts.authority);
        Uri::from_parts(parts).ok()
    }

    /// The `Host` header, if the request goes to a gateway instead of the host of the URL.
    pub(super) fn host_header(&self, url: &Uri) -> Option<HeaderValue> {
        self.through.as_ref()?;
        HeaderValue::from_str(url.authority()?.as_str()).ok()
    }
}

/// Accepts any server certificate. Certificates of users' servers are often issued for an external name by a private
/// CA. We send no secrets and only display the responses, which we would accept from a server without TLS as well.
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
    fn inside_means_service_or_pod_address() {
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
