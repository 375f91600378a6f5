//! A simulated fleet, scraped by a real Prometheus: the measured values are those of the simulation.

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus};
use steersman_plan::variant::SchedulerQueue;
use steersman_plan::variant::{MetricsError, ModelMetrics};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_sim::expose;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, LoadStep, Rate};
use steersman_sim::server::{RequestShape, Speed};
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::wait;

use super::{MODEL, TestEnv, pod, ready_pod};

const SHAPE: RequestShape = RequestShape { input: 200, output: 100, cached: 50 };
const SPEED: Speed = Speed { start: 30_000, prefill: 1_500, decode: 100, sequences: 8, blocks: 500, block_size: 16 };

/// Exposes the metrics of all pods at this moment of the simulation.
fn expose_metrics(env: &TestEnv, fleet: &Fleet) {
    for name in fleet.pods().keys() {
        match expose::pod(fleet, name, MODEL) {
            Some(text) => env.serve_and_scrape("a", name, &text),
            None => env.pods.remove("a", name),
        }
    }
    env.serve_and_scrape("a", "picker", &expose::endpoint_picker(fleet, MODEL));
}

async fn query_model(client: &Prometheus, pods: &[FleetPod]) -> ModelMetrics {
    let model = ModelQuery { key: NamespacedName::new("a", MODEL), retention: SignedDuration::from_mins(10) };
    client.query(std::slice::from_ref(&model), pods, Timestamp::now()).await.remove(&model.key).unwrap()
}

async fn until(
    client: &Prometheus,
    pods: &[FleetPod],
    what: &str,
    holds: impl Fn(&ModelMetrics) -> bool,
) -> ModelMetrics {
    let mut last = None;
    let found = wait::eventually(what, async || {
        let observed = query_model(client, pods).await;
        let found = holds(&observed).then(|| observed.clone());
        last = Some(observed);
        found
    });
    found.await.unwrap_or_else(|error| panic!("{error}; last result: {last:?}"))
}

#[tokio::test]
async fn simulated_fleet_is_measured_correctly() {
    let Some(env) = TestEnv::start(ClientAuth::NotRequired).await else { return };
    let client = env.client();
    let busy = Load::Steps(vec![LoadStep { rate: Rate(40_000), lasts: 120_000 }]);
    let mut fleet = Fleet::new(SHAPE, busy);

    // There are no pods: all requests wait in the scheduler queue.
    fleet.run_until(10_000);
    expose_metrics(&env, &fleet);
    let expected_queue = Lookup::Known(Some(SchedulerQueue { requests: 400.0, bytes: 400.0 * 200.0 * 4.0 }));
    let cold = until(&client, &[], "a scheduler queue", |observed| observed.queue == expected_queue).await;
    assert_eq!(cold.pods, Err(MetricsError::NotFound));

    // Two pods, which take 30 s to start, are too few for the load.
    ["one", "two"].into_iter().for_each(|name| fleet.add(name, SPEED));
    let pods = [ready_pod("a", "one"), ready_pod("a", "two")];
    fleet.run_until(100_000);
    expose_metrics(&env, &fleet);
    let two = |observed: &ModelMetrics| observed.pods.as_ref().is_ok_and(|pods| pods.len() == 2);
    until(&client, &pods, "two pods", two).await;
    fleet.run_until(110_000);
    expose_metrics(&env, &fleet);
    // Prometheus scrapes the pods one after the other.
    let averages = |observed: &ModelMetrics| {
        let waiting = fleet.waiting_at("one") as f64;
        observed.requests == Lookup::Known(fleet.served() as f64)
            && pod(observed, "one").is_some_and(|pod| pod.queue == Some(waiting) && pod.hit_rate.is_some())
            && pod(observed, "one").is_some_and(|pod| pod.completed_per_second > Some(0.0) && pod.itl_seconds.is_some())
    };
    let observed = until(&client, &pods, "the busy fleet", averages).await;
    let one = pod(&observed, "one").unwrap();
    assert!(fleet.waiting_at("one") > 100, "two pods must be too few for the load");
    assert!(one.kv.is_some_and(|kv| kv > 0.1 && kv <= 1.0), "{one:?}");
    assert_eq!(one.total_kv, Some(8_000));
    let near = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-6);
    assert!(near(one.input, 200.0) && near(one.output, 100.0) && near(one.hit_rate, 0.25), "{one:?}");
    assert_eq!((one.running, one.waiting), (Some(fleet.pods()["one"].running() as f64), one.queue));
    assert_eq!(one.completed, Some(fleet.counters("one").requests as f64));
    assert!(near(one.service_seconds, 1.1), "100 tokens of prefill at 1,500/s and 100 tokens at 100/s: {one:?}");
    assert!(near(one.itl_seconds, 1.0 / f64::from(SPEED.decode)), "{one:?}");
    assert!(one.ttft_seconds > Some(10.0), "requests waited in the queue before the first token: {one:?}");
    assert_eq!(observed.queue, Lookup::Known(Some(SchedulerQueue { requests: 0.0, bytes: 0.0 })));
}
