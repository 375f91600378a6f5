//! What a Service does: one address in front of several processes, each connection to the next of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub struct Forwarder {
    address: SocketAddr,
    behind: Arc<Mutex<Behind>>,
}

#[derive(Default)]
struct Behind {
    /// Each with the number of connections that it got.
    backends: Vec<(SocketAddr, usize)>,
    turn: usize,
}

impl Forwarder {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(Mutex::new(Behind::default()));
        let shared = behind.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, shared.clone()));
            }
        });
        Self { address, behind }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn to(&self, backend: SocketAddr) {
        self.behind.lock().unwrap().backends.push((backend, 0));
    }

    /// As an endpoint that is not ready any more: open connections stay.
    pub fn no_longer_to(&self, backend: SocketAddr) {
        self.behind.lock().unwrap().backends.retain(|(address, _)| *address != backend);
    }

    /// How many connections each backend got.
    pub fn connections(&self) -> Vec<usize> {
        self.behind.lock().unwrap().backends.iter().map(|(_, count)| *count).collect()
    }
}

async fn forward(mut client: TcpStream, behind: Arc<Mutex<Behind>>) {
    let next = || {
        let mut behind = behind.lock().unwrap();
        behind.turn += 1;
        let (turn, count) = (behind.turn, behind.backends.len());
        let backend = behind.backends.get_mut(turn.checked_rem(count)?)?;
        backend.1 += 1;
        Some(backend.0)
    };
    let Some(backend) = next() else { return };
    if let Ok(mut server) = TcpStream::connect(backend).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
