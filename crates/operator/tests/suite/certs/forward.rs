//! Stands in for a Service: forwards each connection to one address to the next of several backends.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub struct Forwarder {
    address: SocketAddr,
    backends: Arc<Mutex<Backends>>,
}

#[derive(Default)]
struct Backends {
    /// Address and number of connections of each backend.
    targets: Vec<(SocketAddr, usize)>,
    turn: usize,
}

impl Forwarder {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backends = Arc::new(Mutex::new(Backends::default()));
        let shared = backends.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, shared.clone()));
            }
        });
        Self { address, backends }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn add_backend(&self, backend: SocketAddr) {
        self.backends.lock().unwrap().targets.push((backend, 0));
    }

    /// Stops new connections to `backend`, as for an endpoint that is not ready. Open connections stay.
    pub fn remove_backend(&self, backend: SocketAddr) {
        self.backends.lock().unwrap().targets.retain(|(address, _)| *address != backend);
    }

    /// The number of connections of each backend.
    pub fn connections(&self) -> Vec<usize> {
        self.backends.lock().unwrap().targets.iter().map(|(_, count)| *count).collect()
    }
}

async fn forward(mut client: TcpStream, backends: Arc<Mutex<Backends>>) {
    let next = || {
        let mut backends = backends.lock().unwrap();
        backends.turn += 1;
        let (turn, count) = (backends.turn, backends.targets.len());
        let backend = backends.targets.get_mut(turn.checked_rem(count)?)?;
        backend.1 += 1;
        Some(backend.0)
    };
    let Some(backend) = next() else { return };
    if let Ok(mut server) = TcpStream::connect(backend).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
