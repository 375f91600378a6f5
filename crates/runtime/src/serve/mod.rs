//! HTTP servers of the process. A server listens as soon as it is created, and bounds its connections and the size and duration
//! of each request.

pub mod allowed_tokens;
mod client_certificates;
mod connections;
pub mod health;
pub mod scrape;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::DefaultAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ResolvesServerCert;
use tokio::task::JoinHandle;

use client_certificates::AnyIssuer;
use connections::{ConnectionLimits, LimitedAcceptor};

pub use client_certificates::{ClientCertificates, UncheckedCertificates};
pub use connections::Peer;

/// Most connections of a server. One API server has at most 600 requests in flight by default.
const MAX_CONNECTIONS: usize = 1024;

/// Time limit for the TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a client to read a response. API servers give up after 30 s at the latest.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle timeout of servers whose clients reuse connections. Go clients keep theirs for 90 s. If we closed first, a
/// request sent at that moment would be lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest head of a request. A token may be some kilobytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Causes of a server that does not start or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the {what} server cannot listen on {address}: {cause}; choose another address with --{what}-address")]
    NotListening { what: &'static str, address: SocketAddr, cause: io::Error },
    #[error("cannot generate a certificate for the {what} server: {cause}")]
    NoCertificate { what: &'static str, cause: Box<dyn std::error::Error + Send + Sync> },
    #[error("the {what} server ended unexpectedly: {cause}")]
    Ended { what: &'static str, cause: String },
}

/// A server that runs until [`Serving::stop`].
pub struct Serving {
    what: &'static str,
    handle: Handle<SocketAddr>,
    task: JoinHandle<io::Result<()>>,
}

/// Transport security of a server.
#[derive(Clone, Debug)]
pub enum Transport {
    Plain,
    /// TLS with a certificate that clients cannot verify. Protects against eavesdropping, not against an impostor.
    SelfSigned,
    /// TLS with the certificate that the resolver returns at each handshake, for clients that reuse connections.
    Resolved(Arc<dyn ResolvesServerCert>, ClientCertificates),
}

/// Listens and serves. `what` names the server in messages, the log and its flag.
pub fn start(
    what: &'static str,
    address: SocketAddr,
    transport: Transport,
    routes: Router,
) -> Result<Serving, ServeError> {
    let idle = if matches!(transport, Transport::Resolved(..)) { IDLE_TIMEOUT } else { HEAD_TIMEOUT };
    let limits =
        ConnectionLimits { connections: MAX_CONNECTIONS, head: HEAD_TIMEOUT, idle, response: RESPONSE_TIMEOUT };
    start_with(what, address, transport, routes, limits)
}

fn start_with(
    what: &'static str,
    address: SocketAddr,
    transport: Transport,
    routes: Router,
    limits: ConnectionLimits,
) -> Result<Serving, ServeError> {
    let not_listening = |cause| ServeError::NotListening { what, address, cause };
    let listener = TcpListener::bind(address).map_err(not_listening)?;
    listener.set_nonblocking(true).map_err(not_listening)?;
    let bound = listener.local_addr().map_err(not_listening)?;
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener).map_err(not_listening)?.handle(handle.clone());
    // Hyper's timeout for a head begins at the end of the previous request, and so is the one for idle connections.
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(MAX_HEAD_BYTES);
    let service = routes.into_make_service();
    let config = match transport {
        Transport::Plain => None,
        Transport::SelfSigned => Some(self_signed().map_err(|cause| ServeError::NoCertificate { what, cause })?),
        Transport::Resolved(certificates, of_clients) => Some(resolved(certificates, of_clients)),
    };
    let tls = config.is_some();
    let task = match config {
        None => {
            let acceptor = LimitedAcceptor::new(DefaultAcceptor, limits);
            tokio::spawn(server.acceptor(acceptor).http1_only().serve(service))
        }
        Some(config) => {
            let tls = RustlsAcceptor::new(RustlsConfig::from_config(config)).handshake_timeout(limits.head);
            let acceptor = LimitedAcceptor::new(tls, limits);
            tokio::spawn(server.acceptor(acceptor).http1_only().serve(service))
        }
    };
    tracing::info!(server = what, address = %bound, tls, "listening");
    Ok(Serving { what, handle, task })
}

impl Serving {
    /// Waits until the server ends, which it does not do by itself.
    pub async fn ended(&mut self) -> ServeError {
        let cause = match (&mut self.task).await {
            Ok(Ok(())) => "no error was reported".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        ServeError::Ended { what: self.what, cause }
    }

    /// Takes no new request, and lets those under way finish within `limit`.
    pub async fn stop(mut self, limit: Duration) {
        self.handle.graceful_shutdown(Some(limit));
        if tokio::time::timeout(limit + Duration::from_millis(500), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn resolved(certificates: Arc<dyn ResolvesServerCert>, of_clients: ClientCertificates) -> Arc<ServerConfig> {
    let config = ServerConfig::builder();
    let config = match of_clients {
        ClientCertificates::NotRequested => config.with_no_client_auth(),
        ClientCertificates::Requested => config.with_client_cert_verifier(Arc::new(AnyIssuer::default())),
    };
    let mut config = config.with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn self_signed() -> Result<Arc<ServerConfig>, Box<dyn std::error::Error + Send + Sync>> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let generated = rcgen::generate_simple_self_signed(vec![host, "localhost".to_owned()])?;
    let key = PrivateKeyDer::from(generated.signing_key);
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![generated.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
