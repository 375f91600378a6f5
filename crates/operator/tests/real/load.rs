//! Requests that go on until a test stops them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use steersman_testkit::real_node::RealCluster;
use steersman_testkit::real_node::network::send;
use tokio::task::JoinHandle;

/// Pause of a client between two requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);

/// A request that a client repeats: GET, or POST with a JSON body.
#[derive(Clone)]
pub struct Request {
    pub path: &'static str,
    pub body: Option<Value>,
}

/// Clients that send requests. They stop when this is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinHandle<Result<Vec<Report>>>,
}

/// Counts of answered and failed requests.
#[derive(Default)]
pub struct Report {
    /// Answered requests by path.
    pub answered: BTreeMap<&'static str, usize>,
    pub failed: Vec<String>,
}

impl Load {
    /// Starts a client for each of `requests`. A request is sent on a new connection, in the network of the node.
    pub fn start(cluster: &'static RealCluster, url: &str, requests: Vec<Request>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, url) = (stop.clone(), url.to_owned());
        let clients = tokio::spawn(cluster.in_network(move || async move {
            let clients = requests.iter().map(|request| repeat(&url, request, &stopped));
            futures::future::join_all(clients).await
        }));
        Self { stop, clients }
    }

    /// Waits for the responses to the last requests.
    pub async fn stop(mut self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let reports = (&mut self.clients).await.unwrap().unwrap();
        reports.into_iter().fold(Report::default(), |mut sum, report| {
            for (path, count) in report.answered {
                *sum.answered.entry(path).or_default() += count;
            }
            sum.failed.extend(report.failed);
            sum
        })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn repeat(url: &str, request: &Request, stop: &AtomicBool) -> Report {
    let mut report = Report::default();
    while !stop.load(Ordering::Relaxed) {
        match send(url, request.path, request.body.clone()).await {
            Ok((status, _)) if status.is_success() => *report.answered.entry(request.path).or_default() += 1,
            other => report.failed.push(format!("{}: {other:?}", request.path)),
        }
        tokio::time::sleep(REQUEST_INTERVAL).await;
    }
    report
}
