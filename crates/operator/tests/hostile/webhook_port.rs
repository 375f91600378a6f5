//! The port of the webhooks, as an attacker in the cluster reaches it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::Api;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use steersman::admission;
use steersman_api::Family;
use tokio::net::TcpSocket;

use crate::network::RUNTIME;
use crate::tenants::HostileCase;

/// Source address of the attacker. The API server connects from another one, as in a real cluster.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than the webhook lets a review wait and be decided.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The port of the webhooks, and the certificate that the API server trusts.
#[derive(Clone)]
pub struct WebhookPort {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl WebhookPort {
    pub async fn find(case: &HostileCase) -> Self {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(case.admin.clone());
        let configuration = configurations.get(admission::name(Family::Llsd)).await.unwrap();
        let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&bundle.0).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let url = case.env.operator.log().address("webhook").unwrap();
        Self { address: url.trim_start_matches("https://").parse().unwrap(), tls: tls.into() }
    }

    /// Opens a connection without a TLS handshake.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let connected = RUNTIME.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(SOURCE, 0))?;
            socket.connect(self.address).await
        });
        let stream = connected?.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(stream)
    }

    /// Opens a connection and sends this text.
    pub fn send(&self, text: &str) -> io::Result<TlsStream> {
        let name = ServerName::from(self.address.ip());
        let tls = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, self.connect()?);
        stream.write_all(text.as_bytes())?;
        stream.flush()?;
        Ok(stream)
    }

    /// Posts a review and returns the answer of the webhook.
    pub fn post(&self, path: &str, review: &Value) -> io::Result<Value> {
        let body = review.to_string();
        let headers = "host: webhook\r\ncontent-type: application/json\r\nconnection: close";
        let mut stream =
            self.send(&format!("POST {path} HTTP/1.1\r\n{headers}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))?;
        stream.sock.set_read_timeout(Some(REVIEW_TIMEOUT))?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // The server may close the connection without a closing message of TLS.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        let text = String::from_utf8_lossy(&answer);
        let (_, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        serde_json::from_str(body).map_err(io::Error::other)
    }
}

/// Threads that repeat their attack until dropped.
#[derive(Default)]
pub struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Attack {
    /// Runs `step` again and again in its own thread. `step` keeps its connections in its state.
    pub fn repeat<S: Default>(
        &mut self,
        port: &WebhookPort,
        mut step: impl FnMut(&WebhookPort, &mut S) + Send + 'static,
    ) {
        let (stop, port) = (self.stop.clone(), port.clone());
        self.threads.push(thread::spawn(move || {
            let mut state = S::default();
            while !stop.load(Ordering::Relaxed) {
                step(&port, &mut state);
            }
        }));
    }
}
