//! The servers that the operator reaches: Services and pods through a gateway, and registries through a proxy.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, net::SocketAddr};

use anyhow::Result;
use steersman_testkit::pki::Authority;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::fake_registry::{FakeRegistry, HOST};
use crate::fake_servers::{Behaviour, FakeServers};

/// Host of a registry that accepts connections and never answers.
pub const SILENT_REGISTRY: &str = "silent.test";

/// Runs what outlives the test that starts it, because each test has its own runtime.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Connections to [`SILENT_REGISTRY`].
static SILENT_CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

pub struct Network {
    /// Services and pods, by host and port. Those that no test sets are healthy, and their metrics are those of an idle
    /// server.
    pub inside: FakeServers,
    /// The registry at [`HOST`].
    pub registry: FakeRegistry,
    proxy: SocketAddr,
    ca_file: PathBuf,
}

/// Metrics of a vLLM server for model `m` with this share of its KV cache in use.
pub fn pod_metrics(kv: f64, waiting: u32) -> String {
    let labels = "{engine=\"0\",model_name=\"m\"}";
    format!("vllm:kv_cache_usage_perc{labels} {kv}\nvllm:num_requests_waiting{labels} {waiting}\n")
}

/// A pod that answers scrapes with this text.
pub fn serves(metrics: String) -> Behaviour {
    Behaviour::Override("/metrics", 200, metrics)
}

impl Network {
    pub async fn start(folder: &Path) -> Result<Self> {
        let authority = Authority::create(&folder.join("registry-pki"))?;
        let identity = authority.server(&[HOST])?;
        let started = RUNTIME.spawn(async move {
            let inside = FakeServers::start().await;
            inside.set_others(serves(pod_metrics(0.1, 0)));
            let registry = FakeRegistry::start_with_tls(&identity.certificate, &identity.key).await;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let proxy = listener.local_addr()?;
            tokio::spawn(serve_proxy(listener, registry.address));
            io::Result::Ok((inside, registry, proxy))
        });
        let (inside, registry, proxy) = started.await??;
        Ok(Self { inside, registry, proxy, ca_file: authority.file("ca.pem") })
    }

    /// Variables of an operator that reaches registries through the proxy and trusts their certificates.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        let ca_file = self.ca_file.display().to_string();
        [("HTTPS_PROXY", format!("http://{}", self.proxy)), ("SSL_CERT_FILE", ca_file)]
    }

    /// Connections to [`SILENT_REGISTRY`] since the start of the tests.
    pub fn silent_connections(&self) -> usize {
        SILENT_CONNECTIONS.load(Ordering::Relaxed)
    }
}

async fn serve_proxy(listener: TcpListener, registry: SocketAddr) {
    while let Ok((client, _)) = listener.accept().await {
        // A client that closes its connection ends the tunnel with an error.
        tokio::spawn(async move { tunnel(client, registry).await.ok() });
    }
}

async fn tunnel(client: TcpStream, registry: SocketAddr) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let host = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(':').next()).unwrap_or_default();
    if ![HOST, SILENT_REGISTRY].contains(&host) {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    if host == SILENT_REGISTRY {
        SILENT_CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        // Reads and never answers, until the client closes the connection.
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    let mut server = TcpStream::connect(registry).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
