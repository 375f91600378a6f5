//! Two candidates for one Lease on a real API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::json;
use steersman_runtime::client::Server;
use steersman_runtime::leader::{Election, LeaseThread, Lost, Timing};
use steersman_testkit::fault_injection::{RequestFault, inject_by_request};
use steersman_testkit::{Cluster, Flavour, Namespace, object, shared_cluster, wait};
use tokio_util::sync::CancellationToken;

/// Shorter than the defaults, and lease > deadline > retry as there. A stall of some seconds does not lose the Lease.
const TIMING: Timing =
    Timing { lease: Duration::from_secs(9), deadline: Duration::from_secs(6), retry: Duration::from_millis(200) };

async fn candidate(cluster: &Cluster, namespace: &Namespace, user: &str, identity: &str) -> Election {
    let client = cluster.user(user).await.unwrap();
    let server = Server::new(client, cluster.description().api_url.clone(), Duration::from_secs(5));
    Election::new(server, namespace.name(), "steersman", identity, TIMING)
}

/// A namespace in which `user` has the rights that a candidate needs for Leases, and no others.
async fn candidate_namespace(cluster: &Cluster, prefix: &str, user: &str) -> Namespace {
    let namespace = cluster.namespace(prefix).await.unwrap();
    let verbs = ["get", "list", "watch", "create", "update"];
    let rule = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs });
    let role: Role = object(json!({ "metadata": { "name": "candidate" }, "rules": [rule] }));
    namespace.api().create(&PostParams::default(), &role).await.unwrap();
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "candidate" });
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user });
    let binding: RoleBinding =
        object(json!({ "metadata": { "name": "candidate" }, "roleRef": reference, "subjects": [subject] }));
    namespace.api().create(&PostParams::default(), &binding).await.unwrap();
    namespace
}

async fn holder(namespace: &Namespace) -> (String, i32) {
    let spec = namespace.api::<Lease>().get("steersman").await.unwrap().spec.unwrap();
    (spec.holder_identity.unwrap(), spec.lease_transitions.unwrap())
}

#[tokio::test]
async fn released_lease_is_taken_at_once() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "handover", "replicas").await;
    let first = candidate(cluster, &namespace, "replicas", "first").await;
    let second = candidate(cluster, &namespace, "replicas", "second").await;
    let mut term = first.acquire().await;
    assert!(term.fence().is_open());
    assert_eq!(holder(&namespace).await, ("first".into(), 0));

    let next = tokio::spawn(async move { second.acquire().await });
    // The first leads while the second waits, for longer than the Lease lasts without renewals.
    let held = tokio::time::timeout(TIMING.lease + Duration::from_secs(1), term.hold()).await;
    assert!(held.is_err(), "a renewed Lease was lost: {held:?}");
    assert!(!next.is_finished(), "a renewed Lease was taken");

    let fence = term.fence();
    term.release().await;
    assert!(!fence.is_open());
    let second = next.await.unwrap();
    assert!(second.fence().is_open());
    assert_eq!(holder(&namespace).await, ("second".into(), 1));
}

#[tokio::test]
async fn lease_of_killed_leader_is_taken_after_expiry() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "vanished", "replicas").await;
    let gone = candidate(cluster, &namespace, "replicas", "gone").await.acquire().await;
    let taken = Instant::now();
    // The leader is killed: it neither releases nor renews the Lease.
    let fence = gone.fence();
    std::mem::forget(gone);
    let next = candidate(cluster, &namespace, "replicas", "next").await.acquire().await;
    assert!(taken.elapsed() >= TIMING.lease - Duration::from_millis(500), "the Lease was taken before it expired");
    assert!(!fence.is_open(), "a leader that resumes after that writes nothing");
    assert!(next.fence().is_open());
    assert_eq!(holder(&namespace).await, ("next".into(), 1));
}

/// The candidate's watches never report a change, as after etcd was restored from a backup.
#[tokio::test]
async fn silent_watch_does_not_keep_lease() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "silent", "replicas").await;
    let timing = Timing { lease: Duration::from_secs(3), deadline: Duration::from_secs(2), ..TIMING };
    let elect = |client: Client, identity: &str| {
        let server = Server::new(client, cluster.description().api_url.clone(), Duration::from_secs(5));
        Election::new(server, namespace.name(), "steersman", identity, timing)
    };
    let client = cluster.user("replicas").await.unwrap();
    let mut term = elect(client.clone(), "gone").acquire().await;
    let watches = Arc::new(AtomicUsize::new(0));
    let silent = inject_by_request(&client, {
        let watches = watches.clone();
        move |request: &Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            is_watch.then(|| watches.fetch_add(1, Ordering::SeqCst)).map(|_| RequestFault::NoResponse)
        }
    });
    let next = elect(silent, "next");
    let next = tokio::spawn(async move { next.acquire().await });
    let is_watching = async || (watches.load(Ordering::SeqCst) > 0).then_some(());
    wait::eventually("the candidate has listed the Lease", is_watching).await.unwrap();
    // A renewal that the candidate does not see; then the leader is killed.
    let renewed = tokio::time::timeout(timing.retry * 5, term.hold()).await;
    assert!(renewed.is_err(), "{renewed:?}");
    std::mem::forget(term);
    let next = tokio::time::timeout(wait::TIMEOUT, next).await.expect("the Lease is taken").unwrap();
    assert!(next.fence().is_open());
    assert_eq!(holder(&namespace).await, ("next".into(), 1));
}

#[tokio::test]
async fn leader_stops_when_its_lease_is_taken() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "taken", "replicas").await;
    let mut term = candidate(cluster, &namespace, "replicas", "first").await.acquire().await;
    let usurped = Patch::Merge(json!({ "spec": { "holderIdentity": "usurper" } }));
    namespace.api::<Lease>().patch("steersman", &PatchParams::default(), &usurped).await.unwrap();
    let lost = term.hold().await;
    assert!(matches!(&lost, Lost::Taken(who) if who == "usurper"), "{lost}");
    assert!(!term.fence().is_open());
}

#[tokio::test]
async fn leader_that_cannot_renew_stops_in_time() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "cut-off", "cut-off").await;
    let mut term = candidate(cluster, &namespace, "cut-off", "first").await.acquire().await;
    namespace.api::<RoleBinding>().delete("candidate", &DeleteParams::default()).await.unwrap();
    let lost = term.hold().await;
    assert!(lost.to_string().starts_with("the Lease could not be renewed for 6 s"), "{lost}");

    // The client of this term refuses writes, although its user has the right.
    let admin = cluster.admin().await.unwrap();
    let config_map: ConfigMap = object(json!({ "metadata": { "name": "late" } }));
    let refused = namespace
        .api_as::<ConfigMap>(&term.fence().around(&admin))
        .create(&PostParams::default(), &config_map)
        .await
        .unwrap_err();
    assert!(format!("{refused:?}").contains("NotLeading"), "{refused:?}");
    namespace.api_as::<ConfigMap>(&admin).create(&PostParams::default(), &config_map).await.unwrap();
}

/// A label that a user adds changes the resource version between two renewals.
#[tokio::test]
async fn leader_keeps_an_edited_lease() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "edited", "replicas").await;
    let mut term = candidate(cluster, &namespace, "replicas", "first").await.acquire().await;
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { "team": "a" } } }));
    namespace.api::<Lease>().patch("steersman", &PatchParams::default(), &labelled).await.unwrap();
    let held = tokio::time::timeout(TIMING.lease + Duration::from_secs(1), term.hold()).await;
    assert!(held.is_err(), "{held:?}");
    let lease = namespace.api::<Lease>().get("steersman").await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["team"], "a", "the label stays");
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("first"));
}

/// Starts an election on its own thread, which also opens the connection.
async fn lease_thread(namespace: &Namespace, identity: &str, stop: &CancellationToken, grace: Duration) -> LeaseThread {
    let (name, identity) = (namespace.name().to_owned(), identity.to_owned());
    let connect = async move || {
        let Some(cluster) = shared_cluster(Flavour::Bare).await else { return Err("the cluster is gone") };
        let server = Server::new(
            cluster.user("replicas").await.map_err(|_| "no client")?,
            cluster.description().api_url.clone(),
            Duration::from_secs(5),
        );
        Ok(Election::new(server, &name, "steersman", &identity, TIMING))
    };
    LeaseThread::spawn(connect, stop.clone(), grace).await.unwrap().unwrap()
}

#[tokio::test]
async fn blocked_worker_thread_costs_no_renewal() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "blocked", "replicas").await;
    let stop = CancellationToken::new();
    let mut leader = lease_thread(&namespace, "first", &stop, Duration::from_secs(60)).await;
    let fence = leader.acquired().await.unwrap();
    // The only thread of this runtime does nothing at all, for longer than the Lease lasts without a renewal.
    std::thread::sleep(TIMING.lease + Duration::from_secs(2));
    assert!(fence.is_open());
    assert_eq!(holder(&namespace).await, ("first".into(), 0));
    let lost = tokio::time::timeout(Duration::from_millis(100), leader.lost()).await;
    assert!(lost.is_err(), "it still leads");
    leader.release().await;
    assert!(!fence.is_open());
    assert_eq!(holder(&namespace).await.0, "");
}

#[tokio::test]
async fn lease_is_released_when_controllers_hang() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = candidate_namespace(cluster, "hanging", "replicas").await;
    let stop = CancellationToken::new();
    let mut leader = lease_thread(&namespace, "first", &stop, Duration::from_secs(1)).await;
    let fence = leader.acquired().await.unwrap();
    stop.cancel();
    // The controllers never report that they have stopped.
    leader.lost().await;
    assert!(!fence.is_open(), "controllers that still run can write nothing");
    assert_eq!(holder(&namespace).await.0, "", "the next replica need not wait");
    assert!(leader.acquired().await.is_none(), "the thread has ended");
}

#[tokio::test]
async fn failed_connection_is_reported_by_spawn() {
    let connect = async || Err::<Election, _>("no way to the API server");
    let started = LeaseThread::spawn(connect, CancellationToken::new(), Duration::ZERO).await.unwrap();
    assert_eq!(started.err(), Some("no way to the API server"));
}
