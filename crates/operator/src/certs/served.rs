//! The certificate that the listener uses for new handshakes.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use steersman_runtime::telemetry::metrics::Metrics;

use crate::certs::check;

/// Handshakes fail until the first certificate is set. A new certificate leaves open connections alone.
#[derive(Debug)]
pub struct ServedCertificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    metrics: Arc<Metrics>,
}

impl ServedCertificate {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { current: RwLock::default(), metrics }
    }

    pub fn set(&self, key: CertifiedKey) {
        if let Some(expiry) = key.cert.first().and_then(|leaf| check::expiry(leaf)) {
            self.metrics.certificate_expires(expiry);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
