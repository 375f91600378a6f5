//! Serves the metrics of fake pods at one address, for a real Prometheus to scrape at `/pods/<namespace>/<name>/metrics`.
//! The metrics of a pod only change when the test sets them.

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

/// The server. It stops when dropped.
pub struct FakePodMetrics {
    address: SocketAddr,
    texts: Texts,
    server: JoinHandle<()>,
}

impl Drop for FakePodMetrics {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakePodMetrics {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen at 127.0.0.1")?;
        let (address, texts) = (listener.local_addr()?, Texts::default());
        let router = Router::new().route("/pods/{namespace}/{name}/metrics", get(metrics)).with_state(texts.clone());
        let server = tokio::spawn(async move {
            // The server only ends with the test, which does not need the error then.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, texts, server })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the metrics of a pod, in Prometheus' text format.
    pub fn set(&self, namespace: &str, name: &str, text: impl Into<String>) {
        self.texts().insert((namespace.to_owned(), name.to_owned()), text.into());
    }

    /// Makes scrapes of a pod fail.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.texts().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// The labels of a pod's scrape target, as a ServiceMonitor would set them, and its path.
    pub fn target_labels(namespace: &str, name: &str) -> Value {
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
    let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
    texts.get(&pod).map_or((StatusCode::SERVICE_UNAVAILABLE, String::new()), |text| (StatusCode::OK, text.clone()))
}
