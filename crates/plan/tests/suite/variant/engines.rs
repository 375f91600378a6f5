//! Parts of the engines that no vector shows.

use std::collections::BTreeMap;

use steersman_plan::variant::analyze::engine_args::{Container, EngineArgs};
use steersman_plan::variant::analyze::saturation_percentage::{PodSaturation, Spare, analyze};
use steersman_plan::variant::bounds::Bounds;
use steersman_plan::variant::config::thresholds::Thresholds;
use steersman_plan::variant::memory::{CapacityOrigin, CapacityRecord, Memory};
use steersman_plan::variant::optimize::cost_aware::{Need, Offer, cost_aware};

fn offer(variant: &str, cost: f64, capacity: f64, current: i32, bounds: Bounds) -> Offer {
    Offer { variant: variant.into(), cost, capacity, current, ready: current, bounds }
}

#[test]
fn what_the_cheapest_variant_may_not_carry_goes_to_the_next() {
    let capped = Bounds { min: 0, max: Some(2) };
    let offers = [offer("cheap", 5.0, 10_000.0, 1, capped), offer("dear", 20.0, 10_000.0, 1, Bounds::default())];
    let need = Need { required: 25_000.0, spare: 0.0 };
    let bounded = cost_aware(&offers, need, true);
    assert_eq!(bounded, BTreeMap::from([("cheap".into(), 2), ("dear".into(), 3)]));
    let free = cost_aware(&offers, need, false);
    assert_eq!(free, BTreeMap::from([("cheap".into(), 4), ("dear".into(), 1)]));
}

#[test]
fn the_last_variant_that_runs_keeps_one_replica_whatever_it_costs() {
    let offers =
        [offer("cheap", 5.0, 10_000.0, 0, Bounds::default()), offer("dear", 20.0, 10_000.0, 3, Bounds::default())];
    let need = Need { required: 0.0, spare: 1e9 };
    assert_eq!(cost_aware(&offers, need, true)["dear"], 1);
}

#[test]
fn replicas_that_do_not_serve_yet_keep_no_model_alive() {
    let starting = Offer { ready: 0, ..offer("cheap", 5.0, 10_000.0, 1, Bounds::default()) };
    let need = Need { required: 0.0, spare: 1e9 };
    let offers = [starting.clone(), offer("dear", 20.0, 10_000.0, 3, Bounds::default())];
    let targets = cost_aware(&offers, need, true);
    assert_eq!(targets, BTreeMap::from([("cheap".into(), 1), ("dear".into(), 1)]));
    let offers = [Offer { ready: 1, ..starting }, offer("dear", 20.0, 10_000.0, 1, Bounds::default())];
    let targets = cost_aware(&offers, need, true);
    assert_eq!(targets, BTreeMap::from([("cheap".into(), 1), ("dear".into(), 0)]), "once it serves");
}

#[test]
fn of_two_variants_at_one_price_one_keeps_the_model_alive() {
    let offers = [offer("a", 5.0, 10_000.0, 1, Bounds::default()), offer("b", 5.0, 10_000.0, 1, Bounds::default())];
    let targets = cost_aware(&offers, Need { required: 0.0, spare: 1e9 }, true);
    assert_eq!(targets, BTreeMap::from([("a".into(), 1), ("b".into(), 0)]));
}

#[test]
fn the_load_of_a_saturated_replica_counts_when_one_shall_go() {
    let pod = |pod: &str, kv: f64| PodSaturation { pod: pod.into(), variant: "v".into(), kv, queue: 0.0, cost: 1.0 };
    let pods = [pod("a", 1.0), pod("b", 0.3), pod("c", 0.3)];
    let thresholds = Thresholds::default();
    assert!(
        analyze(&pods, &thresholds, Spare::OfUnsaturated).has_spare_replica,
        "two could become one: 0.6 is below 0.7"
    );
    assert!(!analyze(&pods, &thresholds, Spare::OfAll).has_spare_replica, "1.6 does not fit into two");
}

#[test]
fn what_bounds_take_away_is_not_to_spare_and_what_they_add_is_not_bought() {
    let capped = Bounds { min: 0, max: Some(3) };
    let offers = [offer("cheap", 5.0, 10_000.0, 5, capped), offer("dear", 20.0, 10_000.0, 5, Bounds::default())];
    let need = Need { required: 0.0, spare: 30_000.0 };
    let targets = cost_aware(&offers, need, true);
    assert_eq!(targets, BTreeMap::from([("cheap".into(), 5), ("dear".into(), 4)]), "two of cheap go by their bound");
    let raised = Bounds { min: 4, max: None };
    let offers = [offer("cheap", 5.0, 10_000.0, 2, Bounds::default()), offer("dear", 20.0, 10_000.0, 2, raised)];
    let need = Need { required: 25_000.0, spare: 0.0 };
    let targets = cost_aware(&offers, need, true);
    assert_eq!(targets, BTreeMap::from([("cheap".into(), 3), ("dear".into(), 2)]), "two of dear come by their bound");
}

#[test]
fn a_replica_is_missing_where_all_are_saturated_whatever_the_triggers() {
    let pod = |kv: f64| PodSaturation { pod: "a".into(), variant: "v".into(), kv, queue: 0.0, cost: 1.0 };
    let thresholds = Thresholds { kv_spare: 0.0, queue_spare: 0.0, ..Thresholds::default() };
    let missing = |kv: f64| analyze(&[pod(kv)], &thresholds, Spare::OfAll).missing;
    assert_eq!(missing(0.79), None);
    assert_eq!(missing(0.9).as_deref(), Some("every replica is saturated"));
}

#[test]
fn what_was_measured_in_another_namespace_is_not_taken_for_ones_own() {
    let record = |origin: CapacityOrigin, effective: i64| CapacityRecord {
        model: "m".into(),
        accelerator: "H100".into(),
        gpus: 1,
        origin,
        total_kv: 0,
        effective,
        args: Some(EngineArgs::default()),
        at: "2026-11-15T23:00:00Z".parse().unwrap(),
    };
    let own = record(CapacityOrigin::Deployment, 0);
    let mut memory = Memory::default();
    memory.records.insert("team-a|m|a".into(), record(CapacityOrigin::Live, 16));
    memory.records.insert("team-b|m|b".into(), own.clone());
    assert_eq!(memory.similar_record("team-b|m|b", "team-b|", &own), None);
    memory.records.insert("team-b|m|c".into(), record(CapacityOrigin::Live, 9_000));
    assert_eq!(memory.similar_record("team-b|m|b", "team-b|", &own).unwrap().effective, 9_000);
}

#[test]
fn arguments_are_found_in_every_way_to_write_them() {
    let read = |command: &[&str]| {
        let command = command.iter().map(ToString::to_string).collect();
        EngineArgs::read(&[Container { command, ..Container::default() }])
    };
    let wanted = EngineArgs { max_num_seqs: 64, kv_cache_dtype: "fp8".into(), ..EngineArgs::default() };
    for command in [
        &["vllm", "serve", "m", "--max-num-seqs", "64", "--kv-cache-dtype=fp8"][..],
        &["vllm", "serve", "m", "--max_num_seqs=64", "--kv_cache_dtype", "fp8"],
        &["bash", "-c", "exec vllm serve 'a model' --max-num-seqs \\\n  64 --kv-cache-dtype \"fp8\""],
        &["/bin/sh", "-c", "vllm serve m --max-num-seqs=64 --kv-cache-dtype=fp8", "ignored"],
    ] {
        assert_eq!(read(command), wanted, "{command:?}");
    }
    assert_eq!(read(&["vllm", "--max-num-seqs=-1", "--gpu-memory-utilization=2"]), EngineArgs::default());
}
