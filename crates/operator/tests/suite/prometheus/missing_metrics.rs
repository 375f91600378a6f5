//! Missing metrics: of deleted pods, failed scrapes, unchanged samples, and an unavailable Prometheus.

use jiff::{SignedDuration, Timestamp};
use steersman_plan::variant::MetricsError;
use steersman_reconcile::Lookup;
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::{FakePodMetrics, wait};

use super::{TestEnv, failure, pod, query_model, ready_pod, until, vllm};

#[tokio::test]
async fn removed_or_new_pods_have_no_metrics() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "lives", &vllm("0.5", "3", 0));
    env.serve_and_scrape("a", "gone", &vllm("0.9", "9", 0));
    let both = [ready_pod("a", "lives"), ready_pod("a", "gone")];
    let client = env.client();
    until(&client, "a", &both, "both", |observed| pod(observed, "lives").is_some() && pod(observed, "gone").is_some())
        .await;
    let observed = query_model(&client, "a", &[ready_pod("a", "lives"), ready_pod("a", "new")]).await;
    let names: Vec<_> = observed.pods.iter().flatten().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["lives"]);
    assert_eq!(query_model(&client, "a", &[ready_pod("a", "new")]).await.pods, Err(MetricsError::NotFound));
}

/// Waits for the staleness marker of the series.
async fn until_ended(env: &TestEnv) {
    let ended = async || {
        let newest = env.prometheus.query("vllm:kv_cache_usage_perc").await.unwrap();
        newest.as_array().is_some_and(Vec::is_empty).then_some(())
    };
    wait::eventually("the end of the series", ended).await.unwrap();
}

#[tokio::test]
async fn failed_scrape_keeps_recent_metrics() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let (client, pods) = (env.client(), [ready_pod("a", "one")]);
    let known = async || {
        env.serve_and_scrape("a", "one", &vllm("0.9", "9", 0));
        until(&client, "a", &pods, "the pod", |observed| pod(observed, "one").is_some()).await;
        env.pods.remove("a", "one");
        until_ended(&env).await;
        // On a slow machine, the samples may be older than a minute by now; then try again.
        pod(&query_model(&client, "a", &pods).await, "one").is_some().then_some(())
    };
    wait::eventually("the pod is known after its series has ended", known).await.unwrap();
}

#[tokio::test]
async fn recreated_pod_does_not_inherit_metrics() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let mut labels = FakePodMetrics::target_labels("a", "web-0");
    labels["instance"] = "10.0.0.1:8000".into();
    env.pods.set("a", "web-0", vllm("0.9", "9", 0));
    env.scrape("web", &labels);
    let (client, mut pods) = (env.client(), [ready_pod("a", "web-0")]);
    pods[0].ip = "10.0.0.1".parse().ok();
    until(&client, "a", &pods, "the first pod", |observed| pod(observed, "web-0").is_some()).await;
    env.prometheus.remove_target("web").unwrap();
    until_ended(&env).await;
    // A new pod with this name has another address and has just started. Samples of the first pod are still recent.
    pods[0].ip = "10.0.0.2".parse().ok();
    pods[0].started = Some(Timestamp::now() + SignedDuration::from_mins(1));
    assert_eq!(query_model(&client, "a", &pods).await.pods, Err(MetricsError::NotFound));
    labels["instance"] = "10.0.0.2:8000".into();
    env.pods.set("a", "web-0", vllm("0.1", "0", 0));
    env.scrape("web", &labels);
    pods[0].started = None;
    let observed = until(&client, "a", &pods, "the next pod", |observed| pod(observed, "web-0").is_some()).await;
    assert_eq!(pod(&observed, "web-0").and_then(|pod| pod.kv), Some(0.1));
}

#[tokio::test]
async fn old_metrics_are_stale_with_age() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let measured = Timestamp::now() - SignedDuration::from_mins(12);
    let model = super::escaped_model_name();
    let old =
        |name: &str, value: &str| format!("{name}{{model_name=\"{model}\"}} {value} {}\n", measured.as_millisecond());
    let text = old("vllm:kv_cache_usage_perc", "0.5") + &old("vllm:num_requests_waiting", "0");
    env.serve_and_scrape("a", "still", &text);
    let (client, pods) = (env.client(), [ready_pod("a", "still")]);
    let observed =
        until(&client, "a", &pods, "an age", |observed| matches!(observed.pods, Err(MetricsError::Stale(_)))).await;
    let Err(MetricsError::Stale(age)) = &observed.pods else { unreachable!("`until` waits for it") };
    assert!(age.starts_with("12m") && age.ends_with('s'), "{age}");
    // The samples cannot belong to a pod that started later.
    let mut later = pods.clone();
    later[0].started = Some(Timestamp::now() - SignedDuration::from_mins(1));
    assert_eq!(query_model(&client, "a", &later).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn prometheus_outage_is_reported_until_recovery() {
    let Some(mut env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 5));
    let (client, pods) = (env.client(), [ready_pod("a", "one")]);
    until(&client, "a", &pods, "the pod", |observed| pod(observed, "one").is_some()).await;
    env.prometheus.stop();
    let observed = query_model(&client, "a", &pods).await;
    let cause = failure(&observed).to_owned();
    let address = env.prometheus.address();
    assert_eq!(
        cause,
        format!("{address} refuses connections; check that Prometheus runs and that PROMETHEUS_BASE_URL is right")
    );
    assert_eq!((observed.requests, observed.queue), (Lookup::Unknown(cause.clone()), Lookup::Unknown(cause)));
    env.prometheus.restart().await.unwrap();
    until(&client, "a", &pods, "the pod again", |observed| pod(observed, "one").is_some()).await;
}
