//! Requests within a period: what a counter says of them, and what it hides.

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{ModelQuery, Prometheus};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::prometheus::Door;
use steersman_testkit::wait;

use super::{MODEL, NOBODY, Scene, vllm};

async fn requests(way: &Prometheus, namespace: &str, seconds: i64) -> Lookup<f64> {
    let model =
        ModelQuery { key: NamespacedName::new(namespace, MODEL), retention: SignedDuration::from_secs(seconds) };
    way.query(std::slice::from_ref(&model), NOBODY, Timestamp::now()).await.remove(&model.key).unwrap().requests
}

async fn until(way: &Prometheus, seconds: i64, what: &str, holds: impl Fn(f64) -> bool) {
    let mut last = None;
    let found = wait::eventually(what, async || {
        let answer = requests(way, "a", seconds).await;
        let found = answer.known().is_some_and(|count| holds(*count));
        last = Some(answer);
        found.then_some(())
    });
    found.await.unwrap_or_else(|error| panic!("{error}; last seen: {last:?}"));
}

#[tokio::test]
async fn requests_count_from_the_first_even_over_restarts_and_deaths_until_the_period_is_over() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let way = scene.way();
    assert_eq!(
        requests(&way, "a", 3600).await,
        Lookup::Unknown("Prometheus has no request count for the last 1h0m0s".to_owned())
    );
    // The counter is there for the first time, and not zero: someone was served before the first scrape.
    scene.play("a", "one", &vllm("0", "0", 5));
    until(&way, 3600, "five requests", |count| (count - 5.0).abs() < 1e-6).await;
    // A restart sets the counter back; what it had counted stays counted.
    scene.pods.say("a", "one", vllm("0", "0", 0));
    let reset = async || {
        let now = scene.prometheus.query("sum(vllm:request_success_total)").await.unwrap();
        (now[0]["value"][1] == "0").then_some(())
    };
    wait::eventually("the counter is zero", reset).await.unwrap();
    until(&way, 3600, "still five", |count| count >= 5.0 - 1e-6).await;
    // In a short period there was none: the model has been idle for so long.
    until(&way, 3, "idle", |count| count == 0.0).await;
    // Nor does its death make the long one forget.
    scene.prometheus.forget("a-one").unwrap();
    let gone = async || {
        let now = scene.prometheus.query("vllm:request_success_total").await.unwrap();
        now.as_array().is_some_and(Vec::is_empty).then_some(())
    };
    wait::eventually("the series ends", gone).await.unwrap();
    until(&way, 3600, "still five", |count| count >= 5.0 - 1e-6).await;
    assert!(matches!(requests(&way, "b", 3600).await, Lookup::Unknown(_)), "another namespace's are not ours");
}

#[tokio::test]
async fn models_may_have_periods_of_their_own() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "one", &vllm("0", "0", 5));
    let way = scene.way();
    until(&way, 3600, "five requests", |count| count >= 5.0 - 1e-6).await;
    let periods = (1..=20).map(|number| SignedDuration::from_mins(number * 10));
    let models: Vec<_> = periods
        .map(|retention| ModelQuery { key: NamespacedName::new("a", format!("{}", retention.as_mins())), retention })
        .chain([ModelQuery { key: NamespacedName::new("a", MODEL), retention: SignedDuration::from_mins(90) }])
        .collect();
    let seen = way.query(&models, NOBODY, Timestamp::now()).await;
    assert_eq!(seen.len(), 21);
    assert_eq!(seen[&NamespacedName::new("a", MODEL)].requests, Lookup::Known(5.0));
}
