//! What is told when all is well.

use serde_json::json;
use steersman_plan::variant::MetricsError;
use steersman_plan::variant::saturation::tokens::SchedulerQueue;
use steersman_reconcile::Lookup;
use steersman_testkit::Pods;
use steersman_testkit::prometheus::Door;

use super::{MODEL, Scene, look, place, pod, until, vllm};

#[tokio::test]
async fn every_figure_of_a_pod_is_told_and_those_of_other_namespaces_are_not_mixed_in() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let (way, pods) = (scene.way(), [place("a", "one"), place("a", "two"), place("b", "one")]);
    scene.play("a", "one", &vllm("0.5", "3", 100));
    scene.play("a", "two", &vllm("0.25", "0", 0));
    scene.play("b", "one", &vllm("0.9", "70", 0));
    let figures = |seen: &_, name| pod(seen, name).map(|pod| (pod.kv, pod.queue, pod.total_kv));
    let both = |seen: &_| {
        figures(seen, "one") == Some((Some(0.5), Some(3.0), Some(16_000)))
            && figures(seen, "two") == Some((Some(0.25), Some(0.0), Some(16_000)))
    };
    until(&way, "a", &pods, "two pods", both).await;
    // An average needs two measurements with requests between them.
    scene.pods.say("a", "one", vllm("0.5", "3", 120));
    let averages = |seen: &_| {
        pod(seen, "one").is_some_and(|pod| pod.hit_rate.is_some() && pod.input.is_some() && pod.output.is_some())
    };
    let seen = until(&way, "a", &pods, "averages", averages).await;
    let one = pod(&seen, "one").unwrap();
    assert_eq!(
        (one.kv, one.queue, one.total_kv, one.target.name.as_str()),
        (Some(0.5), Some(3.0), Some(16_000), "one-target")
    );
    let near = |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value - wanted).abs() < 1e-6);
    assert!(near(one.input, 200.0) && near(one.output, 100.0) && near(one.hit_rate, 0.25), "{one:?}");
    let two = pod(&seen, "two").unwrap();
    assert_eq!((two.kv, two.queue), (Some(0.25), Some(0.0)));
    assert_eq!((two.input, two.hit_rate), (None, None), "nothing came: there is no average");
    assert_eq!(seen.queue, Lookup::Known(None));
    until(&way, "b", &pods, "the other namespace's own", |seen| {
        pod(seen, "one").is_some_and(|pod| pod.kv == Some(0.9))
    })
    .await;
    assert_eq!(look(&way, "c", &pods).await.pods, Err(MetricsError::NotFound));
}

#[tokio::test]
async fn where_pods_serve_another_name_than_the_asked_one_it_is_told() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let (way, pods) = (scene.way(), [place("a", "one"), place("b", "two")]);
    scene.play(
        "a",
        "one",
        "vllm:kv_cache_usage_perc{model_name=\"llama\"} 0.5\nvllm:num_requests_waiting{model_name=\"llama\"} 0\n",
    );
    scene.play("b", "two", &vllm("0.25", "0", 0));
    // Not of a pod that anybody follows.
    scene.play("b", "else", "vllm:kv_cache_usage_perc{model_name=\"other\"} 0.5\n");
    let named = until(&way, "a", &pods, "the other name", |seen| seen.pods != Err(MetricsError::NotFound)).await;
    assert_eq!(named.pods, Err(MetricsError::ModelNameMismatch(vec!["llama".to_owned()])));
    let seen = until(&way, "b", &pods, "the pod", |seen| seen.pods != Err(MetricsError::NotFound)).await;
    assert_eq!(pod(&seen, "two").and_then(|pod| pod.kv), Some(0.25));
}

#[tokio::test]
async fn servers_of_another_kind_and_pods_known_by_address_are_understood() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let model = super::model();
    let sglang = format!(
        "sglang:token_usage{{model_name=\"{model}\"}} 0.75\nsglang:num_queue_reqs{{model_name=\"{model}\"}} 4\n\
         sglang:max_total_num_tokens{{model_name=\"{model}\"}} 4096\n"
    );
    let old = format!(
        "vllm:gpu_cache_usage_perc{{model_name=\"{model}\"}} 0.125\nvllm:num_requests_waiting{{model_name=\"{model}\"}} 1\n"
    );
    scene.play("a", "sglang", &sglang);
    scene.pods.say("a", "old", old);
    // Nothing but the address tells whose this is.
    scene.scrape("nameless", &json!({ "instance": "10.1.2.3:8000", "__metrics_path__": "/pods/a/old/metrics" }));
    let mut pods = [place("a", "sglang"), place("a", "old")];
    pods[1].ip = "10.1.2.3".parse().ok();
    let told = |seen: &_, name| pod(seen, name).map(|pod| (pod.kv, pod.queue, pod.total_kv));
    let both = |seen: &_| {
        told(seen, "sglang") == Some((Some(0.75), Some(4.0), Some(4096)))
            && told(seen, "old") == Some((Some(0.125), Some(1.0), None))
    };
    until(&scene.way(), "a", &pods, "both pods with all their figures", both).await;
}

#[tokio::test]
async fn what_waits_at_the_endpoint_picker_is_told() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let model = super::model();
    let flow = "inference_extension_flow_control_queue";
    let text = format!(
        "{flow}_size{{fairness_id=\"x\",model_name=\"{model}\",target_model_name=\"{model}\"}} 3\n\
         {flow}_size{{fairness_id=\"y\",model_name=\"{model}\",target_model_name=\"{model}\"}} 4\n\
         {flow}_bytes{{fairness_id=\"y\",model_name=\"{model}\",target_model_name=\"{model}\"}} 900\n\
         {flow}_size{{fairness_id=\"y\",model_name=\"other\",target_model_name=\"other\"}} 50\n"
    );
    scene.play("a", "picker", &text);
    let expected = Lookup::Known(Some(SchedulerQueue { requests: 7.0, bytes: 900.0 }));
    until(&scene.way(), "a", &[], "the queue", |seen| seen.queue == expected).await;
    assert_eq!(look(&scene.way(), "b", &[]).await.queue, Lookup::Known(None));
}

/// Each queue once, however often its picker is scraped and under how many names it tells it.
#[tokio::test]
async fn a_picker_that_two_jobs_scrape_has_its_queues_once() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let model = super::model();
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
    scene.play("a", "picker", &both);
    scene.play("a", "other", &(queues(earlier, [1, 1]) + &queues(later, [1, 1])));
    // Another job, by another port of the same pod.
    let mut again = Pods::labels("a", "picker");
    (again["instance"], again["endpoint"], again["service"]) = (json!("10.0.0.1:9"), json!("http"), json!("picker"));
    scene.scrape("again", &again);
    // Those that nothing but their addresses tells apart.
    scene.pods.say("a", "nameless", queues(later, [10, 0]));
    for (job, address) in [("one", "10.0.0.2:9"), ("two", "10.0.0.2:9"), ("three", "10.0.0.3:9")] {
        let labels = json!({ "namespace": "a", "instance": address, "endpoint": job,
            "__metrics_path__": "/pods/a/nameless/metrics" });
        scene.scrape(job, &labels);
    }
    let query = format!("count({later}_size)");
    let all = async || (scene.prometheus.query(&query).await.unwrap()[0]["value"][1] == "12").then_some(());
    steersman_testkit::wait::eventually("two series of each of six targets", all).await.unwrap();
    let expected = Lookup::Known(Some(SchedulerQueue { requests: 29.0, bytes: 0.0 }));
    until(&scene.way(), "a", &[], "each queue once", |seen| seen.queue == expected).await;
}

#[tokio::test]
async fn what_is_not_a_number_is_absent_and_never_zero() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let pods = [place("a", "nan"), place("a", "inf"), place("a", "well")];
    scene.play("a", "nan", &vllm("NaN", "2", 0));
    scene.play("a", "inf", &vllm("0.5", "+Inf", 0));
    scene.play("a", "well", &vllm("0.5", "1", 0));
    // Each figure is a question of its own, and a scrape may come between two of them.
    let told = |seen: &_, name| pod(seen, name).map(|pod| (pod.kv, pod.queue));
    let expected = [("nan", (None, Some(2.0))), ("inf", (Some(0.5), None)), ("well", (Some(0.5), Some(1.0)))];
    let all = |seen: &_| expected.iter().all(|(name, figures)| told(seen, name) == Some(*figures));
    until(&scene.way(), "a", &pods, "four figures of three pods", all).await;
}

#[tokio::test]
async fn a_pod_that_two_jobs_scrape_is_one_pod() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    scene.play("a", "one", &vllm("0.5", "3", 0));
    let mut labels = Pods::labels("a", "one");
    labels["instance"] = json!("another-port");
    scene.scrape("again", &labels);
    let pods = [place("a", "one")];
    let way = scene.way();
    let query = "count(vllm:kv_cache_usage_perc)";
    let twice = async || (scene.prometheus.query(query).await.unwrap()[0]["value"][1] == "2").then_some(());
    steersman_testkit::wait::eventually("two series", twice).await.unwrap();
    let seen = look(&way, "a", &pods).await;
    assert_eq!(seen.pods.as_ref().map(Vec::len), Ok(1), "{seen:?} of {MODEL}");
}
