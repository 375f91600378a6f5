//! Lists of the controllers as the API server receives them: in pages, so that neither side holds all objects at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use steersman::llamastack::LlamaStack;
use steersman_runtime::controller::{self, ControllerContext, Reconciler};
use steersman_runtime::store::Scope;
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::fault_injection::inject_by_request;
use steersman_testkit::{Cluster, wait};
use tokio_util::sync::CancellationToken;

use crate::server::server;
use crate::{dynamo, llamastack};

/// Page sizes: of kinds with large objects, of others, and of nodes.
const PAGE_SIZES: [&str; 3] = ["25", "100", "200"];

/// Lists of many objects, by resource, with the limits of their requests.
#[derive(Clone, Default)]
pub struct RecordedLists(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl RecordedLists {
    /// A client whose lists are recorded.
    pub fn client(&self, client: &Client) -> Client {
        let lists = self.0.clone();
        inject_by_request(client, move |request| {
            if let Some((resource, limit)) = list_of(request) {
                lists.lock().unwrap().entry(resource).or_default().insert(limit);
            }
            None
        })
    }

    /// Waits for lists of so many kinds. Every list has a limit of its own; the client's default is 500.
    pub async fn expect_pages(&self, kinds: usize) {
        let are_listed = async || (self.0.lock().unwrap().len() >= kinds).then_some(());
        wait::eventually(&format!("lists of {kinds} kinds"), are_listed)
            .await
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.0));
        for (resource, limits) in self.0.lock().unwrap().iter() {
            let fits = limits.iter().all(|limit| PAGE_SIZES.contains(&limit.as_str()));
            assert!(fits, "{resource} are listed with limit {limits:?}");
        }
    }
}

/// The resource and the limit of a list. None for other requests, and for lists of one object by its name.
fn list_of(request: &Request<Body>) -> Option<(String, String)> {
    let query: BTreeMap<String, String> =
        form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).into_owned().collect();
    if request.method() != Method::GET || query.contains_key("watch") {
        return None;
    }
    if query.get("fieldSelector").is_some_and(|selector| selector.contains("metadata.name=")) {
        return None;
    }
    let mut path: Vec<&str> = request.uri().path().trim_start_matches('/').split('/').collect();
    // `api/VERSION` or `apis/GROUP/VERSION`, then perhaps `namespaces/NAME`.
    path.drain(..if path.first() == Some(&"api") { 2 } else { 3 }.min(path.len()));
    if path.len() > 2 && path[0] == "namespaces" {
        path.drain(..2);
    }
    let [resource] = path[..] else { return None };
    Some((resource.to_owned(), query.get("limit").cloned().unwrap_or_default()))
}

/// Runs a controller until it has listed its own kind and all kinds of children.
async fn expect_pages_of<R: Reconciler + Send + Sync + 'static>(reconciler: R, cluster: &Cluster, admin: &Client)
where
    R::Snapshot: Send + Sync,
{
    let namespace = cluster.namespace("pages").await.unwrap();
    let lists = RecordedLists::default();
    let kinds =
        reconciler.children().iter().map(|watched| watched.kind.kind.clone()).collect::<BTreeSet<_>>().len() + 1;
    let stop = CancellationToken::new();
    let context = ControllerContext {
        server: server(cluster, lists.client(admin)),
        scope: Scope::Namespace(namespace.name().to_owned()),
        identity: "test".to_owned(),
        metrics: Arc::new(Metrics::new(Timestamp::now(), |_| ()).0),
    };
    let running = tokio::spawn(controller::run(reconciler, context, stop.clone()));
    lists.expect_pages(kinds).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn lists_of_servers_are_read_in_pages() {
    let Some((cluster, admin)) = llamastack::cluster_with_crd().await else { return };
    expect_pages_of(LlamaStack::shipped(), cluster, &admin).await;
}

#[tokio::test]
async fn lists_of_requests_are_read_in_pages() {
    let Some((cluster, admin)) = dynamo::cluster_with_crds().await else { return };
    expect_pages_of(dynamo::reconciler(), cluster, &admin).await;
}
