//! Direct scraping of pods that Prometheus does not know.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{FleetPod, Prometheus, ScrapeConfig};
use steersman_plan::variant::ModelMetrics;
use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_reconcile::Lookup;
use steersman_runtime::http::Inside;
use steersman_testkit::prometheus::ClientAuth;

use super::{TestEnv, failure, model_query, pod, ready_pod, until, vllm};
use crate::servers::fake::{Behaviour, FakeServers};

/// A Prometheus that refuses connections.
const UNREACHABLE_PROMETHEUS: &str = "https://127.0.0.1:1";

/// Address of the pod that serves metrics, and of one that does not answer.
const SERVING: &str = "10.7.0.2";
const SILENT: &str = "10.7.0.9";

/// A client that reaches the pods through a gateway.
fn scraping_client(url: &str, pods: &FakeServers) -> Prometheus {
    let settings = Settings { base_url: url.to_owned(), insecure_skip_verify: true, ..Settings::default() };
    let timeout = Duration::from_secs(60);
    let inside = Inside { through: Some(pods.address.to_string().parse().unwrap()) };
    // No server listens at the first port.
    let ports = vec![1, 8000];
    let scraping = ScrapeConfig { ports, answer: timeout, limit: timeout, inside, ..ScrapeConfig::default() };
    Prometheus::new(&settings).unwrap().scraping(Some(scraping)).unwrap()
}

fn serve(pods: &FakeServers, text: impl Into<String>) {
    pods.set(&format!("{SERVING}:8000"), Behaviour::Override("/metrics", 200, text.into()));
}

fn pod_at(namespace: &str, name: &str, ip: &str) -> FleetPod {
    FleetPod { ip: ip.parse().ok(), ..ready_pod(namespace, name) }
}

async fn query_model(client: &Prometheus, pods: &[FleetPod], now: Timestamp) -> ModelMetrics {
    let model = model_query("a", super::MODEL);
    client.query(std::slice::from_ref(&model), pods, now).await.remove(&model.key).unwrap()
}

#[tokio::test]
async fn pods_are_scraped_when_prometheus_fails() {
    let server = FakeServers::start().await;
    serve(&server, vllm("0.5", "3", 10));
    let pods = [pod_at("a", "one", SERVING), pod_at("a", "unready", SERVING), pod_at("b", "other", SERVING)];
    let mut pods = pods.to_vec();
    pods[1].ready = false;
    pods.extend([pod_at("a", "silent", SILENT), ready_pod("a", "nowhere"), pod_at("a", "odd", "not an address")]);
    let observed = query_model(&scraping_client(UNREACHABLE_PROMETHEUS, &server), &pods, Timestamp::now()).await;
    let names: Vec<_> = observed.pods.iter().flatten().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["one"]);
    let one = pod(&observed, "one").unwrap();
    assert_eq!((one.kv, one.queue, one.total_kv), (Some(0.5), Some(3.0), Some(16_000)));
    assert_eq!((one.input, one.output, one.hit_rate), (Some(200.0), Some(100.0), Some(0.25)));
    let Lookup::Unknown(why) = &observed.requests else {
        panic!("a scraped counter does not tell when its requests arrived: {observed:?}")
    };
    assert!(why.contains("refuses connections"), "{why}");
    assert!(matches!(observed.queue, Lookup::Unknown(_)));
}

#[tokio::test]
async fn only_pods_unknown_to_prometheus_are_scraped() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "known", &vllm("0.5", "3", 10));
    let known = [ready_pod("a", "known")];
    until(&env.client(), "a", &known, "the pod", |observed| pod(observed, "known").is_some()).await;
    let server = FakeServers::start().await;
    serve(&server, vllm("0.9", "9", 10));
    let pods = [pod_at("a", "known", SERVING), pod_at("a", "new", SERVING)];
    let observed = query_model(&scraping_client(&env.prometheus.url(), &server), &pods, Timestamp::now()).await;
    assert_eq!(pod(&observed, "known").and_then(|pod| pod.kv), Some(0.5));
    assert_eq!(pod(&observed, "new").and_then(|pod| pod.kv), Some(0.9));
    assert_eq!(observed.requests, Lookup::Known(10.0));
}

/// A model is not idle if some of its pods are not scraped by Prometheus.
#[tokio::test]
async fn zero_requests_are_unknown_with_missing_pods() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "idle", &vllm("0", "0", 0));
    let idle = [pod_at("a", "idle", SILENT)];
    until(&env.client(), "a", &idle, "no requests", |observed| observed.requests == Lookup::Known(0.0)).await;
    let server = FakeServers::start().await;
    serve(&server, vllm("0", "0", 10));
    let client = scraping_client(&env.prometheus.url(), &server);
    let alone = query_model(&client, &idle, Timestamp::now()).await;
    assert_eq!(alone.requests, Lookup::Known(0.0), "Prometheus has all pods");
    let pods = [idle[0].clone(), pod_at("a", "unheard", SERVING)];
    let observed = query_model(&client, &pods, Timestamp::now()).await;
    assert_eq!(observed.pods.as_ref().map(Vec::len), Ok(2), "{observed:?}");
    let Lookup::Unknown(why) = &observed.requests else {
        panic!("a model with ten served requests is not idle: {observed:?}")
    };
    assert!(why.starts_with("Prometheus does not scrape pod unheard, so its requests are not counted; "), "{why}");
}

#[tokio::test]
async fn pod_with_future_start_is_scraped() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    // The samples seem to belong to an earlier pod with this name.
    env.serve_and_scrape("a", "new", &vllm("0.5", "3", 10));
    let named = [ready_pod("a", "new")];
    until(&env.client(), "a", &named, "the pod", |observed| pod(observed, "new").is_some()).await;
    let server = FakeServers::start().await;
    serve(&server, vllm("0.9", "9", 10));
    let now = Timestamp::now();
    let pods = [FleetPod { started: Some(now + SignedDuration::from_mins(10)), ..pod_at("a", "new", SERVING) }];
    let observed = query_model(&scraping_client(&env.prometheus.url(), &server), &pods, now).await;
    assert_eq!(pod(&observed, "new").and_then(|pod| pod.kv), Some(0.9), "{observed:?}");
}

#[tokio::test]
async fn failed_scrapes_pause_for_one_minute() {
    let server = FakeServers::start().await;
    let pods = [pod_at("a", "one", SERVING)];
    let (client, now) = (scraping_client(UNREACHABLE_PROMETHEUS, &server), Timestamp::now());
    failure(&query_model(&client, &pods, now).await);
    serve(&server, vllm("0.5", "3", 10));
    failure(&query_model(&client, &pods, now + SignedDuration::from_secs(59)).await);
    let later = query_model(&client, &pods, now + SignedDuration::from_secs(60)).await;
    assert!(pod(&later, "one").is_some(), "{later:?}");
}

/// A tenant with many pods that do not answer does not use up the time of all scrapes.
#[tokio::test]
async fn silent_pods_leave_time_for_other_namespaces() {
    let server = FakeServers::start().await;
    serve(&server, vllm("0.5", "3", 10));
    server.set(&format!("{SILENT}:8000"), Behaviour::Hangs);
    let mut pods: Vec<FleetPod> = (0..1_000).map(|number| pod_at("a", &number.to_string(), SILENT)).collect();
    pods.push(pod_at("b", "one", SERVING));
    let inside = Inside { through: Some(server.address.to_string().parse().unwrap()) };
    let scraping = ScrapeConfig { inside, ..ScrapeConfig::default() };
    let settings = Settings { base_url: UNREACHABLE_PROMETHEUS.to_owned(), ..Settings::default() };
    let client = Prometheus::new(&settings).unwrap().scraping(Some(scraping)).unwrap();
    let models = [model_query("a", super::MODEL), model_query("b", super::MODEL)];
    let observed = client.query(&models, &pods, Timestamp::now()).await;
    assert!(pod(&observed[&models[1].key], "one").is_some(), "{observed:?}");
    failure(&observed[&models[0].key]);
}

/// Whoever may write the status of a pod chooses its address.
#[tokio::test]
async fn local_pod_addresses_are_not_scraped() {
    let server = FakeServers::start().await;
    serve(&server, vllm("0.5", "3", 10));
    let addresses = ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00:ec2::254", "100.100.100.200"];
    let mut pods: Vec<FleetPod> = addresses.iter().map(|address| pod_at("a", address, address)).collect();
    pods.push(pod_at("a", "one", SERVING));
    let observed = query_model(&scraping_client(UNREACHABLE_PROMETHEUS, &server), &pods, Timestamp::now()).await;
    let names: Vec<_> = observed.pods.iter().flatten().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["one"]);
    let hosts: Vec<String> = server.take_requests().into_iter().map(|request| request.host).collect();
    assert!(hosts.iter().all(|host| host.starts_with(SERVING)), "{hosts:?}");
}

#[tokio::test]
async fn pod_with_too_many_samples_is_ignored() {
    let server = FakeServers::start().await;
    let pods = [pod_at("a", "one", SERVING)];
    let good = vllm("0.5", "3", 10);
    let engines: String = (0..600)
        .map(|engine| format!("vllm:num_requests_waiting{{engine=\"{engine}\",model_name=\"m\"}} 1\n"))
        .collect();
    for excess in [engines, "#\n".repeat(70_000), format!("# {}\n", "x".repeat(9 << 20))] {
        serve(&server, format!("{good}{excess}"));
        failure(&query_model(&scraping_client(UNREACHABLE_PROMETHEUS, &server), &pods, Timestamp::now()).await);
    }
    serve(&server, format!("{good}{}", "other 1\n".repeat(60_000)));
    let observed = query_model(&scraping_client(UNREACHABLE_PROMETHEUS, &server), &pods, Timestamp::now()).await;
    assert!(pod(&observed, "one").is_some(), "other metrics do not count as samples: {observed:?}");
}
