//! The rule itself: several variants of one model, and the stated flip points.

use std::sync::Arc;

use jiff::Timestamp;
use steersman_plan::variant::analyze::measured_demand::{
    Analysis, CapacitySource, DemandMemory, DemandSettings, ModelSample, PickerQueue, PodSample, VariantSample, analyze,
};
use steersman_plan::variant::bounds::Bounds;
use steersman_plan::variant::optimize::cost_aware::{Need, Offer, cost_aware};

const COSTS: [(&str, f64, f64); 2] = [("large", 30.0, 4.0), ("small", 10.0, 2.0)];

fn stamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn pod(variant: &str, completions: f64, waiting: f64) -> PodSample {
    PodSample {
        name: format!("{variant}-0").into(),
        variant: variant.into(),
        ready_since: Some(stamp(0)),
        kv: Some(0.5),
        waiting: Some(waiting),
        running: Some(completions * 2.0),
        completions: Some(completions),
        output: Some(90.0),
        ..PodSample::default()
    }
}

/// Requests arrive at two replicas that complete 6 per second: as many as they complete, and `growth` more.
fn loaded(coming: i32, growth: f64, minutes: i64) -> Analysis {
    let settings = DemandSettings::default();
    let variants = COSTS.map(|(name, ..)| VariantSample {
        name: Arc::from(name),
        capacity_key: name.to_owned(),
        coming: if name == "small" { coming } else { 0 },
        max_sequences: None,
    });
    let mut memory = DemandMemory::default();
    let mut analysis = Analysis::default();
    for minute in 1..=minutes {
        let waiting = minute as f64 * 60.0 * growth / 2.0;
        let pods = COSTS.map(|(name, _, capacity)| pod(name, capacity, waiting));
        let model = ModelSample {
            now: stamp(minute * 60),
            settings: &settings,
            variants: &variants,
            pods: &pods,
            picker: PickerQueue::Absent,
        };
        analysis = analyze(&model, &mut memory);
    }
    analysis
}

fn targets(analysis: &Analysis, need: Need) -> Vec<i32> {
    let offers = COSTS.map(|(name, cost, _)| {
        let variant = analysis.variants.iter().find(|variant| &*variant.variant == name).unwrap();
        Offer {
            variant: name.to_owned(),
            cost,
            capacity: variant.capacity,
            current: variant.ready + variant.coming,
            ready: variant.ready,
            bounds: Bounds::default(),
        }
    });
    cost_aware(&offers, need, true).into_values().collect()
}

fn decided(analysis: &Analysis) -> Vec<i32> {
    targets(analysis, Need { required: analysis.required, spare: analysis.spare })
}

fn at(analysis: &Analysis, demand: f64) -> Vec<i32> {
    targets(analysis, analysis.need_at(demand))
}

#[test]
fn cheapest_variant_gets_the_missing_capacity() {
    let analysis = loaded(0, 14.0, 5);
    for ((name, _, capacity), variant) in COSTS.iter().zip(&analysis.variants) {
        assert_eq!((&*variant.variant, variant.source), (*name, CapacitySource::Measured));
        assert!((variant.capacity - capacity).abs() < 1e-9, "{variant:?}");
    }
    assert!((analysis.demand - 20.0).abs() < 1e-9, "{analysis:?}");
    assert!((analysis.required - (20.0 / 0.775 - 6.0)).abs() < 1e-9, "{analysis:?}");
    // 19.8 requests per second are missing, and a small replica has the better price: ten more.
    assert_eq!(decided(&analysis), [1, 11]);
}

#[test]
fn starting_replicas_count_as_capacity() {
    assert_eq!(decided(&loaded(4, 14.0, 5)), [1, 11]);
    assert_eq!(loaded(10, 14.0, 5).required, 0.0);
}

#[test]
fn stated_flip_point_flips_the_decision() {
    let (below, above) = (1.0 - 1e-6, 1.0 + 1e-6);
    let mut flips = 0;
    for growth in 0..40 {
        for coming in [0, 3] {
            for minutes in [2, 5, 15] {
                let analysis = loaded(coming, f64::from(growth) / 2.0, minutes);
                let current = [1, 1 + coming];
                if let Some(up) = analysis.flip.scales_up_above {
                    assert!(at(&analysis, up * above).iter().sum::<i32>() > current.iter().sum(), "{analysis:?}");
                    assert!(at(&analysis, up * below).iter().sum::<i32>() <= current.iter().sum(), "{analysis:?}");
                    flips += 1;
                }
                if let Some(down) = analysis.flip.scales_down_below {
                    assert!(at(&analysis, down * below).iter().sum::<i32>() < current.iter().sum(), "{analysis:?}");
                    assert!(at(&analysis, down * above).iter().sum::<i32>() >= current.iter().sum(), "{analysis:?}");
                    flips += 1;
                }
            }
        }
    }
    assert!(flips > 20, "{flips}");
}

#[test]
fn need_never_falls_with_demand() {
    for growth in 0..40 {
        let analysis = loaded(0, f64::from(growth) / 2.0, 15);
        let balance = |demand: u32| {
            let need = analysis.need_at(f64::from(demand) / 10.0);
            need.required - need.spare
        };
        assert!((0..400).all(|demand| balance(demand) <= balance(demand + 1)), "{analysis:?}");
    }
}
