//! Laws of the distribution of a model's demand, on generated variants.

use std::collections::BTreeMap;

use proptest::prelude::*;
use steersman_plan::variant::optimize::split::{Split, SplitOptions, VariantSupply, split_demand};

const TYPES: [&str; 3] = ["A100", "H100", "L40S"];

fn capacity() -> impl Strategy<Value = BTreeMap<String, i32>> {
    let units = prop_oneof![4 => -3..40_i32, 1 => 129..900_i32];
    prop::collection::btree_map((0..3_usize).prop_map(|index| TYPES[index].to_owned()), units, 0..4)
}

fn supplies() -> impl Strategy<Value = Vec<VariantSupply>> {
    let supply = (
        0..3_usize,
        1..5_i32,
        prop_oneof![1 => Just(None), 9 => (1..400_i32).prop_map(|rate| Some(f64::from(rate) / 10.0))],
        1..1000_i32,
        (0..3_i32, prop::option::of(0..12_i32), 0..9_i32),
    );
    prop::collection::vec(supply, 1..5).prop_map(|supplies| {
        let supply = |(index, (accelerator, units_per_replica, rate_per_replica, cost, (min, max, current)))| {
            let accelerator: usize = accelerator;
            VariantSupply {
                name: format!("v{index}"),
                accelerator_type: TYPES[accelerator].into(),
                units_per_replica,
                rate_per_replica,
                cost_per_replica: f64::from(cost),
                min,
                max,
                current,
            }
        };
        supplies.into_iter().enumerate().map(supply).collect()
    })
}

fn demand() -> impl Strategy<Value = f64> {
    (0..4000_i32).prop_map(|demand| f64::from(demand) / 10.0)
}

fn split_options() -> impl Strategy<Value = SplitOptions> {
    prop_oneof![Just(0.0), Just(0.1), Just(0.3)]
        .prop_map(|transition_penalty| SplitOptions { transition_penalty, ..SplitOptions::default() })
}

fn split(
    variants: &[VariantSupply],
    demand: f64,
    available: Option<&BTreeMap<String, i32>>,
    options: SplitOptions,
) -> Split {
    split_demand(variants, demand, available, options).expect("a valid demand")
}

/// Another order of the same elements.
fn rotated<T: Clone>(elements: &[T], by: usize) -> Vec<T> {
    let mut elements = elements.to_vec();
    let length = elements.len().max(1);
    elements.rotate_left(by % length);
    elements.reverse();
    elements
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn split_respects_units_and_upper_bounds(
        variants in supplies(), demand in demand(), available in capacity(), options in split_options(),
    ) {
        let split = split(&variants, demand, Some(&available), options);
        let mut used: BTreeMap<&str, i32> = BTreeMap::new();
        for variant in &variants {
            let count = split.replicas[&variant.name];
            prop_assert!(count >= 0 && variant.max.is_none_or(|max| count <= max), "{}", variant.name);
            let min = variant.min.min(variant.max.unwrap_or(i32::MAX));
            prop_assert!(count >= min || split.below_min.contains(&variant.name));
            *used.entry(&variant.accelerator_type).or_default() += count * variant.units_per_replica;
        }
        for (name, units) in used {
            prop_assert!(units <= available.get(name).copied().unwrap_or(0).max(0), "{name}");
        }
    }

    #[test]
    fn split_with_more_demand_never_loses_capacity(
        variants in supplies(), demand in demand(), more in demand(),
        available in prop::option::of(capacity()), options in split_options(),
    ) {
        let low = split(&variants, demand, available.as_ref(), options);
        let high = split(&variants, demand + more, available.as_ref(), options);
        // Among more units of one type, the highest capacity is only estimated while it is below the demand.
        let is_exact = available.is_none_or(|available| available.values().all(|units| *units <= 128));
        prop_assert!(!is_exact || low.proven && high.proven);
        prop_assume!(low.proven && high.proven);
        prop_assert!(high.capacity >= low.capacity * (1.0 - 1e-8), "{low:?} {high:?}");
    }

    #[test]
    fn split_never_exceeds_feasible_single_variant_cost(
        variants in supplies(), demand in demand(), available in prop::option::of(capacity()),
        options in split_options(), max_steps in prop_oneof![Just(1_u32), Just(10_000)],
    ) {
        let split = split(&variants, demand, available.as_ref(), SplitOptions { max_steps, ..options });
        for variant in &variants {
            // The others keep their minimum, and so do those without a known rate.
            let others = variants.iter().map(|other| {
                let max = if other.name == variant.name { other.max } else { Some(other.min.min(other.max.unwrap_or(i32::MAX))) };
                VariantSupply { max, ..other.clone() }
            });
            let others: Vec<VariantSupply> = others.collect();
            if others.iter().any(|other| other.rate_per_replica.is_none()) {
                continue;
            }
            let single = split_demand(&others, demand, available.as_ref(), options).expect("a valid demand");
            if single.unserved == 0.0 && single.below_min.is_empty() && split.below_min.is_empty() {
                prop_assert_eq!(split.unserved, 0.0);
                let (cost, other) = (split.cost + split.transition_cost, single.cost + single.transition_cost);
                prop_assert!(cost <= other * (1.0 + 1e-6), "{cost} instead of {other} with {} alone", variant.name);
            }
        }
    }

    #[test]
    fn split_ignores_input_order(
        variants in supplies(), demand in demand(), available in prop::option::of(capacity()),
        options in split_options(), by in 0..4_usize,
    ) {
        let other = rotated(&variants, by);
        prop_assert_eq!(
            split(&variants, demand, available.as_ref(), options),
            split(&other, demand, available.as_ref(), options)
        );
    }

    #[test]
    fn short_search_never_raises_settled_cost(
        variants in supplies(), demand in demand(), available in prop::option::of(capacity()),
        options in split_options(), max_steps in 1..30_u32,
    ) {
        let options = SplitOptions { max_steps, ..options };
        let first = split(&variants, demand, available.as_ref(), options);
        let mut settled = variants;
        settled.iter_mut().for_each(|variant| variant.current = first.replicas[&variant.name]);
        let second = split(&settled, demand, available.as_ref(), options);
        prop_assert!(second.cost + second.transition_cost <= first.cost * (1.0 + 1e-6), "{first:?} {second:?}");
    }

    #[test]
    fn split_that_is_carried_out_stays(
        variants in supplies(), demand in demand(), available in prop::option::of(capacity()), options in split_options(),
    ) {
        let first = split(&variants, demand, available.as_ref(), options);
        let mut settled = variants;
        settled.iter_mut().for_each(|variant| variant.current = first.replicas[&variant.name]);
        prop_assert_eq!(split(&settled, demand, available.as_ref(), options).replicas, first.replicas);
    }
}
