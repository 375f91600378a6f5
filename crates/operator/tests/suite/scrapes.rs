//! Who may read `/metrics`, while the API server answers and while it does not.

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
use steersman_runtime::serve::admitted::Trust;
use steersman_runtime::serve::scrape::{AT_ONCE, Guard, KNOWN_AT_ONCE, routes};
use steersman_runtime::telemetry::metrics::Metrics;
use steersman_testkit::cut::{Cut, Cutter, Fate, fated};
use steersman_testkit::{Cluster, Flavour, Namespace, object, turn, wait};
use tower::ServiceExt;

use crate::process::operator::token;
use crate::server::server;

/// Nobody is believed without being asked about, as long as somebody can be asked.
const ASKING: Trust = Trust { fresh: Duration::ZERO, lasting: Duration::from_secs(600), patience: wait::LIMIT };

/// A cluster with somebody who may scrape.
struct Scene {
    cluster: &'static Cluster,
    admin: Client,
    token: String,
    namespace: Namespace,
}

impl Scene {
    async fn new(cluster: &'static Cluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await.unwrap();
        let (admin, name) = (cluster.admin().await.unwrap(), namespace.name());
        for account in ["scraper", "stranger"] {
            let account: ServiceAccount = object(json!({ "metadata": { "name": account } }));
            namespace.all().create(&PostParams::default(), &account).await.unwrap();
        }
        let rule = json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] });
        let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": [rule] }));
        Api::all(admin.clone()).create(&PostParams::default(), &role).await.unwrap();
        let binding: ClusterRoleBinding = object(json!({ "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "scraper", "namespace": name }] }));
        Api::all(admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
        let scene = Self { token: token(&admin, name, "scraper").await, cluster, admin, namespace };
        // The authorizer follows a new binding within moments.
        let counter = Cutter::counting();
        let scraped = async || (scrape(&scene.door(&counter, ASKING), &scene.token).await == 200).then_some(());
        wait::eventually("a scrape with a good token", scraped).await.unwrap();
        scene
    }

    /// The way to the API server is cut by this.
    fn door(&self, cutter: &Cutter, trust: Trust) -> Router {
        let server = server(self.cluster, cutter.around(&self.admin));
        routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, trust))
    }
}

async fn scrape(door: &Router, token: &str) -> u16 {
    let request = Request::get("/metrics").header("authorization", format!("Bearer {token}"));
    let answer = door.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    answer.status().as_u16()
}

#[tokio::test]
async fn a_scraper_is_reviewed_once_a_minute_and_a_stranger_each_time() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let scene = Scene::new(turn.cluster, "scrapes").await;
    let counter = Cutter::counting();
    let door = scene.door(&counter, Trust { fresh: Duration::from_secs(3600), ..Trust::default() });
    assert_eq!((scrape(&door, &scene.token).await, counter.calls()), (200, 2), "whose it is, and whether they may");
    assert_eq!((scrape(&door, &scene.token).await, counter.calls()), (200, 2));
    let stranger = token(&scene.admin, scene.namespace.name(), "stranger").await;
    assert_eq!((scrape(&door, &stranger).await, counter.calls()), (403, 4));
    assert_eq!((scrape(&door, &stranger).await, counter.calls()), (403, 6));
    assert_eq!((scrape(&door, "not-a-token").await, counter.calls()), (401, 7));
}

#[tokio::test]
async fn without_an_api_server_whoever_was_allowed_lately_still_is() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let scene = Scene::new(turn.cluster, "away").await;
    // The first two calls are those of the first scrape.
    let gone = Cutter::at(3, Cut::NotSent).then_gone();
    let door = scene.door(&gone, ASKING);
    assert_eq!((scrape(&door, &scene.token).await, gone.hit()), (200, false));
    for _ in 0..2 {
        assert_eq!((scrape(&door, &scene.token).await, gone.hit()), (200, true), "nobody can be asked");
    }
    assert_eq!(scrape(&door, "of somebody whom nobody knows").await, 503);
    let gone = Cutter::at(3, Cut::NotSent).then_gone();
    let door = scene.door(&gone, Trust { lasting: Duration::ZERO, ..ASKING });
    assert_eq!((scrape(&door, &scene.token).await, scrape(&door, &scene.token).await), (200, 503), "too long ago");
    for (cut, expected) in [(429, 200), (503, 200), (403, 503)] {
        let busy = Cutter::at(3, Cut::Status(cut));
        let door = scene.door(&busy, ASKING);
        assert_eq!((scrape(&door, &scene.token).await, busy.hit()), (200, false));
        assert_eq!((scrape(&door, &scene.token).await, busy.hit()), (expected, true), "a review answers {cut}");
    }
}

#[tokio::test]
async fn who_may_no_longer_scrape_is_not_let_in_when_the_api_server_goes() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let scene = Scene::new(turn.cluster, "ended").await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = away.clone();
    let breaks = move |_: &_| is_away.load(Ordering::SeqCst).then_some(Fate::Breaks);
    let server = server(scene.cluster, fated(&scene.admin, breaks));
    let door = routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, ASKING));
    assert_eq!(scrape(&door, &scene.token).await, 200);
    away.store(true, Ordering::SeqCst);
    assert_eq!(scrape(&door, &scene.token).await, 200);
    away.store(false, Ordering::SeqCst);
    scene.namespace.all::<ServiceAccount>().delete("scraper", &DeleteParams::default()).await.unwrap();
    let refused = async || (scrape(&door, &scene.token).await == 401).then_some(());
    wait::eventually("the token of an account that is gone is refused", refused).await.unwrap();
    away.store(true, Ordering::SeqCst);
    assert_eq!(scrape(&door, &scene.token).await, 503, "the last that was heard is a refusal");
}

/// Whoever floods us holds up strangers, and neither those who are known nor the word that one is not allowed any more.
#[tokio::test]
async fn reviews_that_hang_are_no_outage_and_hold_up_nobody_who_is_known() {
    let Some(turn) = turn(Flavour::Bare).await else { return };
    let scene = Scene::new(turn.cluster, "flood").await;
    let (hang, hung) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (hangs, count) = (hang.clone(), hung.clone());
    let fate = move |_: &_| {
        let hangs = hangs.load(Ordering::SeqCst);
        count.fetch_add(usize::from(hangs), Ordering::SeqCst);
        hangs.then_some(Fate::Hangs)
    };
    let server = server(scene.cluster, fated(&scene.admin, fate));
    let door = routes(Arc::new(Metrics::new(Timestamp::UNIX_EPOCH, |_| ()).0), Guard::Reviewed(server, ASKING));
    assert_eq!(scrape(&door, &scene.token).await, 200);
    let flood = async |token: &str, more: usize| {
        let all = hung.load(Ordering::SeqCst) + more;
        hang.store(true, Ordering::SeqCst);
        for _ in 0..more {
            let (door, token) = (door.clone(), token.to_owned());
            tokio::spawn(async move { scrape(&door, &token).await });
        }
        let held = async || (hung.load(Ordering::SeqCst) == all).then_some(());
        wait::eventually("reviews hang", held).await.unwrap();
        hang.store(false, Ordering::SeqCst);
    };
    flood("of nobody", AT_ONCE).await;
    assert_eq!(scrape(&door, "of somebody else").await, 503, "it is not their turn");
    assert_eq!(scrape(&door, &scene.token).await, 200);
    flood(&scene.token, KNOWN_AT_ONCE).await;
    assert_eq!(scrape(&door, &scene.token).await, 503, "nobody has said that the API server is away");
}
