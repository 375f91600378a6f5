//! Counts of requests within a period, over counter resets and ended series.

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{ModelQuery, Prometheus};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::wait;

use super::{MODEL, NO_PODS, TestEnv, vllm};

async fn requests(client: &Prometheus, namespace: &str, seconds: i64) -> Lookup<f64> {
    let model =
        ModelQuery { key: NamespacedName::new(namespace, MODEL), retention: SignedDuration::from_secs(seconds) };
    client.query(std::slice::from_ref(&model), NO_PODS, Timestamp::now()).await.remove(&model.key).unwrap().requests
}

async fn until(client: &Prometheus, seconds: i64, what: &str, holds: impl Fn(f64) -> bool) {
    let mut last = None;
    let found = wait::eventually(what, async || {
        let answer = requests(client, "a", seconds).await;
        let found = answer.known().is_some_and(|count| holds(*count));
        last = Some(answer);
        found.then_some(())
    });
    found.await.unwrap_or_else(|error| panic!("{error}; last result: {last:?}"));
}

#[tokio::test]
async fn request_count_survives_restart_and_pod_deletion() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let client = env.client();
    assert_eq!(
        requests(&client, "a", 3600).await,
        Lookup::Unknown("Prometheus has no request count for the last 1h0m0s".to_owned())
    );
    // The first sample of the counter is not zero: requests were served before the first scrape.
    env.serve_and_scrape("a", "one", &vllm("0", "0", 5));
    until(&client, 3600, "five requests", |count| (count - 5.0).abs() < 1e-6).await;
    // A restart resets the counter; earlier requests still count.
    env.pods.set("a", "one", vllm("0", "0", 0));
    let reset = async || {
        let now = env.prometheus.query("sum(vllm:request_success_total)").await.unwrap();
        (now[0]["value"][1] == "0").then_some(())
    };
    wait::eventually("the counter is zero", reset).await.unwrap();
    until(&client, 3600, "still five", |count| count >= 5.0 - 1e-6).await;
    // A short period contains no requests, so the model counts as idle.
    until(&client, 3, "idle", |count| count == 0.0).await;
    // The long period still contains the requests after the pod is gone.
    env.prometheus.remove_target("a-one").unwrap();
    let gone = async || {
        let now = env.prometheus.query("vllm:request_success_total").await.unwrap();
        now.as_array().is_some_and(Vec::is_empty).then_some(())
    };
    wait::eventually("the series ends", gone).await.unwrap();
    until(&client, 3600, "still five", |count| count >= 5.0 - 1e-6).await;
    assert!(
        matches!(requests(&client, "b", 3600).await, Lookup::Unknown(_)),
        "requests of another namespace must not count"
    );
}

#[tokio::test]
async fn models_have_separate_retention_periods() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0", "0", 5));
    let client = env.client();
    until(&client, 3600, "five requests", |count| count >= 5.0 - 1e-6).await;
    let periods = (1..=20).map(|number| SignedDuration::from_mins(number * 10));
    let models: Vec<_> = periods
        .map(|retention| ModelQuery { key: NamespacedName::new("a", format!("{}", retention.as_mins())), retention })
        .chain([ModelQuery { key: NamespacedName::new("a", MODEL), retention: SignedDuration::from_mins(90) }])
        .collect();
    let observed = client.query(&models, NO_PODS, Timestamp::now()).await;
    assert_eq!(observed.len(), 21);
    assert_eq!(observed[&NamespacedName::new("a", MODEL)].requests, Lookup::Known(5.0));
}

/// A server may export the counter of its finished requests only after the first one.
#[tokio::test]
async fn server_without_requests_since_start_is_idle() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let (client, model) = (env.client(), super::escaped_model_name());
    let served = |count: u32| {
        format!(
            "vllm:kv_cache_usage_perc{{model_name=\"{model}\"}} 0\nvllm:num_requests_waiting{{model_name=\"{model}\"}} 0\n\
             vllm:request_prompt_tokens_count{{model_name=\"{model}\"}} {count}\n"
        )
    };
    env.serve_and_scrape("a", "one", &served(0));
    until(&client, 3600, "no request", |count| count == 0.0).await;
    env.pods.set("a", "one", served(3));
    until(&client, 3600, "three requests", |count| count > 0.0).await;
}
