//! Direct scraping of pods that Prometheus does not know.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{FleetPod, Prometheus, ScrapeConfig};
use steersman_plan::variant::ModelMetrics;
use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_reconcile::Lookup;
use steersman_testkit::FakePodMetrics;
use steersman_testkit::prometheus::ClientAuth;

use super::{TestEnv, failure, model_query, pod, ready_pod, until, vllm};

/// A Prometheus that refuses connections.
const UNREACHABLE_PROMETHEUS: &str = "https://127.0.0.1:1";

fn scraping_client(url: &str, port: u16) -> Prometheus {
    let settings = Settings { base_url: url.to_owned(), insecure_skip_verify: true, ..Settings::default() };
    let timeout = Duration::from_secs(60);
    // No server listens at the first port.
    let scraping = ScrapeConfig { ports: vec![1, port], answer: timeout, limit: timeout, ..ScrapeConfig::default() };
    Prometheus::new(&settings).unwrap().scraping(Some(scraping)).unwrap()
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
    let one = FakePodMetrics::start_at("127.0.0.2:0").await.unwrap();
    let port = one.address().port();
    one.set("a", "one", vllm("0.5", "3", 10));
    let pods =
        [pod_at("a", "one", "127.0.0.2"), pod_at("a", "unready", "127.0.0.2"), pod_at("b", "other", "127.0.0.2")];
    let mut pods = pods.to_vec();
    pods[1].ready = false;
    pods.extend([pod_at("a", "silent", "127.0.0.9"), ready_pod("a", "nowhere"), pod_at("a", "odd", "not an address")]);
    let observed = query_model(&scraping_client(UNREACHABLE_PROMETHEUS, port), &pods, Timestamp::now()).await;
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
    let server = FakePodMetrics::start_at("127.0.0.2:0").await.unwrap();
    server.set("a", "any", vllm("0.9", "9", 10));
    let pods = [pod_at("a", "known", "127.0.0.2"), pod_at("a", "new", "127.0.0.2")];
    let observed =
        query_model(&scraping_client(&env.prometheus.url(), server.address().port()), &pods, Timestamp::now()).await;
    assert_eq!(pod(&observed, "known").and_then(|pod| pod.kv), Some(0.5));
    assert_eq!(pod(&observed, "new").and_then(|pod| pod.kv), Some(0.9));
    assert_eq!(observed.requests, Lookup::Known(10.0));
}

/// A model is not idle if some of its pods are not scraped by Prometheus.
#[tokio::test]
async fn zero_requests_are_unknown_with_missing_pods() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "idle", &vllm("0", "0", 0));
    let idle = [pod_at("a", "idle", "127.0.0.9")];
    until(&env.client(), "a", &idle, "no requests", |observed| observed.requests == Lookup::Known(0.0)).await;
    let server = FakePodMetrics::start_at("127.0.0.2:0").await.unwrap();
    server.set("a", "any", vllm("0", "0", 10));
    let client = scraping_client(&env.prometheus.url(), server.address().port());
    let alone = query_model(&client, &idle, Timestamp::now()).await;
    assert_eq!(alone.requests, Lookup::Known(0.0), "Prometheus has all pods");
    let pods = [idle[0].clone(), pod_at("a", "unheard", "127.0.0.2")];
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
    let server = FakePodMetrics::start_at("127.0.0.2:0").await.unwrap();
    server.set("a", "any", vllm("0.9", "9", 10));
    let now = Timestamp::now();
    let pods = [FleetPod { started: Some(now + SignedDuration::from_mins(10)), ..pod_at("a", "new", "127.0.0.2") }];
    let observed = query_model(&scraping_client(&env.prometheus.url(), server.address().port()), &pods, now).await;
    assert_eq!(pod(&observed, "new").and_then(|pod| pod.kv), Some(0.9), "{observed:?}");
}

#[tokio::test]
async fn failed_scrapes_pause_for_one_minute() {
    let server = FakePodMetrics::start_at("127.0.0.2:0").await.unwrap();
    let pods = [pod_at("a", "one", "127.0.0.2")];
    let (client, now) = (scraping_client(UNREACHABLE_PROMETHEUS, server.address().port()), Timestamp::now());
    failure(&query_model(&client, &pods, now).await);
    server.set("a", "one", vllm("0.5", "3", 10));
    failure(&query_model(&client, &pods, now + SignedDuration::from_secs(59)).await);
    let later = query_model(&client, &pods, now + SignedDuration::from_secs(60)).await;
    assert!(pod(&later, "one").is_some(), "{later:?}");
}
