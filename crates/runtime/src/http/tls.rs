//! Builds the TLS client configuration: the trusted CAs, the client certificate and the expected server name.

use std::sync::Arc;

use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, ResolveServerName};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::inside::AnyCertificate;
use super::{HttpSettings, Reach};

/// Server certificates that are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Certificates issued by the system's CAs or by `roots`.
    #[default]
    System,
    /// Certificates issued by `roots` only.
    RootsAlone,
    /// Any certificate: verification is disabled, which only a user's setting may do.
    Anyone,
}

/// A client certificate, for servers that require one.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

pub(super) fn config(settings: &HttpSettings) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let tls = if matches!(settings.reach, Reach::Inside(_)) || settings.trust == Trust::Anyone {
        tls.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        let mut roots = RootCertStore::empty();
        if settings.trust == Trust::System {
            // A system without CAs does not stop the operator: each connection reports the problem.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        for root in &settings.roots {
            roots.add(root.clone())?;
        }
        tls.with_root_certificates(roots)
    };
    match &settings.identity {
        Some(own) => tls.with_client_auth_cert(own.chain.clone(), own.key.clone_key()),
        None => Ok(tls.with_no_client_auth()),
    }
}

/// The name that the certificate of a server must have: the host of its address, unless the settings name another.
pub(super) fn names(settings: &HttpSettings) -> Arc<dyn ResolveServerName + Send + Sync> {
    match &settings.server_name {
        Some(name) => Arc::new(FixedServerNameResolver::new(name.clone())),
        None => Arc::new(DefaultServerNameResolver::default()),
    }
}
