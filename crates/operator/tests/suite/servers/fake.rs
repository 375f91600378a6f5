//! Fake HTTP servers in the test's process. All share one address; the Host header of a request selects the server. Every
//! request is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use futures::{Stream, StreamExt, stream};
use http::header::{HOST, LOCATION};
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Answers as a healthy server with these providers.
    Healthy(Value),
    /// Answers as a healthy server without providers, except for this path, status and body. A redirect status leads to
    /// another server.
    Override(&'static str, u16, String),
    /// Never answers.
    Hangs,
    /// Answers every request with this text, repeated without end, with this pause between the repetitions.
    #[allow(dead_code, reason = "only the suite hostile uses it")]
    Endless(&'static str, Duration),
}

pub struct RecordedRequest {
    pub host: String,
    pub path: String,
    pub headers: HeaderMap,
}

#[derive(Default)]
struct FakeState {
    behaviours: BTreeMap<String, Behaviour>,
    /// Behaviour of hosts that `behaviours` does not contain.
    others: Option<Behaviour>,
    requests: Vec<RecordedRequest>,
}

pub struct FakeServers {
    pub address: SocketAddr,
    state: Arc<Mutex<FakeState>>,
    server: JoinHandle<()>,
}

impl Drop for FakeServers {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeServers {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<FakeState>>::default();
        let router = router(state.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, server }
    }

    /// Starts with TLS and a self-signed certificate for another name.
    pub async fn start_with_tls() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).unwrap().self_signed(&key);
        let pem = (certificate.unwrap().pem().into_bytes(), key.serialize_pem().into_bytes());
        let tls = axum_server::tls_rustls::RustlsConfig::from_pem(pem.0, pem.1).await.unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<FakeState>>::default();
        let service = router(state.clone()).into_make_service();
        let served = axum_server::from_tcp_rustls(listener, tls).unwrap().serve(service);
        let server = tokio::spawn(async move { served.await.unwrap() });
        Self { address, state, server }
    }

    /// Sets the behaviour of `host`, the name of a Service with its port. Other hosts answer 404, unless `set_others` is called.
    pub fn set(&self, host: &str, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviours.insert(host.to_owned(), behaviour);
    }

    #[allow(dead_code, reason = "only the suite hostile uses it")]
    pub fn set_others(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().others = Some(behaviour);
    }

    /// Hosts of the requests since the last call of `take_requests`.
    #[allow(dead_code, reason = "only the suite hostile uses it")]
    pub fn hosts(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().requests.iter().map(|request| request.host.clone()).collect()
    }

    /// Takes the requests since the last call.
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn router(state: Arc<Mutex<FakeState>>) -> Router {
    Router::new().fallback(answer).with_state(state)
}

fn reply(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn answer(State(state): State<Arc<Mutex<FakeState>>>, request: Request) -> Response<Body> {
    let host = request.headers().get(HOST).unwrap().to_str().unwrap().to_owned();
    let path = request.uri().path().to_owned();
    let behaviour = {
        let mut state = state.lock().unwrap();
        let recorded = RecordedRequest { host: host.clone(), path: path.clone(), headers: request.headers().clone() };
        state.requests.push(recorded);
        state.behaviours.get(&host).or(state.others.as_ref()).cloned()
    };
    match behaviour {
        None => reply(404, "no such server"),
        Some(Behaviour::Hangs) => std::future::pending().await,
        Some(Behaviour::Endless(text, pause)) => reply(200, Body::from_stream(endless(text, pause))),
        Some(Behaviour::Override(target, status, body)) if target == path => {
            let mut answer = reply(status, body);
            if (300..400).contains(&status) {
                answer.headers_mut().insert(LOCATION, "http://other-service.ns.svc.cluster.local/x".parse().unwrap());
            }
            answer
        }
        Some(Behaviour::Override(..)) => healthy_reply(&path, &json!([])),
        Some(Behaviour::Healthy(providers)) => healthy_reply(&path, &providers),
    }
}

fn endless(text: &'static str, pause: Duration) -> impl Stream<Item = Result<&'static str, Infallible>> {
    stream::repeat(text).then(move |text| async move {
        tokio::time::sleep(pause).await;
        Ok(text)
    })
}

fn healthy_reply(path: &str, providers: &Value) -> Response<Body> {
    match path {
        "/v1/health" => reply(200, json!({ "status": "OK" }).to_string()),
        "/v1/version" => reply(200, json!({ "version": "0.7.1" }).to_string()),
        "/v1/providers" => reply(200, json!({ "data": providers }).to_string()),
        _ => reply(404, ""),
    }
}
