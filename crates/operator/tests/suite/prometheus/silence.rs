//! Metrics that end: of pods that are gone, fall silent or stand still, and of Prometheus itself.

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::MetricsError;
use steersman_reconcile::Lookup;
use steersman_testkit::prometheus::Door;
use steersman_testkit::{Pods, wait};

use super::{Scene, failure, look, place, pod, until, vllm};

#[tokio::test]
async fn metrics_of_pods_that_are_gone_or_new_are_not_made_up() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "lives", &vllm("0.5", "3", 0));
    scene.play("a", "gone", &vllm("0.9", "9", 0));
    let both = [place("a", "lives"), place("a", "gone")];
    let way = scene.way();
    until(&way, "a", &both, "both", |seen| pod(seen, "lives").is_some() && pod(seen, "gone").is_some()).await;
    let seen = look(&way, "a", &[place("a", "lives"), place("a", "new")]).await;
    let names: Vec<_> = seen.pods.iter().flatten().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["lives"]);
    assert_eq!(look(&way, "a", &[place("a", "new")]).await.pods, Err(MetricsError::NotFound));
}

/// Its newest measurement is marked as the last one.
async fn until_ended(scene: &Scene) {
    let ended = async || {
        let newest = scene.prometheus.query("vllm:kv_cache_usage_perc").await.unwrap();
        newest.as_array().is_some_and(Vec::is_empty).then_some(())
    };
    wait::eventually("the end of the series", ended).await.unwrap();
}

#[tokio::test]
async fn one_failed_scrape_is_no_reason_to_know_nothing() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let (way, pods) = (scene.way(), [place("a", "one")]);
    let known = async || {
        scene.play("a", "one", &vllm("0.9", "9", 0));
        until(&way, "a", &pods, "the pod", |seen| pod(seen, "one").is_some()).await;
        scene.pods.silence("a", "one");
        until_ended(&scene).await;
        // On a machine that stands still for a minute, the minute is over.
        pod(&look(&way, "a", &pods).await, "one").is_some().then_some(())
    };
    wait::eventually("the pod is known after its series has ended", known).await.unwrap();
}

#[tokio::test]
async fn a_pod_does_not_inherit_the_metrics_of_an_earlier_one_with_its_name() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let mut labels = Pods::labels("a", "web-0");
    labels["instance"] = "10.0.0.1:8000".into();
    scene.pods.say("a", "web-0", vllm("0.9", "9", 0));
    scene.scrape("web", &labels);
    let (way, mut pods) = (scene.way(), [place("a", "web-0")]);
    pods[0].ip = "10.0.0.1".parse().ok();
    until(&way, "a", &pods, "the first pod", |seen| pod(seen, "web-0").is_some()).await;
    scene.prometheus.forget("web").unwrap();
    until_ended(&scene).await;
    // The next one with this name has another address and began now; the last minute of the first is still on record.
    pods[0].ip = "10.0.0.2".parse().ok();
    pods[0].started = Some(Timestamp::now() + SignedDuration::from_mins(1));
    assert_eq!(look(&way, "a", &pods).await.pods, Err(MetricsError::NotFound));
    labels["instance"] = "10.0.0.2:8000".into();
    scene.pods.say("a", "web-0", vllm("0.1", "0", 0));
    scene.scrape("web", &labels);
    pods[0].started = None;
    let seen = until(&way, "a", &pods, "the next pod", |seen| pod(seen, "web-0").is_some()).await;
    assert_eq!(pod(&seen, "web-0").and_then(|pod| pod.kv), Some(0.1));
}

#[tokio::test]
async fn metrics_that_stand_still_are_stale_with_their_age() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let measured = Timestamp::now() - SignedDuration::from_mins(12);
    let model = super::model();
    let old =
        |name: &str, value: &str| format!("{name}{{model_name=\"{model}\"}} {value} {}\n", measured.as_millisecond());
    let text = old("vllm:kv_cache_usage_perc", "0.5") + &old("vllm:num_requests_waiting", "0");
    scene.play("a", "still", &text);
    let (way, pods) = (scene.way(), [place("a", "still")]);
    let seen = until(&way, "a", &pods, "an age", |seen| matches!(seen.pods, Err(MetricsError::Stale(_)))).await;
    let Err(MetricsError::Stale(age)) = &seen.pods else { unreachable!("waited for it") };
    assert!(age.starts_with("12m") && age.ends_with('s'), "{age}");
    // Of a pod that began later, it was never a metric.
    let mut later = pods.clone();
    later[0].started = Some(Timestamp::now() - SignedDuration::from_mins(1));
    assert_eq!(look(&way, "a", &later).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn an_outage_of_prometheus_is_told_and_ends_with_it() {
    let Some(mut scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "one", &vllm("0.5", "3", 5));
    let (way, pods) = (scene.way(), [place("a", "one")]);
    until(&way, "a", &pods, "the pod", |seen| pod(seen, "one").is_some()).await;
    scene.prometheus.stop();
    let seen = look(&way, "a", &pods).await;
    let cause = failure(&seen).to_owned();
    let address = scene.prometheus.address();
    assert_eq!(
        cause,
        format!("{address} refuses connections; check that Prometheus runs and that PROMETHEUS_BASE_URL is right")
    );
    assert_eq!((seen.requests, seen.queue), (Lookup::Unknown(cause.clone()), Lookup::Unknown(cause)));
    scene.prometheus.start_again().await.unwrap();
    until(&way, "a", &pods, "the pod again", |seen| pod(seen, "one").is_some()).await;
}
