//! Distribution of a model's demand over its variants, compared with the enumeration of all answers.

use std::collections::BTreeMap;

use steersman_plan::variant::optimize::split::{InvalidDemand, Split, SplitOptions, VariantSupply, split_demand};

const OPTIONS: SplitOptions = SplitOptions { transition_penalty: 0.1, max_steps: 10_000 };

fn supply(name: &str, rate: f64, cost: f64) -> VariantSupply {
    VariantSupply {
        name: name.into(),
        accelerator_type: name.into(),
        units_per_replica: 1,
        rate_per_replica: Some(rate),
        cost_per_replica: cost,
        ..VariantSupply::default()
    }
}

fn units(entries: &[(&str, i32)]) -> BTreeMap<String, i32> {
    entries.iter().map(|(name, units)| ((*name).to_owned(), *units)).collect()
}

fn replicas(split: &Split) -> Vec<i32> {
    split.replicas.values().copied().collect()
}

#[test]
fn last_replica_of_cheaper_variant_completes_answer() {
    let variants = [supply("large", 10.0, 40.0), supply("small", 2.0, 15.0)];
    let split = split_demand(&variants, 21.0, None, OPTIONS).unwrap();
    assert_eq!((replicas(&split), split.cost), (vec![2, 1], 95.0));
    assert!(split.proven && split.unserved == 0.0);
}

#[test]
fn multiple_of_rate_needs_no_further_replica() {
    let split = split_demand(&[supply("a", 0.1, 1.0)], 0.3, None, OPTIONS).unwrap();
    assert_eq!(replicas(&split), [3]);
}

#[test]
fn small_saving_below_transition_cost_moves_nothing() {
    let current = VariantSupply { current: 4, ..supply("current", 10.0, 40.0) };
    let cheaper = supply("cheaper", 10.0, 38.0);
    let split = split_demand(&[current.clone(), cheaper.clone()], 40.0, None, OPTIONS).unwrap();
    assert_eq!(replicas(&split), [0, 4]);
    let free = SplitOptions { transition_penalty: 0.0, ..OPTIONS };
    assert_eq!(replicas(&split_demand(&[current, cheaper], 40.0, None, free).unwrap()), [4, 0]);
}

#[test]
fn large_saving_moves_to_cheaper_variant() {
    let variants = [VariantSupply { current: 4, ..supply("current", 10.0, 40.0) }, supply("cheaper", 10.0, 20.0)];
    let split = split_demand(&variants, 40.0, None, OPTIONS).unwrap();
    assert_eq!((replicas(&split), split.cost, split.transition_cost), (vec![4, 0], 80.0, 24.0));
}

#[test]
fn equal_variants_prefer_price_then_name() {
    let variants = [supply("b", 10.0, 5.0), supply("a", 10.0, 5.0), supply("c", 20.0, 10.0)];
    let split = split_demand(&variants, 20.0, None, OPTIONS).unwrap();
    assert_eq!(replicas(&split), [2, 0, 0]);
}

#[test]
fn shared_type_gives_units_to_best_combination() {
    let shared = |name: &str, rate, cost, units_per_replica| VariantSupply {
        accelerator_type: "H100".into(),
        units_per_replica,
        ..supply(name, rate, cost)
    };
    let variants = [shared("one", 10.0, 10.0, 1), shared("four", 60.0, 80.0, 4)];
    let split = split_demand(&variants, 1000.0, Some(&units(&[("H100", 9)])), OPTIONS).unwrap();
    assert_eq!((replicas(&split), split.capacity, split.unserved), (vec![2, 1], 130.0, 870.0));
}

/// The variant with the highest rate per unit fills the type badly, and the other one alone serves the demand.
#[test]
fn many_shared_units_serve_feasible_demand() {
    let shared = |name: &str, rate, units_per_replica| VariantSupply {
        accelerator_type: "H100".into(),
        units_per_replica,
        ..supply(name, rate, 10.0)
    };
    let variants = [shared("wide", 101.0, 100), shared("narrow", 1.0, 1)];
    let variants =
        [VariantSupply { max: Some(199), ..variants[1].clone() }, variants[0].clone(), shared("odd", 150.2, 150)];
    let split = split_demand(&variants, 300.4, Some(&units(&[("H100", 300)])), OPTIONS).unwrap();
    assert_eq!((split.unserved, split.replicas["odd"], split.proven), (0.0, 2, true));
}

#[test]
fn absent_type_gives_no_replicas() {
    let split = split_demand(&[supply("a", 10.0, 5.0)], 10.0, Some(&BTreeMap::new()), OPTIONS).unwrap();
    assert_eq!((replicas(&split), split.unserved), (vec![0], 10.0));
}

#[test]
fn minimum_above_units_is_reported() {
    let variants = [VariantSupply { min: 3, ..supply("a", 10.0, 5.0) }];
    let split = split_demand(&variants, 0.0, Some(&units(&[("a", 2)])), OPTIONS).unwrap();
    assert_eq!((replicas(&split), split.below_min), (vec![2], vec!["a".to_owned()]));
}

#[test]
fn variant_with_unknown_rate_keeps_replicas() {
    let unknown = VariantSupply { rate_per_replica: None, current: 3, ..supply("unknown", 0.0, 1.0) };
    let split = split_demand(&[unknown, supply("known", 10.0, 5.0)], 20.0, None, OPTIONS).unwrap();
    assert_eq!((split.replicas["unknown"], split.replicas["known"]), (3, 2));
    assert_eq!((split.held, split.capacity), (vec!["unknown".to_owned()], 20.0));
}

#[test]
fn contradicting_bounds_follow_upper_one() {
    let variants = [VariantSupply { min: 5, max: Some(2), ..supply("a", 10.0, 5.0) }];
    assert_eq!(replicas(&split_demand(&variants, 100.0, None, OPTIONS).unwrap()), [2]);
}

#[test]
fn unknown_demand_is_refused() {
    for demand in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(split_demand(&[supply("a", 1.0, 1.0)], demand, None, OPTIONS), Err(InvalidDemand));
    }
}

#[test]
fn extreme_numbers_give_bounded_answer() {
    for (demand, rate, cost) in [(1e300, 1e-300, 1e300), (1e-300, 1e300, 0.0), (1e12, 1.0, 1e-300)] {
        let variants = [supply("a", rate, cost), supply("b", rate * 1.01, cost)];
        let split = split_demand(&variants, demand, None, OPTIONS).unwrap();
        assert!(split.replicas.values().all(|count| (0..=2_000_000).contains(count)), "{split:?}");
    }
}

#[test]
fn exhausted_search_keeps_feasible_answer() {
    let variants: Vec<VariantSupply> =
        (0..6).map(|index| supply(&format!("v{index}"), 7.0 + f64::from(index) * 0.013, 7.0)).collect();
    let few_steps = SplitOptions { max_steps: 20, ..OPTIONS };
    let split = split_demand(&variants, 1234.5, None, few_steps).unwrap();
    assert!(!split.proven && split.capacity >= 1234.5);
}

/// Repeatable numbers from 0 to `below`.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(u32::try_from(self.next(1_000_000)).expect("below a million")) / 1e6
    }
}

struct Fleet {
    variants: Vec<VariantSupply>,
    demand: f64,
    available: Option<BTreeMap<String, i32>>,
}

const MAX_COUNT: i32 = 8;

fn generated_fleet(numbers: &mut Sequence) -> Fleet {
    let types = ["A100", "H100", "L40S"];
    let mut variants = Vec::new();
    for index in 0..2 + numbers.next(3) {
        let rate = numbers.between(1.0, 20.0);
        let efficiency = numbers.between(0.5, 2.0);
        let whole_numbers = numbers.next(4) == 0;
        let round = |number: f64| if whole_numbers { number.ceil() } else { number };
        let min = i32::try_from(numbers.next(4)).expect("small") / 3;
        variants.push(VariantSupply {
            name: format!("v{index}"),
            accelerator_type: types[usize::try_from(numbers.next(3)).expect("small")].to_owned(),
            units_per_replica: 1 << numbers.next(3),
            rate_per_replica: Some(round(rate)),
            cost_per_replica: round(rate * efficiency * 4.0),
            min,
            max: Some(MAX_COUNT - i32::try_from(numbers.next(4)).expect("small")),
            current: i32::try_from(numbers.next(6)).expect("small"),
        });
    }
    let available = (numbers.next(2) == 0).then(|| {
        types.iter().map(|name| ((*name).to_owned(), i32::try_from(numbers.next(40)).expect("small"))).collect()
    });
    Fleet { demand: numbers.between(0.0, 120.0), variants, available }
}

fn served(variants: &[VariantSupply], counts: &[i32]) -> f64 {
    let rate = |(variant, count): (&VariantSupply, &i32)| variant.rate_per_replica.unwrap_or(0.0) * f64::from(*count);
    variants.iter().zip(counts).map(rate).sum()
}

/// Cost with the transition, written down from its definition.
fn total_cost(variants: &[VariantSupply], counts: &[i32], transition_penalty: f64) -> f64 {
    let cost = |(variant, count): (&VariantSupply, &i32)| {
        let changed = f64::from((count - variant.current).abs());
        (f64::from(*count) + transition_penalty * changed) * variant.cost_per_replica
    };
    variants.iter().zip(counts).map(cost).sum()
}

fn fits(fleet: &Fleet, counts: &[i32]) -> bool {
    let Some(available) = &fleet.available else { return true };
    let mut free = available.clone();
    for (variant, count) in fleet.variants.iter().zip(counts) {
        *free.entry(variant.accelerator_type.clone()).or_default() -= count * variant.units_per_replica;
    }
    free.values().all(|left| *left >= 0)
}

/// Least cost of all answers, or the highest capacity if none serves the demand.
fn enumerated_optimum(fleet: &Fleet, transition_penalty: f64) -> Result<f64, f64> {
    let mut cheapest = f64::INFINITY;
    let mut highest = 0.0_f64;
    let low: Vec<i32> = fleet.variants.iter().map(|variant| variant.min).collect();
    let high: Vec<i32> = fleet.variants.iter().map(|variant| variant.max.expect("bounded")).collect();
    let mut counts = low.clone();
    loop {
        if fits(fleet, &counts) {
            let capacity = served(&fleet.variants, &counts);
            highest = highest.max(capacity);
            if capacity >= fleet.demand * (1.0 - 1e-9) {
                cheapest = cheapest.min(total_cost(&fleet.variants, &counts, transition_penalty));
            }
        }
        let Some(next) = (0..counts.len()).find(|index| counts[*index] < high[*index]) else { break };
        counts[next] += 1;
        counts[..next].copy_from_slice(&low[..next]);
    }
    if cheapest.is_finite() { Ok(cheapest) } else { Err(highest) }
}

#[derive(Default)]
struct Gap {
    sum: f64,
    largest: f64,
    above_two_percent: u32,
    count: u32,
}

impl Gap {
    fn add(&mut self, cost: f64, optimum: f64) {
        let gap = if optimum > 0.0 { cost / optimum - 1.0 } else { 0.0 };
        self.sum += gap;
        self.largest = self.largest.max(gap);
        self.above_two_percent += u32::from(gap > 0.02);
        self.count += 1;
    }

    fn report(&self, name: &str) -> f64 {
        let mean = self.sum / f64::from(self.count);
        println!(
            "{name}: mean {:.3} %, largest {:.1} %, above 2 % in {} of {}",
            mean * 100.0,
            self.largest * 100.0,
            self.above_two_percent,
            self.count
        );
        mean
    }
}

#[test]
fn split_of_small_fleets_has_least_cost() {
    let mut numbers = Sequence(21);
    for transition_penalty in [0.0, 0.1] {
        let options = SplitOptions { transition_penalty, ..OPTIONS };
        let (mut first_gap, mut gap) = (Gap::default(), Gap::default());
        let mut unserved = 0;
        for _ in 0..3_000 {
            let fleet = generated_fleet(&mut numbers);
            let available = fleet.available.as_ref();
            let split = split_demand(&fleet.variants, fleet.demand, available, options).unwrap();
            let counts: Vec<i32> = fleet.variants.iter().map(|variant| split.replicas[&variant.name]).collect();
            assert!(split.proven && fits(&fleet, &counts), "{:?} {available:?}", fleet.variants);
            if !split.below_min.is_empty() {
                continue;
            }
            let cost = total_cost(&fleet.variants, &counts, transition_penalty);
            assert!((cost - split.cost - split.transition_cost).abs() < 1e-6 * cost.max(1.0));
            match enumerated_optimum(&fleet, transition_penalty) {
                Ok(optimum) => {
                    assert!(split.unserved == 0.0 && served(&fleet.variants, &counts) >= fleet.demand * (1.0 - 1e-8));
                    gap.add(cost, optimum);
                    // The search begins with greedy answers.
                    let first = SplitOptions { max_steps: 1, ..options };
                    let first = split_demand(&fleet.variants, fleet.demand, available, first).unwrap();
                    first_gap.add(first.cost + first.transition_cost, optimum);
                }
                Err(highest) => {
                    assert!((split.capacity - highest).abs() <= 1e-8 * highest, "{} {highest}", split.capacity);
                    assert!(split.unserved > 0.0);
                    unserved += 1;
                }
            }
        }
        println!("transition penalty {transition_penalty}, {unserved} fleets cannot serve the demand");
        first_gap.report("first answer");
        assert!(gap.report("search") < 1e-9 && gap.largest < 1e-6);
    }
}
