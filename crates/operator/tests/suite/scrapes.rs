//! Authorization of scrapes of `/metrics`, with and without an available API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use steersman_runtime::serve::allowed_tokens::ReviewValidity;
use steersman_runtime::serve::scrape::{Guard, MAX_KNOWN_REVIEWS, MAX_UNKNOWN_REVIEWS, routes};
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::fault_injection::{CallFault, FaultInjector, RequestFault, inject_by_request};
use steersman_testkit::{Cluster, Flavour, Namespace, exclusive_cluster, object, wait};
use tower::ServiceExt;

use crate::process::operator::token;
use crate::server::server;

/// Reviews every scrape, and uses the cache only while the API server is unavailable.
const ALWAYS_REVIEW: ReviewValidity =
    ReviewValidity { fresh: Duration::ZERO, lasting: Duration::from_secs(600), patience: wait::TIMEOUT };

/// A namespace with a ServiceAccount `scraper` that may scrape, and an account `unauthorized` that may not.
struct ScrapeTest {
    cluster: &'static Cluster,
    admin: Client,
    token: String,
    namespace: Namespace,
}

impl ScrapeTest {
    async fn new(cluster: &'static Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let (admin, name) = (cluster.admin().await.unwrap(), namespace.name());
        for account in ["scraper", "unauthorized"] {
            let account: ServiceAccount = object(json!({ "metadata": { "name": account } }));
            namespace.api().create(&PostParams::default(), &account).await.unwrap();
        }
        let rule = json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] });
        let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": [rule] }));
        Api::all(admin.clone()).create(&PostParams::default(), &role).await.unwrap();
        let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "scraper", "namespace": name }] }));
        Api::all(admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
        let test = Self { token: token(&admin, name, "scraper").await, cluster, admin, namespace };
        // The authorizer needs a moment to see the new binding.
        let counter = FaultInjector::without_fault();
        let scraped =
            async || (scrape(&test.endpoint(&counter, ALWAYS_REVIEW), &test.token).await == 200).then_some(());
        wait::eventually("a scrape with a valid token", scraped).await.unwrap();
        test
    }

    /// The metrics endpoint, with a faulty connection to the API server.
    fn endpoint(&self, injector: &FaultInjector, trust: ReviewValidity) -> Router {
        let server = server(self.cluster, injector.wrap(&self.admin));
        routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, trust))
    }
}

async fn scrape(endpoint: &Router, token: &str) -> u16 {
    let request = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
    let answer = endpoint.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    answer.status().as_u16()
}

#[tokio::test]
async fn only_allowed_scrapers_are_cached() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let test = ScrapeTest::new(exclusive.cluster, "scrapes").await;
    let counter = FaultInjector::without_fault();
    let endpoint =
        test.endpoint(&counter, ReviewValidity { fresh: Duration::from_secs(3600), ..ReviewValidity::default() });
    assert_eq!(
        (scrape(&endpoint, &test.token).await, counter.call_count()),
        (200, 2),
        "expected a token review and an access review"
    );
    assert_eq!((scrape(&endpoint, &test.token).await, counter.call_count()), (200, 2));
    let unauthorized = token(&test.admin, test.namespace.name(), "unauthorized").await;
    assert_eq!((scrape(&endpoint, &unauthorized).await, counter.call_count()), (403, 4));
    assert_eq!((scrape(&endpoint, &unauthorized).await, counter.call_count()), (403, 6));
    assert_eq!((scrape(&endpoint, "not-a-token").await, counter.call_count()), (401, 7));
}

#[tokio::test]
async fn api_server_outage_keeps_recent_scrapers_allowed() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let test = ScrapeTest::new(exclusive.cluster, "away").await;
    // The first scrape makes two calls; the API server is unavailable from the third call on.
    let outage = FaultInjector::fail_call(3, CallFault::NotSent).then_unreachable();
    let endpoint = test.endpoint(&outage, ALWAYS_REVIEW);
    assert_eq!((scrape(&endpoint, &test.token).await, outage.has_fired()), (200, false));
    for _ in 0..2 {
        assert_eq!(
            (scrape(&endpoint, &test.token).await, outage.has_fired()),
            (200, true),
            "the API server must be unavailable"
        );
    }
    assert_eq!(scrape(&endpoint, "unknown-token").await, 503);
    let outage = FaultInjector::fail_call(3, CallFault::NotSent).then_unreachable();
    let endpoint = test.endpoint(&outage, ReviewValidity { lasting: Duration::ZERO, ..ALWAYS_REVIEW });
    assert_eq!(
        (scrape(&endpoint, &test.token).await, scrape(&endpoint, &test.token).await),
        (200, 503),
        "the cached review must be too old"
    );
    for (status, expected) in [(429, 200), (503, 200), (403, 503)] {
        let busy = FaultInjector::fail_call(3, CallFault::Status(status));
        let endpoint = test.endpoint(&busy, ALWAYS_REVIEW);
        assert_eq!((scrape(&endpoint, &test.token).await, busy.has_fired()), (200, false));
        assert_eq!(
            (scrape(&endpoint, &test.token).await, busy.has_fired()),
            (expected, true),
            "status of the review: {status}"
        );
    }
}

#[tokio::test]
async fn revoked_scraper_stays_refused_during_outage() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let test = ScrapeTest::new(exclusive.cluster, "ended").await;
    let unavailable = Arc::new(AtomicBool::new(false));
    let is_unavailable = unavailable.clone();
    let breaks = move |_: &_| is_unavailable.load(Ordering::SeqCst).then_some(RequestFault::ConnectionReset);
    let server = server(test.cluster, inject_by_request(&test.admin, breaks));
    let endpoint =
        routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, ALWAYS_REVIEW));
    assert_eq!(scrape(&endpoint, &test.token).await, 200);
    unavailable.store(true, Ordering::SeqCst);
    assert_eq!(scrape(&endpoint, &test.token).await, 200);
    unavailable.store(false, Ordering::SeqCst);
    test.namespace.api::<ServiceAccount>().delete("scraper", &DeleteParams::default()).await.unwrap();
    let refused = async || (scrape(&endpoint, &test.token).await == 401).then_some(());
    wait::eventually("the token of a deleted account is refused", refused).await.unwrap();
    unavailable.store(true, Ordering::SeqCst);
    assert_eq!(scrape(&endpoint, &test.token).await, 503, "the last review was a refusal");
}

/// A flood of unknown tokens may block other unknown tokens, but not known scrapers or the revocation of their access.
#[tokio::test]
async fn hanging_reviews_do_not_block_known_scrapers() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let test = ScrapeTest::new(exclusive.cluster, "flood").await;
    let (hang, hung) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (hangs, hung_count) = (hang.clone(), hung.clone());
    let fault_of = move |_: &_| {
        let hangs = hangs.load(Ordering::SeqCst);
        hung_count.fetch_add(usize::from(hangs), Ordering::SeqCst);
        hangs.then_some(RequestFault::NoResponse)
    };
    let server = server(test.cluster, inject_by_request(&test.admin, fault_of));
    let endpoint =
        routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, ALWAYS_REVIEW));
    assert_eq!(scrape(&endpoint, &test.token).await, 200);
    let hang_reviews = async |token: &str, count: usize| {
        let all = hung.load(Ordering::SeqCst) + count;
        hang.store(true, Ordering::SeqCst);
        for _ in 0..count {
            let (endpoint, token) = (endpoint.clone(), token.to_owned());
            tokio::spawn(async move { scrape(&endpoint, &token).await });
        }
        let held = async || (hung.load(Ordering::SeqCst) == all).then_some(());
        wait::eventually("reviews hang", held).await.unwrap();
        hang.store(false, Ordering::SeqCst);
    };
    hang_reviews("unknown-token", MAX_UNKNOWN_REVIEWS).await;
    assert_eq!(scrape(&endpoint, "another-token").await, 503, "reviews of unknown tokens are at their limit");
    assert_eq!(scrape(&endpoint, &test.token).await, 200);
    hang_reviews(&test.token, MAX_KNOWN_REVIEWS).await;
    assert_eq!(scrape(&endpoint, &test.token).await, 503, "a hanging review is no evidence of an outage");
}
