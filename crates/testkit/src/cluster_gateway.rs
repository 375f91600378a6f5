//! The gateway of an operator outside the cluster (`--cluster-gateway`): it receives the operator's requests to Services and
//! pods. Simulated pods run no program, so a function answers in their place. One port takes plain and TLS connections,
//! because the operator uses the scheme of each server.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;
use tokio_rustls::TlsAcceptor;

/// First byte of a TLS connection: the content type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Limit for the first byte and the TLS handshake of a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The gateway. It stops when dropped.
pub struct ClusterGateway {
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for ClusterGateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl ClusterGateway {
    /// Starts at a free port of this machine. `answer` gets the host of a request (`host:port`) and its path; if it returns
    /// `None`, the response is 503, as from a Service without ready pods.
    pub async fn start<F, A>(answer: F) -> Result<Self>
    where
        F: Fn(String, String) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Option<Value>> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen at 127.0.0.1")?;
        let address = listener.local_addr()?;
        let tls = TlsAcceptor::from(Arc::new(server_config()?));
        let (opened, connections) = mpsc::channel(1);
        let router = Router::new().fallback(async move |headers: HeaderMap, uri: Uri| {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            match answer(host.to_owned(), uri.path().to_owned()).await {
                Some(body) => (StatusCode::OK, body.to_string()),
                None => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
            }
        });
        let accept = tokio::spawn(accept(listener, tls, opened));
        let serve = tokio::spawn(async move {
            // It only ends with the gateway, which does not need the error then.
            let _ = axum::serve(Connections { connections, address }, router).await;
        });
        Ok(Self { address, tasks: [accept, serve] })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A self-signed certificate: the operator accepts any from servers in the cluster.
fn server_config() -> Result<ServerConfig> {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der())
        .map_err(|error| anyhow::anyhow!("cannot use a generated key: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_single_cert(vec![signed.cert.der().clone()], key)?)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connection = (Box<dyn Stream>, SocketAddr);

/// Each connection gets its own task, so that a slow handshake delays no other one.
async fn accept(mut listener: TcpListener, tls: TlsAcceptor, opened: mpsc::Sender<Connection>) {
    loop {
        // The implementation of `Listener` retries if the process has too many open files.
        let (stream, peer) = Listener::accept(&mut listener).await;
        let (tls, opened) = (tls.clone(), opened.clone());
        tokio::spawn(async move {
            if let Ok(Some(stream)) = time::timeout(HANDSHAKE_TIMEOUT, open(stream, tls)).await {
                // An error means that the gateway has stopped.
                let _ = opened.send((stream, peer)).await;
            }
        });
    }
}

/// `None` if the client does not complete its handshake.
async fn open(stream: TcpStream, tls: TlsAcceptor) -> Option<Box<dyn Stream>> {
    let mut first = [0];
    stream.peek(&mut first).await.ok().filter(|read| *read > 0)?;
    if first[0] == TLS_HANDSHAKE { Some(Box::new(tls.accept(stream).await.ok()?)) } else { Some(Box::new(stream)) }
}

/// The accepted connections.
struct Connections {
    connections: mpsc::Receiver<Connection>,
    address: SocketAddr,
}

impl Listener for Connections {
    type Io = Box<dyn Stream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The task that accepts has been aborted, and this one is about to be.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}
