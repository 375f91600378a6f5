//! Verifies certificates as a client would.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

use crate::certs::generation::CertificatePair;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificate and key for a listener, if they belong together.
pub fn certified_key(pair: &CertificatePair) -> Result<CertifiedKey, String> {
    let chain = certificates(&pair.certificate)?;
    // The error of the parser is left out: it may quote the key.
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|_| "the key is not a PEM private key")?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        error => error.to_string(),
    })
}

/// Fails unless a client that trusts `cas` accepts this certificate for each of `names` at the time `at`.
pub fn verify(certificate: &str, cas: &[String], names: &[String], at: Timestamp) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        for der in certificates(ca)? {
            roots.add(der).map_err(|error| format!("a CA in the bundle cannot be used: {error}"))?;
        }
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    let chain = certificates(certificate)?;
    let (leaf, others) = chain.split_first().ok_or("there is no certificate")?;
    let seconds = u64::try_from(at.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    for name in names {
        let server = ServerName::try_from(name.as_str()).map_err(|_| format!("{name:?} is not a valid server name"))?;
        verifier
            .verify_server_cert(leaf, others, &server, &[], at)
            .map_err(|error| format!("the certificate is not valid for {name}: {error}"))?;
    }
    Ok(())
}

/// The end of the validity of a certificate, in seconds since 1970. None: it cannot be parsed.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let read = read.map_err(|_| "the certificate is not PEM")?;
    if read.is_empty() { Err("it has no PEM certificate".to_owned()) } else { Ok(read) }
}
