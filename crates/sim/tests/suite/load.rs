//! Load curves: known areas, and laws that make arrivals independent of the step size.

use proptest::prelude::*;
use steersman_sim::load::{Load, LoadStep, MILLIONTHS, Rate};

const SECOND: u64 = 1_000;

fn per_second(requests: u32) -> Rate {
    Rate(requests * 1_000)
}

#[test]
fn known_curves_have_known_areas() {
    let steps = |parts: &[(u32, u64)]| {
        Load::Steps(
            parts.iter().map(|(rate, lasts)| LoadStep { rate: per_second(*rate), lasts: lasts * SECOND }).collect(),
        )
    };
    let ramp = |start, end, from, to| Load::Ramp {
        start: start * SECOND,
        end: end * SECOND,
        from: per_second(from),
        to: per_second(to),
    };
    let wave = |mean, amplitude, period| Load::Wave {
        mean: per_second(mean),
        amplitude: per_second(amplitude),
        period: period * SECOND,
    };
    let cases = [
        ("constant", Load::Constant(per_second(10)), (5, 65), 600),
        ("nothing", Load::Sum(vec![]), (0, 60), 0),
        ("an empty interval", Load::Constant(per_second(10)), (7, 7), 0),
        ("an interval turned around", Load::Constant(per_second(10)), (9, 7), 0),
        ("steps", steps(&[(10, 60), (0, 30), (50, 10)]), (0, 100), 1_100),
        ("inside one step", steps(&[(10, 60), (50, 60)]), (70, 80), 500),
        ("after the last step", steps(&[(10, 60)]), (60, 600), 0),
        ("up", ramp(10, 20, 0, 100), (10, 20), 500),
        ("half way up", ramp(10, 20, 0, 100), (10, 15), 125),
        ("down", ramp(0, 10, 100, 0), (0, 10), 500),
        ("before and after a ramp", ramp(10, 20, 10, 30), (0, 30), 100 + 200 + 300),
        ("a ramp without length is a jump", ramp(10, 10, 10, 30), (0, 20), 100 + 300),
        ("a ramp that ends before it starts is a jump", ramp(10, 5, 10, 30), (0, 20), 100 + 300),
        ("whole waves", wave(10, 8, 64), (0, 640), 6_400),
        ("a wave without period is flat", wave(10, 8, 0), (0, 60), 600),
        ("a sum", Load::Sum(vec![Load::Constant(per_second(1)), ramp(0, 10, 0, 10)]), (0, 10), 60),
    ];
    for (name, load, (from, to), requests) in cases {
        assert_eq!(load.integral(from * SECOND, to * SECOND), requests * MILLIONTHS, "{name}");
    }
}

#[test]
fn wave_approximates_sine_without_negative_rates() {
    let wave = |amplitude| Load::Wave { mean: per_second(10), amplitude: per_second(amplitude), period: 60 * SECOND };
    let crest = wave(8).integral(0, 30 * SECOND) as f64 / MILLIONTHS as f64;
    let sine = 10.0 * 30.0 + 8.0 * 60.0 / std::f64::consts::PI;
    assert!((crest - sine).abs() < 0.5, "{crest} is not {sine}");
    assert_eq!(wave(1_000).integral(40 * SECOND, 50 * SECOND), 0);
}

#[test]
fn rate_is_that_of_the_next_millisecond() {
    let ramp = Load::Ramp { start: SECOND, end: 3 * SECOND, from: per_second(0), to: per_second(2_000) };
    let cases = [(0, 0), (SECOND, 500), (2 * SECOND, 1_000_500), (3 * SECOND, 2_000_000), (9 * SECOND, 2_000_000)];
    for (time, rate) in cases {
        assert_eq!(ramp.rate_at(time), Rate(rate), "at {time}");
    }
    let most = Load::Constant(Rate(u32::MAX));
    assert_eq!(Load::Sum(vec![most.clone(), most]).rate_at(0), Rate(u32::MAX));
}

#[test]
fn request_arrives_when_integral_reaches_whole_number() {
    let steady = Load::Constant(per_second(4));
    assert_eq!(steady.arrivals(0, SECOND).collect::<Vec<_>>(), [250, 500, 750, 1_000]);
    assert_eq!(steady.arrivals(250, 500).collect::<Vec<_>>(), [500]);
    let slow = Load::Constant(Rate(300));
    assert_eq!(slow.arrivals(0, 10 * SECOND).collect::<Vec<_>>(), [3_334, 6_667, 10_000]);
    let fast = Load::Constant(per_second(2_000));
    assert_eq!(fast.arrivals(0, 2).collect::<Vec<_>>(), [1, 1, 2, 2]);
}

#[test]
fn extreme_curves_and_times_do_not_overflow() {
    let most = Rate(u32::MAX);
    let loads = [
        Load::Constant(most),
        Load::Steps(vec![LoadStep { rate: most, lasts: u64::MAX }; 3]),
        Load::Ramp { start: 0, end: u64::MAX, from: most, to: Rate(0) },
        Load::Ramp { start: u64::MAX, end: 0, from: Rate(0), to: most },
        Load::Wave { mean: most, amplitude: most, period: u64::MAX },
        Load::Wave { mean: most, amplitude: most, period: 1 },
    ];
    for load in &loads {
        let whole = load.integral(0, u64::MAX);
        assert_eq!(whole, load.integral(0, 1 << 50) + load.integral(1 << 50, u64::MAX), "{load:?}");
    }
    assert!(Load::Sum(loads.to_vec()).integral(0, u64::MAX) > 0);
}

fn rate() -> impl Strategy<Value = Rate> {
    (0..20_000u32).prop_map(Rate)
}

fn load() -> impl Strategy<Value = Load> {
    let time = 0..20_000u64;
    let single = prop_oneof![
        rate().prop_map(Load::Constant),
        prop::collection::vec((rate(), time.clone()).prop_map(|(rate, lasts)| LoadStep { rate, lasts }), 0..5)
            .prop_map(Load::Steps),
        (time.clone(), time.clone(), rate(), rate()).prop_map(|(start, end, from, to)| Load::Ramp {
            start,
            end,
            from,
            to
        }),
        (rate(), rate(), time).prop_map(|(mean, amplitude, period)| Load::Wave { mean, amplitude, period }),
    ];
    single.prop_recursive(2, 6, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Load::Sum))
}

proptest! {
    #[test]
    fn parts_of_an_interval_add_up(load in load(), mut cuts in prop::collection::vec(0..60_000u64, 2..9)) {
        cuts.sort_unstable();
        let parts: u128 = cuts.windows(2).map(|cut| load.integral(cut[0], cut[1])).sum();
        prop_assert_eq!(parts, load.integral(cuts[0], cuts[cuts.len() - 1]));
    }

    #[test]
    fn integral_never_decreases(load in load(), time in 0..60_000u64) {
        prop_assert!(load.integral(0, time) <= load.integral(0, time + 1));
    }

    #[test]
    fn arrivals_match_integral_in_order(load in load(), until in 0..30_000u64) {
        let times: Vec<_> = load.arrivals(0, until).collect();
        prop_assert_eq!(times.len() as u128, load.integral(0, until) / MILLIONTHS);
        prop_assert!(times.is_sorted());
        for (time, number) in times.iter().zip(1u128..) {
            prop_assert!(load.integral(0, *time) >= number * MILLIONTHS);
            prop_assert!(load.integral(0, time - 1) < number * MILLIONTHS);
        }
    }

    #[test]
    fn arrivals_do_not_depend_on_step_size(load in load(), until in 0..20_000u64, step in 1..5_000u64) {
        let stepped: Vec<_> = (0..until.div_ceil(step))
            .flat_map(|n| load.arrivals(n * step, ((n + 1) * step).min(until)).collect::<Vec<_>>())
            .collect();
        prop_assert_eq!(stepped, load.arrivals(0, until).collect::<Vec<_>>());
    }

    #[test]
    fn sum_has_the_area_of_its_parts(loads in prop::collection::vec(load(), 0..4), from in 0..9_000u64, to in 0..9_000u64) {
        let parts: u128 = loads.iter().map(|load| load.integral(from, to)).sum();
        prop_assert_eq!(Load::Sum(loads).integral(from, to), parts);
    }
}
