//! Pods that only have metrics, all at one address. Comes in: what each of them says; goes out: a server that a real
//! Prometheus scrapes at `/pods/<namespace>/<name>/metrics`. Time passes when the test changes the words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type Texts = Arc<Mutex<BTreeMap<(String, String), String>>>;

/// The server. Dropping it ends it.
pub struct Pods {
    address: SocketAddr,
    texts: Texts,
    server: JoinHandle<()>,
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Pods {
    pub async fn start() -> Result<Self> {
        Self::start_at("127.0.0.1:0").await
    }

    /// Where `/metrics` itself is asked for, the first pod answers: so one pod can be played at an address of its own.
    pub async fn start_at(address: &str) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))?;
        let (address, texts) = (listener.local_addr()?, Texts::default());
        let router = Router::new()
            .route("/pods/{namespace}/{name}/metrics", get(metrics))
            .route("/metrics", get(first))
            .with_state(texts.clone());
        let server = tokio::spawn(async move {
            // It only ends with the test, which then has no use for a reason.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, texts, server })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the pod says this, in Prometheus' text format.
    pub fn say(&self, namespace: &str, name: &str, text: impl Into<String>) {
        self.texts().insert((namespace.to_owned(), name.to_owned()), text.into());
    }

    /// From now on the pod says nothing: a scrape fails.
    pub fn silence(&self, namespace: &str, name: &str) {
        self.texts().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Labels of the target that the pod is, as a ServiceMonitor would set them, and where it is scraped.
    pub fn labels(namespace: &str, name: &str) -> Value {
        json!({
            "namespace": namespace,
            "pod": name,
            "instance": format!("{name}:8000"),
            "__metrics_path__": format!("/pods/{namespace}/{name}/metrics"),
        })
    }

    fn texts(&self) -> MutexGuard<'_, BTreeMap<(String, String), String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn metrics(State(texts): State<Texts>, Path(pod): Path<(String, String)>) -> (StatusCode, String) {
    answer(texts.lock().unwrap_or_else(PoisonError::into_inner).get(&pod))
}

async fn first(State(texts): State<Texts>) -> (StatusCode, String) {
    answer(texts.lock().unwrap_or_else(PoisonError::into_inner).values().next())
}

fn answer(text: Option<&String>) -> (StatusCode, String) {
    text.map_or((StatusCode::SERVICE_UNAVAILABLE, String::new()), |text| (StatusCode::OK, text.clone()))
}
