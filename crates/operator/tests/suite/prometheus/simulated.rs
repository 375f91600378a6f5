//! A simulated fleet, scraped by a real Prometheus: what is seen is what was simulated.

use jiff::{SignedDuration, Timestamp};
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus};
use steersman_plan::variant::saturation::tokens::SchedulerQueue;
use steersman_plan::variant::{MetricsError, ModelMetrics};
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_sim::expose;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, LoadStep, Rate};
use steersman_sim::server::{RequestShape, Speed};
use steersman_testkit::prometheus::Door;
use steersman_testkit::wait;

use super::{MODEL, Scene, place, pod};

const SHAPE: RequestShape = RequestShape { input: 200, output: 100, cached: 50 };
const SPEED: Speed = Speed { start: 30_000, prefill: 1_500, decode: 100, sequences: 8, blocks: 500, block_size: 16 };

/// Everybody says how things are at this moment of the simulation.
fn show(scene: &Scene, fleet: &Fleet) {
    for name in fleet.pods().keys() {
        match expose::pod(fleet, name, MODEL) {
            Some(text) => scene.play("a", name, &text),
            None => scene.pods.silence("a", name),
        }
    }
    scene.play("a", "picker", &expose::endpoint_picker(fleet, MODEL));
}

async fn look(way: &Prometheus, pods: &[FleetPod]) -> ModelMetrics {
    let model = ModelQuery { key: NamespacedName::new("a", MODEL), retention: SignedDuration::from_mins(10) };
    way.query(std::slice::from_ref(&model), pods, Timestamp::now()).await.remove(&model.key).unwrap()
}

async fn until(way: &Prometheus, pods: &[FleetPod], what: &str, holds: impl Fn(&ModelMetrics) -> bool) -> ModelMetrics {
    let mut last = None;
    let found = wait::eventually(what, async || {
        let seen = look(way, pods).await;
        let found = holds(&seen).then(|| seen.clone());
        last = Some(seen);
        found
    });
    found.await.unwrap_or_else(|error| panic!("{error}; last seen: {last:?}"))
}

#[tokio::test]
async fn a_simulated_fleet_is_seen_as_it_is_from_cold_to_busy() {
    let Some(scene) = Scene::start(Door::Open).await else { return };
    let way = scene.way();
    let busy = Load::Steps(vec![LoadStep { rate: Rate(40_000), lasts: 120_000 }]);
    let mut fleet = Fleet::new(SHAPE, busy);

    // Nobody serves yet: all of it waits before the fleet.
    fleet.run_until(10_000);
    show(&scene, &fleet);
    let waits = Lookup::Known(Some(SchedulerQueue { requests: 400.0, bytes: 400.0 * 200.0 * 4.0 }));
    let cold = until(&way, &[], "a queue before the fleet", |seen| seen.queue == waits).await;
    assert_eq!(cold.pods, Err(MetricsError::NotFound));

    // Two pods, that take half a minute to start, cannot keep up.
    ["one", "two"].into_iter().for_each(|name| fleet.add(name, SPEED));
    let pods = [place("a", "one"), place("a", "two")];
    fleet.run_until(100_000);
    show(&scene, &fleet);
    let two = |seen: &ModelMetrics| seen.pods.as_ref().is_ok_and(|pods| pods.len() == 2);
    until(&way, &pods, "two pods", two).await;
    fleet.run_until(110_000);
    show(&scene, &fleet);
    // Prometheus hears of the pods one after the other.
    let averages = |seen: &ModelMetrics| {
        let waiting = fleet.waiting_at("one") as f64;
        seen.requests == Lookup::Known(fleet.served() as f64)
            && pod(seen, "one").is_some_and(|pod| pod.queue == Some(waiting) && pod.hit_rate.is_some())
    };
    let seen = until(&way, &pods, "the busy fleet", averages).await;
    let one = pod(&seen, "one").unwrap();
    assert!(fleet.waiting_at("one") > 100, "two pods are too few");
    assert!(one.kv.is_some_and(|kv| kv > 0.1 && kv <= 1.0), "{one:?}");
    assert_eq!(one.total_kv, Some(8_000));
    let near = |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value - wanted).abs() < 1e-6);
    assert!(near(one.input, 200.0) && near(one.output, 100.0) && near(one.hit_rate, 0.25), "{one:?}");
    assert_eq!(seen.queue, Lookup::Known(Some(SchedulerQueue { requests: 0.0, bytes: 0.0 })));
}
