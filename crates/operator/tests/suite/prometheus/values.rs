//! Values of healthy pods and of the scheduler queue.

use serde_json::json;
use steersman_plan::variant::MetricsError;
use steersman_plan::variant::SchedulerQueue;
use steersman_reconcile::Lookup;
use steersman_testkit::FakePodMetrics;
use steersman_testkit::prometheus::ClientAuth;

use super::{MODEL, TestEnv, pod, query_model, ready_pod, until, vllm};

#[tokio::test]
async fn pod_metrics_are_complete_and_per_namespace() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let (client, pods) = (env.client(), [ready_pod("a", "one"), ready_pod("a", "two"), ready_pod("b", "one")]);
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 100));
    env.serve_and_scrape("a", "two", &vllm("0.25", "0", 0));
    env.serve_and_scrape("b", "one", &vllm("0.9", "70", 0));
    let figures = |observed: &_, name| pod(observed, name).map(|pod| (pod.kv, pod.queue, pod.total_kv));
    let both = |observed: &_| {
        figures(observed, "one") == Some((Some(0.5), Some(3.0), Some(16_000)))
            && figures(observed, "two") == Some((Some(0.25), Some(0.0), Some(16_000)))
    };
    until(&client, "a", &pods, "two pods", both).await;
    // An average needs two samples with requests between them.
    env.pods.set("a", "one", vllm("0.5", "3", 120));
    let averages = |observed: &_| {
        pod(observed, "one").is_some_and(|pod| pod.hit_rate.is_some() && pod.input.is_some() && pod.output.is_some())
    };
    let observed = until(&client, "a", &pods, "averages", averages).await;
    let one = pod(&observed, "one").unwrap();
    assert_eq!(
        (one.kv, one.queue, one.total_kv, one.target.name.as_str()),
        (Some(0.5), Some(3.0), Some(16_000), "one-target")
    );
    let near = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-6);
    assert!(near(one.input, 200.0) && near(one.output, 100.0) && near(one.hit_rate, 0.25), "{one:?}");
    let two = pod(&observed, "two").unwrap();
    assert_eq!((two.kv, two.queue), (Some(0.25), Some(0.0)));
    assert_eq!((two.input, two.hit_rate), (None, None), "there is no average without requests");
    assert_eq!(observed.queue, Lookup::Known(None));
    until(&client, "b", &pods, "the pod of the other namespace", |observed| {
        pod(observed, "one").is_some_and(|pod| pod.kv == Some(0.9))
    })
    .await;
    assert_eq!(query_model(&client, "c", &pods).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn model_name_mismatch_is_reported() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let (client, pods) = (env.client(), [ready_pod("a", "one"), ready_pod("b", "two")]);
    env.serve_and_scrape(
        "a",
        "one",
        "vllm:kv_cache_usage_perc{model_name=\"llama\"} 0.5\nvllm:num_requests_waiting{model_name=\"llama\"} 0\n",
    );
    env.serve_and_scrape("b", "two", &vllm("0.25", "0", 0));
    // This pod belongs to no scale target.
    env.serve_and_scrape("b", "else", "vllm:kv_cache_usage_perc{model_name=\"other\"} 0.5\n");
    let named =
        until(&client, "a", &pods, "the other name", |observed| observed.pods != Err(MetricsError::NotFound)).await;
    assert_eq!(named.pods, Err(MetricsError::ModelNameMismatch(vec!["llama".to_owned()])));
    let observed = until(&client, "b", &pods, "the pod", |observed| observed.pods != Err(MetricsError::NotFound)).await;
    assert_eq!(pod(&observed, "two").and_then(|pod| pod.kv), Some(0.25));
}

#[tokio::test]
async fn sglang_and_address_only_pods_are_recognized() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let model = super::escaped_model_name();
    let sglang = format!(
        "sglang:token_usage{{model_name=\"{model}\"}} 0.75\nsglang:num_queue_reqs{{model_name=\"{model}\"}} 4\n\
         sglang:max_total_num_tokens{{model_name=\"{model}\"}} 4096\n"
    );
    let old = format!(
        "vllm:gpu_cache_usage_perc{{model_name=\"{model}\"}} 0.125\nvllm:num_requests_waiting{{model_name=\"{model}\"}} 1\n"
    );
    env.serve_and_scrape("a", "sglang", &sglang);
    env.pods.set("a", "old", old);
    // Only the address identifies the pod of this series.
    env.scrape("nameless", &json!({ "instance": "10.1.2.3:8000", "__metrics_path__": "/pods/a/old/metrics" }));
    let mut pods = [ready_pod("a", "sglang"), ready_pod("a", "old")];
    pods[1].ip = "10.1.2.3".parse().ok();
    let figures = |observed: &_, name| pod(observed, name).map(|pod| (pod.kv, pod.queue, pod.total_kv));
    let both = |observed: &_| {
        figures(observed, "sglang") == Some((Some(0.75), Some(4.0), Some(4096)))
            && figures(observed, "old") == Some((Some(0.125), Some(1.0), None))
    };
    until(&env.client(), "a", &pods, "both pods with all their figures", both).await;
}

#[tokio::test]
async fn endpoint_picker_queue_is_measured() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let model = super::escaped_model_name();
    let flow = "inference_extension_flow_control_queue";
    let text = format!(
        "{flow}_size{{fairness_id=\"x\",model_name=\"{model}\",target_model_name=\"{model}\"}} 3\n\
         {flow}_size{{fairness_id=\"y\",model_name=\"{model}\",target_model_name=\"{model}\"}} 4\n\
         {flow}_bytes{{fairness_id=\"y\",model_name=\"{model}\",target_model_name=\"{model}\"}} 900\n\
         {flow}_size{{fairness_id=\"y\",model_name=\"other\",target_model_name=\"other\"}} 50\n"
    );
    env.serve_and_scrape("a", "picker", &text);
    let expected = Lookup::Known(Some(SchedulerQueue { requests: 7.0, bytes: 900.0 }));
    until(&env.client(), "a", &[], "the queue", |observed| observed.queue == expected).await;
    assert_eq!(query_model(&env.client(), "b", &[]).await.queue, Lookup::Known(None));
}

/// A picker may be scraped by several jobs and expose a queue under two metric names; each queue counts once.
#[tokio::test]
async fn picker_scraped_twice_counts_queues_once() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let model = super::escaped_model_name();
    let queues = |flow: &str, waiting: [u8; 2]| {
        let queue = |(user, waiting): (&str, u8)| {
            format!(
                "{flow}_size{{fairness_id=\"{user}\",model_name=\"{model}\",target_model_name=\"{model}\"}} {waiting}\n"
            )
        };
        ["x", "y"].into_iter().zip(waiting).map(queue).collect::<String>()
    };
    let (earlier, later) = ("inference_extension_flow_control_queue", "llm_d_epp_flow_control_queue");
    let both = queues(earlier, [3, 4]) + &queues(later, [3, 4]);
    env.serve_and_scrape("a", "picker", &both);
    env.serve_and_scrape("a", "other", &(queues(earlier, [1, 1]) + &queues(later, [1, 1])));
    // A second job scrapes the same pod at another port.
    let mut labels = FakePodMetrics::target_labels("a", "picker");
    (labels["instance"], labels["endpoint"], labels["service"]) = (json!("10.0.0.1:9"), json!("http"), json!("picker"));
    env.scrape("again", &labels);
    // Pickers that differ only by their addresses.
    env.pods.set("a", "nameless", queues(later, [10, 0]));
    for (job, address) in [("one", "10.0.0.2:9"), ("two", "10.0.0.2:9"), ("three", "10.0.0.3:9")] {
        let labels = json!({ "namespace": "a", "instance": address, "endpoint": job,
            "__metrics_path__": "/pods/a/nameless/metrics" });
        env.scrape(job, &labels);
    }
    let query = format!("count({later}_size)");
    let all = async || (env.prometheus.query(&query).await.unwrap()[0]["value"][1] == "12").then_some(());
    steersman_testkit::wait::eventually("two series of each of six targets", all).await.unwrap();
    let expected = Lookup::Known(Some(SchedulerQueue { requests: 29.0, bytes: 0.0 }));
    until(&env.client(), "a", &[], "each queue once", |observed| observed.queue == expected).await;
}

#[tokio::test]
async fn nan_and_inf_values_are_absent() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let pods = [ready_pod("a", "nan"), ready_pod("a", "inf"), ready_pod("a", "well")];
    env.serve_and_scrape("a", "nan", &vllm("NaN", "2", 0));
    env.serve_and_scrape("a", "inf", &vllm("0.5", "+Inf", 0));
    env.serve_and_scrape("a", "well", &vllm("0.5", "1", 0));
    // Each value needs a query of its own, and a scrape may come between two queries.
    let figures = |observed: &_, name| pod(observed, name).map(|pod| (pod.kv, pod.queue));
    let expected = [("nan", (None, Some(2.0))), ("inf", (Some(0.5), None)), ("well", (Some(0.5), Some(1.0)))];
    let all = |observed: &_| expected.iter().all(|(name, expected)| figures(observed, name) == Some(*expected));
    until(&env.client(), "a", &pods, "four figures of three pods", all).await;
}

#[tokio::test]
async fn pod_scraped_twice_is_one_pod() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    env.serve_and_scrape("a", "one", &vllm("0.5", "3", 0));
    let mut labels = FakePodMetrics::target_labels("a", "one");
    labels["instance"] = json!("another-port");
    env.scrape("again", &labels);
    let pods = [ready_pod("a", "one")];
    let client = env.client();
    let query = "count(vllm:kv_cache_usage_perc)";
    let twice = async || (env.prometheus.query(query).await.unwrap()[0]["value"][1] == "2").then_some(());
    steersman_testkit::wait::eventually("two series", twice).await.unwrap();
    let observed = query_model(&client, "a", &pods).await;
    assert_eq!(observed.pods.as_ref().map(Vec::len), Ok(1), "{observed:?} of {MODEL}");
}
