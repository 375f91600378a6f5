//! The servers that the operator reaches: Services and pods through a gateway, and registries through a proxy.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
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

/// Host of a registry that leads its readers to other servers.
pub const LURING_REGISTRY: &str = "luring.test";

/// Runs what outlives the test that starts it, because each test has its own runtime.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Connections to [`SILENT_REGISTRY`].
static SILENT_CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Hosts and ports for which the proxy has no server.
static REFUSED_HOSTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub struct Network {
    /// Services and pods, by host and port. Those that no test sets are healthy, and their metrics are those of an idle
    /// server.
    pub inside: FakeServers,
    /// The registry at [`HOST`].
    pub registry: FakeRegistry,
    /// The registry at [`LURING_REGISTRY`].
    pub luring_registry: FakeRegistry,
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
        let identity = authority.server(&[HOST, LURING_REGISTRY])?;
        let started = RUNTIME.spawn(async move {
            let inside = FakeServers::start().await;
            inside.set_others(serves(pod_metrics(0.1, 0)));
            let registry = FakeRegistry::start_with_tls(&identity.certificate, &identity.key).await;
            let luring_registry = FakeRegistry::start_with_tls(&identity.certificate, &identity.key).await;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let proxy = listener.local_addr()?;
            let registries = [(HOST, registry.address), (LURING_REGISTRY, luring_registry.address)];
            tokio::spawn(serve_proxy(listener, registries));
            io::Result::Ok((inside, registry, luring_registry, proxy))
        });
        let (inside, registry, luring_registry, proxy) = started.await??;
        Ok(Self { inside, registry, luring_registry, proxy, ca_file: authority.file("ca.pem") })
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

    /// Hosts and ports that the operator has asked the proxy for in vain, since the start of the tests.
    pub fn refused_hosts(&self) -> Vec<String> {
        REFUSED_HOSTS.lock().unwrap().clone()
    }
}

/// Servers by their host.
type Registries = [(&'static str, SocketAddr); 2];

async fn serve_proxy(listener: TcpListener, registries: Registries) {
    while let Ok((client, _)) = listener.accept().await {
        // A client that closes its connection ends the tunnel with an error.
        tokio::spawn(async move { tunnel(client, registries).await.ok() });
    }
}

async fn tunnel(client: TcpStream, registries: Registries) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let server = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    if host == SILENT_REGISTRY {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        SILENT_CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        // Reads and never answers, until the client closes the connection.
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    let Some((_, address)) = registries.into_iter().find(|(known, _)| *known == host) else {
        REFUSED_HOSTS.lock().unwrap().push(server.to_owned());
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    };
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let mut server = TcpStream::connect(address).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
