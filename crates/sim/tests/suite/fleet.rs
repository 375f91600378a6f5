//! The simulated fleet: single cases, and laws for any sequence of changes.

use proptest::prelude::*;
use steersman_sim::fleet::Fleet;
use steersman_sim::load::{Load, LoadStep, Rate};
use steersman_sim::server::{RequestShape, Speed};

const SHAPE: RequestShape = RequestShape { input: 100, output: 50, cached: 0 };
/// A request takes two seconds: one of prefill, one of decode.
const SPEED: Speed = Speed { start: 5_000, prefill: 100, decode: 50, sequences: 4, blocks: 100, block_size: 16 };

fn constant(per_second: u32) -> Load {
    Load::Constant(Rate(per_second * 1000))
}

#[test]
fn request_waits_for_starting_pod() {
    let mut fleet = Fleet::new(SHAPE, Load::Steps(vec![LoadStep { rate: Rate(1000), lasts: 1000 }]));
    fleet.add("a", SPEED);
    fleet.run_until(4_999);
    assert_eq!((fleet.arrived(), fleet.waiting_at_picker(), fleet.waiting_at("a"), fleet.running()), (1, 1, 0, 0));
    fleet.run_until(5_000);
    assert_eq!((fleet.waiting(), fleet.running()), (0, 1));
    fleet.run_until(6_999);
    assert_eq!(fleet.served(), 0);
    fleet.run_until(7_000);
    assert_eq!((fleet.served(), fleet.running()), (1, 0));
    let counters = fleet.counters("a");
    // The request arrived after 1 s, started after 5 s and finished its prefill after 6 s.
    assert_eq!((counters.requests, counters.input, counters.output), (1, 100, 50));
    assert_eq!((counters.first_token_time, counters.decode_time), (5_000, 1_000));
}

#[test]
fn cache_fills_during_prefill_and_decode() {
    let mut fleet = Fleet::new(SHAPE, Load::Steps(vec![LoadStep { rate: Rate(1000), lasts: 1000 }]));
    fleet.add("a", Speed { start: 0, ..SPEED });
    for (time, held) in [(1_000, 0), (1_500, 50), (2_000, 100), (2_500, 125), (2_999, 149), (3_000, 0)] {
        fleet.run_until(time);
        assert_eq!(fleet.pods()["a"].kv_tokens(SHAPE, time), held, "after {time} ms");
    }
}

#[test]
fn excess_requests_wait_spread_over_pods() {
    // Two requests fill the cache of 320 tokens, although four could run at the same time.
    let small = Speed { blocks: 20, start: 0, ..SPEED };
    let mut fleet = Fleet::new(SHAPE, constant(10));
    fleet.add("a", small);
    fleet.add("b", small);
    fleet.run_until(1_000);
    assert_eq!((fleet.arrived(), fleet.running()), (10, 4));
    assert_eq!((fleet.waiting_at("a"), fleet.waiting_at("b"), fleet.waiting_at_picker()), (3, 3, 0));
    let long = RequestShape { input: 300, output: 21, cached: 0 };
    let mut never = Fleet::new(long, constant(1));
    never.add("a", small);
    never.run_until(60_000);
    assert_eq!((never.served(), never.waiting_at("a")), (0, 60), "a request that exceeds the cache must not start");
}

#[test]
fn restart_loses_counters_but_no_request() {
    let mut fleet = Fleet::new(SHAPE, Load::Steps(vec![LoadStep { rate: Rate(2000), lasts: 4_000 }]));
    fleet.add("a", Speed { start: 0, ..SPEED });
    fleet.run_until(3_000);
    assert!(fleet.counters("a").requests > 0);
    fleet.hide_metrics("a", true);
    fleet.restart("a");
    assert_eq!((fleet.counters("a").requests, fleet.running()), (0, 0));
    assert!(fleet.pods()["a"].metrics_hidden && !fleet.pods()["a"].ready, "a restarted pod still hides its metrics");
    fleet.run_until(60_000);
    assert_eq!((fleet.arrived(), fleet.served(), fleet.waiting()), (8, 8, 0));
    // Interrupted requests keep their place in the queue.
    assert!(fleet.counters("a").first_token_time > 0);
}

#[derive(Clone, Debug)]
enum Action {
    Add(u8),
    Remove(u8),
    Restart(u8),
    HideMetrics(u8),
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..4u8).prop_map(Action::Add),
        (0..4u8).prop_map(Action::Remove),
        (0..4u8).prop_map(Action::Restart),
        (0..4u8).prop_map(Action::HideMetrics),
        (1..4_000u64).prop_map(Action::Wait),
    ]
}

fn speed() -> impl Strategy<Value = Speed> {
    (0..3_000u64, 1..2_000u32, 1..500u32, 1..6u32, 1..80u32).prop_map(|(start, prefill, decode, sequences, blocks)| {
        Speed { start, prefill, decode, sequences, blocks, block_size: 16 }
    })
}

fn shape() -> impl Strategy<Value = RequestShape> {
    (0..300u32, 0..200u32, 0..300u32).prop_map(|(input, output, cached)| RequestShape { input, output, cached })
}

fn apply_action(fleet: &mut Fleet, action: &Action, speed: Speed, steps: u64) {
    let name = |number: &u8| format!("pod-{number}");
    match action {
        Action::Add(number) => fleet.add(&name(number), speed),
        Action::Remove(number) => fleet.remove(&name(number)),
        Action::Restart(number) => fleet.restart(&name(number)),
        Action::HideMetrics(number) => fleet.hide_metrics(&name(number), true),
        Action::Wait(time) => {
            let start = fleet.now();
            (1..=steps).for_each(|step| fleet.run_until(start + time * step / steps));
        }
    }
}

/// The observable state of a fleet.
fn state(fleet: &Fleet) -> (u64, u64, u64, u64, String) {
    let metrics = fleet.pods().keys().filter_map(|name| steersman_sim::expose::pod(fleet, name, "m"));
    (fleet.arrived(), fleet.served(), fleet.waiting(), fleet.running(), metrics.collect())
}

proptest! {
    #[test]
    fn no_request_lost_and_no_cache_overflow(
        actions in prop::collection::vec(action(), 0..40), speed in speed(), shape in shape(), rate in 0..20u32,
    ) {
        let mut fleet = Fleet::new(shape, constant(rate));
        for action in &actions {
            apply_action(&mut fleet, action, speed, 1);
            prop_assert_eq!(fleet.arrived(), fleet.served() + fleet.running() + fleet.waiting());
            let waiting_at_pods: u64 = fleet.pods().keys().map(|name| fleet.waiting_at(name)).sum();
            prop_assert_eq!(waiting_at_pods + fleet.waiting_at_picker(), fleet.waiting());
            for pod in fleet.pods().values() {
                prop_assert!(pod.kv_tokens(shape, fleet.now()) <= speed.capacity());
                prop_assert!(pod.running() <= speed.sequences as usize);
                prop_assert!(pod.ready || pod.running() == 0);
            }
        }
        prop_assert_eq!(fleet.arrived(), u64::from(rate) * fleet.now() / 1000);
    }

    #[test]
    fn step_size_does_not_change_the_result(
        actions in prop::collection::vec(action(), 0..25), speed in speed(), shape in shape(), rate in 0..20u32,
    ) {
        let mut fleets = [Fleet::new(shape, constant(rate)), Fleet::new(shape, constant(rate))];
        for action in &actions {
            for (fleet, steps) in fleets.iter_mut().zip([1, 7]) {
                apply_action(fleet, action, speed, steps);
            }
            prop_assert_eq!(state(&fleets[0]), state(&fleets[1]));
        }
    }

    #[test]
    fn all_requests_are_served_after_load_ends(speed in speed(), pods in 1..5u8, rate in 0..30u32) {
        prop_assume!(speed.capacity() >= u64::from(SHAPE.input + SHAPE.output));
        let mut fleet = Fleet::new(SHAPE, Load::Steps(vec![LoadStep { rate: Rate(rate * 1000), lasts: 10_000 }]));
        (0..pods).for_each(|number| fleet.add(&format!("pod-{number}"), speed));
        // Upper bound: one pod serves all requests one after the other.
        let request_time = speed.prefill_time(SHAPE) + speed.decode_time(SHAPE);
        fleet.run_until(10_000 + speed.start + request_time * (u64::from(rate) * 10 + 1));
        prop_assert_eq!((fleet.served(), fleet.waiting(), fleet.running()), (u64::from(rate) * 10, 0, 0));
    }

    #[test]
    fn more_pods_never_serve_less(speed in speed(), pods in 0..5u8, rate in 0..40u32, added_at in 0..20_000u64) {
        let mut few = Fleet::new(SHAPE, constant(rate));
        (0..pods).for_each(|number| few.add(&format!("pod-{number}"), speed));
        let mut more = few.clone();
        for second in 0..40 {
            let time = second * 1_000;
            if (time..time + 1_000).contains(&added_at) {
                more.add("one-more", speed);
            }
            few.run_until(time + 1_000);
            more.run_until(time + 1_000);
            prop_assert!(more.served() >= few.served() && more.waiting() <= few.waiting());
        }
    }
}
