//! Llama Stack servers in the test's own process, all at one address and told apart by the name that they are asked for.
//! Comes in: what each of them answers; goes out: answers, and a list of what was asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use http::header::{HOST, LOCATION};
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub enum Plays {
    /// Answers as a server that is well, with these providers.
    Well(Value),
    /// The same, but this path with this status and this body. A status of redirection leads to another server.
    But(&'static str, u16, String),
    Hangs,
}

pub struct Asked {
    pub host: String,
    pub path: String,
    pub headers: HeaderMap,
}

#[derive(Default)]
struct Inside {
    plays: BTreeMap<String, Plays>,
    asked: Vec<Asked>,
}

pub struct Fake {
    pub address: SocketAddr,
    inside: Arc<Mutex<Inside>>,
    server: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Fake {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::<Mutex<Inside>>::default();
        let router = router(inside.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, inside, server }
    }

    /// The same with a certificate that nobody trusts.
    pub async fn start_with_tls() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).unwrap().self_signed(&key);
        let pem = (certificate.unwrap().pem().into_bytes(), key.serialize_pem().into_bytes());
        let tls = axum_server::tls_rustls::RustlsConfig::from_pem(pem.0, pem.1).await.unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::<Mutex<Inside>>::default();
        let service = router(inside.clone()).into_make_service();
        let served = axum_server::from_tcp_rustls(listener, tls).unwrap().serve(service);
        let server = tokio::spawn(async move { served.await.unwrap() });
        Self { address, inside, server }
    }

    /// `host` is the name of a Service with its port. One that nobody has set is not found.
    pub fn play(&self, host: &str, plays: Plays) {
        self.inside.lock().unwrap().plays.insert(host.to_owned(), plays);
    }

    /// What was asked since the last time.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.inside.lock().unwrap().asked)
    }
}

fn router(inside: Arc<Mutex<Inside>>) -> Router {
    Router::new().fallback(answer).with_state(inside)
}

fn reply(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn answer(State(inside): State<Arc<Mutex<Inside>>>, request: Request) -> Response<Body> {
    let host = request.headers().get(HOST).unwrap().to_str().unwrap().to_owned();
    let path = request.uri().path().to_owned();
    let plays = {
        let mut inside = inside.lock().unwrap();
        inside.asked.push(Asked { host: host.clone(), path: path.clone(), headers: request.headers().clone() });
        inside.plays.get(&host).cloned()
    };
    match plays {
        None => reply(404, "nobody here"),
        Some(Plays::Hangs) => std::future::pending().await,
        Some(Plays::But(odd, status, body)) if odd == path => {
            let mut answer = reply(status, body);
            if (300..400).contains(&status) {
                answer.headers_mut().insert(LOCATION, "http://other-service.ns.svc.cluster.local/x".parse().unwrap());
            }
            answer
        }
        Some(Plays::But(..)) => well(&path, &json!([])),
        Some(Plays::Well(providers)) => well(&path, &providers),
    }
}

fn well(path: &str, providers: &Value) -> Response<Body> {
    match path {
        "/v1/health" => reply(200, json!({ "status": "OK" }).to_string()),
        "/v1/version" => reply(200, json!({ "version": "0.7.1" }).to_string()),
        "/v1/providers" => reply(200, json!({ "data": providers }).to_string()),
        _ => reply(404, ""),
    }
}
