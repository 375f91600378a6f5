//! `steersman run` as processes on a real API server, with the operator's account and exactly the shipped rights.

pub mod operator;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use rustix::process::Signal;
use serde_json::json;
use steersman_testkit::{Flavour, exclusive_cluster, object, ports::ReservedPort};

use operator::{OperatorProcess, TestInstallation};

/// Starts an operator and waits until it is ready and waits for the Lease.
pub async fn start_standby(installation: &TestInstallation, identity: &str) -> OperatorProcess {
    let operator = installation.start(identity, &[]).await;
    operator.wait_for_log("waiting for the lease").await;
    operator.until_answer("/readyz", 200).await;
    operator
}

#[tokio::test]
async fn leadership_passes_between_processes() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;

    let mut first = installation.start("first", &[]).await;
    installation.until_led_by("first").await;
    let mut second = start_standby(&installation, "second").await;
    first.until_metric("leader_election_master_status{name=\"steersman\"} 1").await;
    second.until_metric("leader_election_master_status{name=\"steersman\"} 0").await;

    let start = Instant::now();
    first.signal(Signal::TERM);
    installation.until_led_by("second").await;
    println!("hand-over on SIGTERM: {:?}", start.elapsed());
    assert_eq!(first.exit_code().await, Some(0));
    assert!(first.has_logged("released the lease") && first.has_logged("stopped"), "{}", first.log());
    assert_eq!(installation.transitions().await, 1, "only the acquisition after a release counts as a transition");
    second.until_metric("leader_election_master_status{name=\"steersman\"} 1").await;

    let third = start_standby(&installation, "third").await;
    let killed = Instant::now();
    second.signal(Signal::KILL);
    installation.until_led_by("third").await;
    println!("hand-over on SIGKILL: {:?}", killed.elapsed());
    assert_eq!(second.exit_code().await, None);

    let mut fourth = start_standby(&installation, "fourth").await;
    let paused = Instant::now();
    third.signal(Signal::STOP);
    installation.until_led_by("fourth").await;
    println!("hand-over from a paused leader: {:?}", paused.elapsed());
    third.signal(Signal::CONT);
    third.wait_for_log("lost the lease: standing by").await;
    third.until_metric("leader_election_master_status{name=\"steersman\"} 0").await;
    third.until_answer("/readyz", 200).await;
    assert_eq!(installation.holder().await, "fourth", "a resumed leader does not take the Lease back");
    fourth.signal(Signal::INT);
    installation.until_led_by("third").await;
    assert_eq!(fourth.exit_code().await, Some(0));

    for operator in [&first, &second, &third, &fourth] {
        operator.assert_log_is_json();
    }
}

#[tokio::test]
async fn servers_answer_only_their_own_paths() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;
    let operator = installation.start("alone", &["--log-level", "debug"]).await;
    operator.until_answer("/readyz", 200).await;
    assert_eq!(operator.health("/readyz").await.unwrap(), (200, "ok\n".to_owned()));
    assert_eq!(operator.health("/healthz").await.unwrap(), (200, "ok\n".to_owned()));
    let missing = "not found: this server has /healthz and /readyz\n";
    assert_eq!(operator.health("/metrics").await.unwrap(), (404, missing.to_owned()));
    let (status, text) = operator.metrics("/metrics", None).await.unwrap();
    assert_eq!(status, 200);
    for line in ["# TYPE process_start_time_seconds gauge\n", "steersman_build_info{version=\"", "\n# EOF\n"] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(operator.metrics("/debug", None).await.unwrap().0, 404);
    operator.assert_log_is_json();
}

/// Container runtimes start programs with a soft limit of 1,024 files, fewer than the connections of one server.
#[tokio::test]
async fn operator_raises_its_limit_of_open_files() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("limited");
    let script = format!("#!/bin/sh\nulimit -Sn 512\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_steersman"));
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let operator = OperatorProcess::without_api_server_as(&program, "https://127.0.0.1:1", &[]);
    operator.wait_for_log("listening").await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", operator.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard] = files.split_whitespace().take(2).collect::<Vec<_>>()[..] else { panic!("{limits}") };
    assert!(soft == hard && soft != "512", "{limits}");
}

#[tokio::test]
async fn metrics_off_loopback_need_authorization() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;
    let namespace = cluster.namespace("scrape").await.unwrap();
    for name in ["scraper", "outsider"] {
        let account: ServiceAccount = object(json!({ "metadata": { "name": name } }));
        namespace.api().create(&PostParams::default(), &account).await.unwrap();
    }
    let admin = cluster.admin().await.unwrap();
    let name = namespace.name();
    let rule = json!({ "nonResourceURLs": ["/metrics"], "verbs": ["get"] });
    let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": [rule] }));
    Api::all(admin.clone()).create(&PostParams::default(), &role).await.unwrap();
    let subject = json!({ "kind": "ServiceAccount", "name": "scraper", "namespace": name });
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let binding: ClusterRoleBinding =
        object(json!({ "metadata": { "name": name }, "roleRef": reference, "subjects": [subject] }));
    Api::all(admin.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let scraper = operator::token(&admin, name, "scraper").await;
    let outsider = operator::token(&admin, name, "outsider").await;

    let operator = installation.start("guarded", &["--metrics-address", "0.0.0.0:0"]).await;
    operator.until_scraped_with(&scraper).await;
    let (status, body) = operator.metrics("/metrics", None).await.unwrap();
    assert_eq!(
        (status, body.as_str()),
        (401, "no valid token; send one that the cluster accepts as the header Authorization: Bearer TOKEN\n")
    );
    assert_eq!(operator.metrics("/metrics", Some("not-a-token")).await.unwrap().0, 401);
    let (status, body) = operator.metrics("/metrics", Some(&outsider)).await.unwrap();
    assert_eq!(status, 403);
    let denial = format!("system:serviceaccount:{name}:outsider may not get the nonResourceURL /metrics");
    assert!(body.starts_with(&denial), "{body}");
    operator.assert_log_is_json();
    for token in [&scraper, &outsider] {
        assert!(!operator.log().contains(token.as_str()), "a token is in the log");
    }
}

/// The operator retries and reports what it waits for. It neither ends nor becomes ready.
#[tokio::test]
async fn unreachable_api_server_means_alive_not_ready() {
    let port = ReservedPort::any_free().unwrap();
    let mut operator = OperatorProcess::without_api_server(&format!("https://127.0.0.1:{}", port.number()));
    operator.until_answer("/healthz", 200).await;
    let (status, body) = operator.health("/readyz").await.unwrap();
    assert_eq!((status, body.as_str()), (503, "waiting for a response of the API server\n"));
    operator.wait_for_log("the API server does not respond; retrying every 2 s").await;
    let start = Instant::now();
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    println!("stopped after {:?}", start.elapsed());
    operator.assert_log_is_json();
}

#[tokio::test]
async fn taken_address_fails_in_one_sentence() {
    let port = ReservedPort::any_free().unwrap();
    let taken = format!("127.0.0.1:{}", port.number());
    let mut operator = OperatorProcess::without_api_server_with("https://127.0.0.1:1", &["--health-address", &taken]);
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), operator.exit_code()).await.unwrap(), Some(1));
    let sentence = format!("steersman: the health server cannot listen on {taken}: ");
    assert!(operator.stderr().starts_with(&sentence), "{}", operator.stderr());
    assert!(operator.stderr().ends_with("choose another address with --health-address\n"));
}
