//! Pods that are asked themselves, as Prometheus does not know them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{FleetPod, Prometheus, ScrapeConfig};
use steersman_plan::variant::ModelMetrics;
use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_reconcile::Lookup;
use steersman_testkit::Pods;
use steersman_testkit::prometheus::Door;

use super::{Scene, asked, failure, place, pod, until, vllm};

/// Nobody listens there.
const NOWHERE: &str = "https://127.0.0.1:1";

fn way(url: &str, port: u16) -> Prometheus {
    let settings = Settings { base_url: url.to_owned(), insecure_skip_verify: true, ..Settings::default() };
    let patient = Duration::from_secs(60);
    // The first port is one where nobody listens.
    let scraping = ScrapeConfig { ports: vec![1, port], answer: patient, limit: patient, ..ScrapeConfig::default() };
    Prometheus::new(&settings).unwrap().scraping(Some(scraping)).unwrap()
}

fn at(namespace: &str, name: &str, ip: &str) -> FleetPod {
    FleetPod { ip: ip.parse().ok(), ..place(namespace, name) }
}

async fn look(way: &Prometheus, pods: &[FleetPod], now: Timestamp) -> ModelMetrics {
    let model = asked("a", super::MODEL);
    way.query(std::slice::from_ref(&model), pods, now).await.remove(&model.key).unwrap()
}

#[tokio::test]
async fn pods_speak_for_themselves_where_prometheus_does_not_answer() {
    let one = Pods::start_at("127.0.0.2:0").await.unwrap();
    let port = one.address().port();
    one.say("a", "one", vllm("0.5", "3", 10));
    let pods = [at("a", "one", "127.0.0.2"), at("a", "unready", "127.0.0.2"), at("b", "other", "127.0.0.2")];
    let mut pods = pods.to_vec();
    pods[1].ready = false;
    pods.extend([at("a", "silent", "127.0.0.9"), place("a", "nowhere"), at("a", "odd", "not an address")]);
    let seen = look(&way(NOWHERE, port), &pods, Timestamp::now()).await;
    let names: Vec<_> = seen.pods.iter().flatten().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["one"]);
    let one = pod(&seen, "one").unwrap();
    assert_eq!((one.kv, one.queue, one.total_kv), (Some(0.5), Some(3.0), Some(16_000)));
    assert_eq!((one.input, one.output, one.hit_rate), (Some(200.0), Some(100.0), Some(0.25)));
    let Lookup::Unknown(why) = &seen.requests else { panic!("a pod does not know when it was asked: {seen:?}") };
    assert!(why.contains("refuses connections"), "{why}");
    assert!(matches!(seen.queue, Lookup::Unknown(_)));
}

#[tokio::test]
async fn only_pods_that_prometheus_does_not_know_are_asked() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "known", &vllm("0.5", "3", 10));
    let known = [place("a", "known")];
    until(&scene.way(), "a", &known, "the pod", |seen| pod(seen, "known").is_some()).await;
    let server = Pods::start_at("127.0.0.2:0").await.unwrap();
    server.say("a", "any", vllm("0.9", "9", 10));
    let pods = [at("a", "known", "127.0.0.2"), at("a", "new", "127.0.0.2")];
    let seen = look(&way(&scene.prometheus.url(), server.address().port()), &pods, Timestamp::now()).await;
    assert_eq!(pod(&seen, "known").and_then(|pod| pod.kv), Some(0.5));
    assert_eq!(pod(&seen, "new").and_then(|pod| pod.kv), Some(0.9));
    assert_eq!(seen.requests, Lookup::Known(10.0));
}

/// Whose pods serve where Prometheus does not look is not idle.
#[tokio::test]
async fn no_requests_in_prometheus_are_not_none_where_it_does_not_have_all_pods() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "idle", &vllm("0", "0", 0));
    let idle = [at("a", "idle", "127.0.0.9")];
    until(&scene.way(), "a", &idle, "no requests", |seen| seen.requests == Lookup::Known(0.0)).await;
    let server = Pods::start_at("127.0.0.2:0").await.unwrap();
    server.say("a", "any", vllm("0", "0", 10));
    let way = way(&scene.prometheus.url(), server.address().port());
    let alone = look(&way, &idle, Timestamp::now()).await;
    assert_eq!(alone.requests, Lookup::Known(0.0), "all its pods are in Prometheus");
    let pods = [idle[0].clone(), at("a", "unheard", "127.0.0.2")];
    let seen = look(&way, &pods, Timestamp::now()).await;
    assert_eq!(seen.pods.as_ref().map(Vec::len), Ok(2), "{seen:?}");
    let Lookup::Unknown(why) = &seen.requests else { panic!("who served ten requests is not idle: {seen:?}") };
    assert!(why.starts_with("Prometheus does not scrape pod unheard, so its requests are not counted; "), "{why}");
}

#[tokio::test]
async fn a_pod_is_heard_though_by_our_clock_it_has_not_started_yet() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    // Of an earlier pod of this name, or so it seems.
    scene.play("a", "new", &vllm("0.5", "3", 10));
    let named = [place("a", "new")];
    until(&scene.way(), "a", &named, "the pod", |seen| pod(seen, "new").is_some()).await;
    let server = Pods::start_at("127.0.0.2:0").await.unwrap();
    server.say("a", "any", vllm("0.9", "9", 10));
    let now = Timestamp::now();
    let pods = [FleetPod { started: Some(now + SignedDuration::from_mins(10)), ..at("a", "new", "127.0.0.2") }];
    let seen = look(&way(&scene.prometheus.url(), server.address().port()), &pods, now).await;
    assert_eq!(pod(&seen, "new").and_then(|pod| pod.kv), Some(0.9), "{seen:?}");
}

#[tokio::test]
async fn where_no_pod_answers_none_is_asked_again_for_a_while() {
    let server = Pods::start_at("127.0.0.2:0").await.unwrap();
    let pods = [at("a", "one", "127.0.0.2")];
    let (way, now) = (way(NOWHERE, server.address().port()), Timestamp::now());
    failure(&look(&way, &pods, now).await);
    server.say("a", "one", vllm("0.5", "3", 10));
    failure(&look(&way, &pods, now + SignedDuration::from_secs(59)).await);
    let later = look(&way, &pods, now + SignedDuration::from_secs(60)).await;
    assert!(pod(&later, "one").is_some(), "{later:?}");
}
