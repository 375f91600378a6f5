//! Clients of the real process that send slowly or without end. Reviews from another address are answered meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::client::Body;
use kube::{Client, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use steersman::admission::TIMEOUT_SECONDS;
use steersman::certs::generation::{CertificatePair, generate};
use steersman_testkit::wait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::process::operator::OperatorProcess;

/// Address of all slow clients. Reviews come from 127.0.0.1.
const ATTACKER: &str = "127.0.0.2:0";

const SLOW: Duration = Duration::from_secs(1);

/// What a client sends after the connection: a beginning, and then the same again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlowClient {
    /// Nothing, not even a TLS handshake.
    Silent,
    /// A head without end, a byte per second.
    Head,
    /// A chunked body without end, a byte per second.
    Body,
    /// A chunked body without end, as fast as the server reads.
    Endless,
}

impl SlowClient {
    const ALL: [(Self, usize); 4] = [(Self::Silent, 200), (Self::Head, 150), (Self::Body, 146), (Self::Endless, 4)];

    fn beginning(self) -> &'static str {
        match self {
            Self::Silent => "",
            Self::Head => "POST /validate/llsd HTTP/1.1\r\nHost: a\r\nX: ",
            Self::Body | Self::Endless => {
                "POST /validate/llsd HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            }
        }
    }

    fn part(self) -> Vec<u8> {
        match self {
            Self::Silent => Vec::new(),
            Self::Head => b"x".to_vec(),
            Self::Body => b"1\r\n \r\n".to_vec(),
            Self::Endless => [&b"10000\r\n"[..], &vec![b' '; 0x10000], b"\r\n"].concat(),
        }
    }

    /// Sends until the server ends the connection. Returns what the server sent.
    async fn attack(self, server: SocketAddr, tls: TlsConnector) -> std::io::Result<String> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(ATTACKER.parse().unwrap())?;
        let stream: TcpStream = socket.connect(server).await?;
        if self == Self::Silent {
            return self.send(stream).await;
        }
        self.send(tls.connect(ServerName::IpAddress(server.ip().into()), stream).await?).await
    }

    async fn send(self, stream: impl AsyncRead + AsyncWrite) -> std::io::Result<String> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sending = async {
            writer.write_all(self.beginning().as_bytes()).await?;
            loop {
                writer.write_all(&self.part()).await?;
                writer.flush().await?;
                if self != Self::Endless {
                    sleep(SLOW).await;
                }
            }
        };
        let mut response = Vec::new();
        let result: std::io::Result<()> = tokio::select! {
            failed = sending => failed,
            read = reader.read_to_end(&mut response) => read.map(|_| ()),
        };
        // A connection that the server closed is the expected end; a part of the response may have arrived.
        let _ = result;
        Ok(String::from_utf8_lossy(&response).into_owned())
    }
}

/// How many clients of each kind the server has ended, and how many of them with an explanation.
#[derive(Debug, Default)]
struct Ended {
    clients: [AtomicUsize; 4],
    explained: AtomicUsize,
}

fn connector(pair: &CertificatePair) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pair.ca().unwrap().as_bytes()).unwrap()).unwrap();
    TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// The response to a review on a new connection, within the time that API servers wait.
async fn review(server: SocketAddr, pair: &CertificatePair, path: &str, body: &Value) -> Value {
    let mut config = Config::new(format!("https://{server}").parse().unwrap());
    let ca = CertificateDer::from_pem_slice(pair.ca().unwrap().as_bytes()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    config.default_retry = false;
    let request = http::Request::post(path).body(Body::from(body.to_string().into_bytes())).unwrap();
    let client = Client::try_from(config).unwrap();
    let limit = Duration::from_secs(TIMEOUT_SECONDS.try_into().unwrap());
    let response = timeout(limit, async { client.send(request).await.unwrap().into_body().collect_bytes().await });
    let bytes = response.await.unwrap_or_else(|_| panic!("{path}: no answer within {limit:?}")).unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["response"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_do_not_delay_reviews() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let pair = generate(&["127.0.0.1".to_owned()], Duration::from_secs(3600), Timestamp::now()).unwrap();
    std::fs::write(folder.path().join("tls.crt"), &pair.certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), &pair.key).unwrap();
    let directory = folder.path().to_str().unwrap();
    let flags = ["--webhooks", "on", "--webhook-address", "127.0.0.1:0", "--webhook-certificate-directory", directory];
    let operator = OperatorProcess::without_api_server_with("https://127.0.0.1:1", &flags);
    operator.wait_for_log("loaded the webhook certificate from the folder").await;
    let server: SocketAddr = operator.address("webhook").unwrap().trim_start_matches("https://").parse().unwrap();

    let ended = Arc::new(Ended::default());
    let mut attackers = JoinSet::new();
    for (index, (client, count)) in SlowClient::ALL.into_iter().enumerate() {
        for _ in 0..count {
            let (tls, ended) = (connector(&pair), ended.clone());
            attackers.spawn(async move {
                // Each client comes back when its connection has ended.
                loop {
                    let Ok(response) = client.attack(server, tls.clone()).await else { continue };
                    ended.clients[index].fetch_add(1, Ordering::Relaxed);
                    if response.contains("the review did not arrive in time") {
                        ended.explained.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }

    let object = json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
                         "metadata": { "name": "stack" }, "spec": { "distribution": { "name": "startr" } } });
    let admission = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "userInfo": { "username": "alice" }, "namespace": "team-a", "name": "stack",
        "kind": { "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" },
        "resource": { "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" },
        "object": object, "oldObject": null } });
    let conversion = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u", "desiredAPIVersion": "llamastack.io/v1alpha1", "objects": [object] } });
    let (began, mut reviews) = (Instant::now(), 0);
    let served_while_attacked = async || {
        reviews += 2;
        let refused = review(server, &pair, "/validate/llsd", &admission).await;
        assert_eq!(refused["status"]["reason"], "Invalid", "{refused}");
        let converted = review(server, &pair, "/convert", &conversion).await;
        assert_eq!(converted["convertedObjects"][0]["spec"]["server"]["distribution"]["name"], "startr", "{converted}");
        // Every client has been ended about once, and many with a reason.
        let done = SlowClient::ALL
            .iter()
            .zip(&ended.clients)
            .all(|((_, count), ended)| ended.load(Ordering::Relaxed) >= *count);
        (done && ended.explained.load(Ordering::Relaxed) >= 100).then_some(())
    };
    let waited = wait::eventually("the server has ended every slow client", served_while_attacked).await;
    waited.unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    println!("{reviews} reviews in {:?}, {ended:?}", began.elapsed());
    attackers.shutdown().await;
}
