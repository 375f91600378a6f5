//! The certificate that the listener uses for new handshakes.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Handshakes fail until the first certificate is set. A new certificate leaves open connections alone.
#[derive(Debug, Default)]
pub struct ServedCertificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServedCertificate {
    pub fn set(&self, key: CertifiedKey) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
