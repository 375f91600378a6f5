//! The attacker reaches the port of the webhooks: with connections that send nothing, or a byte now and then, and with
//! bodies that never end.

use std::io::{self, Read, Write};
use std::iter;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, PostParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use steersman::admission;
use steersman_api::Family;
use steersman_testkit::{object, wait};
use tokio::net::TcpSocket;

use crate::network::RUNTIME;
use crate::tenants::{HostileCase, objects, server};

/// Source address of the attacker. The API server connects from another one, as in a real cluster.
const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));

/// Connections without a TLS handshake.
const SILENT_CLIENTS: usize = 300;
/// Connections that send a byte of a head now and then.
const SLOW_CLIENTS: usize = 40;
/// Bodies at a time that never end.
const ENDLESS_BODIES: usize = 12;

const PAUSE: Duration = Duration::from_millis(500);
const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// Reviews of the victim, one after the other.
const REVIEWS: usize = 20;

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The port of the webhooks, and the certificate that the API server trusts.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Target {
    async fn find(case: &HostileCase) -> Self {
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
    fn connect(&self) -> io::Result<TcpStream> {
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
    fn send(&self, text: &str) -> io::Result<TlsStream> {
        let name = ServerName::from(self.address.ip());
        let tls = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, self.connect()?);
        stream.write_all(text.as_bytes())?;
        stream.flush()?;
        Ok(stream)
    }
}

/// Threads that repeat their attack until dropped.
struct Attack {
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
    fn new() -> Self {
        Self { stop: Arc::default(), threads: Vec::new() }
    }

    /// Runs `step` again and again in its own thread. `step` keeps its connections in its state.
    fn repeat<S: Default>(&mut self, target: &Target, mut step: impl FnMut(&Target, &mut S) + Send + 'static) {
        let (stop, target) = (self.stop.clone(), target.clone());
        self.threads.push(thread::spawn(move || {
            let mut state = S::default();
            while !stop.load(Ordering::Relaxed) {
                step(&target, &mut state);
            }
        }));
    }
}

/// Whether the server has closed the connection. It sends nothing to a client that has sent nothing.
fn is_closed(mut stream: &TcpStream) -> bool {
    let is_open = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    stream.set_nonblocking(true).is_err() || !stream.read(&mut [0]).is_err_and(|error| is_open(&error))
}

/// Keeps connections open that send nothing, and replaces those that the server closes.
fn stay_silent(target: &Target, open: &mut Vec<TcpStream>) {
    open.retain(|stream| !is_closed(stream));
    let missing = SILENT_CLIENTS - open.len();
    open.extend(iter::repeat_with(|| target.connect()).map_while(Result::ok).take(missing));
    thread::sleep(PAUSE);
}

/// Sends a byte on each connection, and replaces those that the server has closed.
fn send_slowly(target: &Target, open: &mut Vec<TlsStream>) {
    open.retain_mut(|stream| stream.write_all(b"a").and_then(|()| stream.flush()).is_ok());
    let missing = SLOW_CLIENTS - open.len();
    let head = "POST /validate/llsd HTTP/1.1\r\n";
    open.extend(iter::repeat_with(|| target.send(head)).map_while(Result::ok).take(missing));
    thread::sleep(PAUSE);
}

/// Sends a chunked body until the server closes the connection.
fn send_endless_body(target: &Target, path: &str) -> io::Result<()> {
    let headers = "host: webhook\r\ncontent-type: application/json\r\ntransfer-encoding: chunked";
    let mut stream = target.send(&format!("POST {path} HTTP/1.1\r\n{headers}\r\n\r\n"))?;
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    while stream.write_all(chunk.as_bytes()).is_ok() {
        thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// The API server's reviews are answered in time, and the attacker's bodies are cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_webhook_clients_delay_no_review() {
    let Some(case) = HostileCase::open("webhook").await else { return };
    let target = Target::find(&case).await;
    let (bodies, mut attack) = (Arc::new(AtomicUsize::new(0)), Attack::new());
    attack.repeat(&target, stay_silent);
    attack.repeat(&target, send_slowly);
    for number in 0..ENDLESS_BODIES {
        let path = if number % 2 == 0 { "/validate/llsd" } else { "/convert" };
        let ended = bodies.clone();
        attack.repeat(&target, move |target, _: &mut ()| {
            if send_endless_body(target, path).is_ok() {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let is_cut_off = async || (bodies.load(Ordering::Relaxed) > 0).then_some(());
    wait::eventually("the operator cuts off a body without end", is_cut_off).await.unwrap();

    case.expect_victim_served().await;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let probe = server("probe", json!({ "distribution": { "name": "starter" } }));
    let mut slowest = Duration::ZERO;
    for _ in 0..REVIEWS {
        let started = Instant::now();
        let own = objects(&case.victim.client, case.victim.name(), &probe);
        own.create(&dry_run, &object(probe.clone())).await.unwrap();
        slowest = slowest.max(started.elapsed());
    }
    println!(
        "the slowest of {REVIEWS} reviews took {slowest:?}; {} bodies were cut off",
        bodies.load(Ordering::Relaxed)
    );
    // The API server gives up after 10 seconds, so that only an answer in time admits an object.
    assert!(slowest < Duration::from_secs(5), "a review took {slowest:?}");
}
