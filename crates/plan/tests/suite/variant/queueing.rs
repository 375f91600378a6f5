//! The queue, predictions and sizing.

use proptest::prelude::*;
use steersman_plan::variant::analyze::queueing::queue::{Queue, SteadyState};
use steersman_plan::variant::analyze::queueing::server::MAX_BATCH;
use steersman_plan::variant::analyze::queueing::{
    Binding, Input, LatencyTargets, ModelServer, Prediction, QueueingError, RequestShape, ServiceTimes,
};

/// Relative error of a mean over a few hundred states.
const ROUNDING: f64 = 1e-9;
/// `size` accepts a target that is exceeded by this share.
const TARGET_TOLERANCE: f64 = 1e-6;

fn is_near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

fn not_below(a: f64, b: f64) -> bool {
    a >= b - ROUNDING * b.abs()
}

fn server(times: ServiceTimes, max_batch: u32, max_queue: u32, input: f64, output: f64) -> ModelServer {
    ModelServer::new(times, max_batch, max_queue, RequestShape { input, output }).unwrap()
}

const DECODE_ONLY: ServiceTimes = ServiceTimes::PrefillDecode { alpha: 10.0, beta: 0.0, gamma: 0.0, delta: 0.0 };
const LARGE: ServiceTimes = ServiceTimes::PrefillDecode { alpha: 7.5, beta: 0.05, gamma: 3.0, delta: 0.0005 };

fn predictions(server: &ModelServer, shares: &[f64]) -> Vec<Prediction> {
    let max = server.rate_range().max;
    shares.iter().map(|share| server.predict(max * share).unwrap()).collect()
}

fn values(prediction: &Prediction) -> [f64; 8] {
    let Prediction { throughput, wait, prefill, ttft, itl, response, in_service, utilization } = *prediction;
    [throughput, wait, prefill, ttft, itl, response, in_service, utilization]
}

fn times() -> impl Strategy<Value = ServiceTimes> {
    let zero_or = |range: std::ops::Range<f64>| prop_oneof![1 => Just(0.0), 4 => range];
    prop_oneof![
        (0.01..50.0, zero_or(0.0..2.0), zero_or(0.0..50.0), zero_or(0.0..0.5))
            .prop_map(|(alpha, beta, gamma, delta)| ServiceTimes::PrefillDecode { alpha, beta, gamma, delta }),
        (0.01..50.0, zero_or(0.0..2.0), zero_or(0.0..0.01)).prop_map(|(alpha, beta, gamma)| ServiceTimes::Iteration {
            alpha,
            beta,
            gamma
        }),
    ]
}

prop_compose! {
    fn any_server()(
        times in times(),
        max_batch in prop_oneof![1_u32..4, 1_u32..300],
        max_queue in prop_oneof![0_u32..4, 0_u32..3_000],
        input in prop_oneof![1 => Just(0.0), 3 => 1.0..4_000.0],
        output in prop_oneof![1 => Just(1.0), 1 => 1.0..4.0, 2 => 1.0..1_000.0],
    ) -> Option<ModelServer> {
        ModelServer::new(times, max_batch, max_queue, RequestShape { input, output }).ok()
    }
}

/// The few servers without any service time are left out.
fn valid_server() -> impl Strategy<Value = ModelServer> {
    any_server().prop_filter_map("service time of 0", |server| server)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn latency_never_falls_with_rate(server in valid_server(), low in 0.0..1.0_f64, high in 0.0..1.0_f64) {
        let predictions = predictions(&server, &[low.min(high), low.max(high)]);
        let (low, high) = (predictions[0], predictions[1]);
        prop_assert!(not_below(high.ttft, low.ttft), "TTFT {} then {}", low.ttft, high.ttft);
        prop_assert!(not_below(high.itl, low.itl), "ITL {} then {}", low.itl, high.itl);
        prop_assert!(not_below(high.wait, low.wait) && not_below(high.response, low.response));
        prop_assert!(not_below(high.throughput, low.throughput) && not_below(high.in_service, low.in_service));
    }

    #[test]
    fn latency_never_falls_near_saturation(server in valid_server(), start in 0.9..1.0_f64) {
        let shares: Vec<f64> = (0..=20_u32).map(|i| start + (1.0 - start) * f64::from(i) / 20.0).collect();
        for pair in predictions(&server, &shares).windows(2) {
            prop_assert!(not_below(pair[1].ttft, pair[0].ttft) && not_below(pair[1].itl, pair[0].itl));
        }
    }

    #[test]
    fn predictions_are_finite_and_consistent(server in valid_server(), share in 0.0..=1.0_f64) {
        let rate = server.rate_range().max * share;
        let prediction = server.predict(rate).unwrap();
        prop_assert!(values(&prediction).iter().all(|value| value.is_finite() && *value >= 0.0));
        prop_assert!(prediction.throughput <= rate * (1.0 + ROUNDING));
        prop_assert!(prediction.utilization <= 1.0);
        prop_assert!(prediction.response >= prediction.wait);
    }

    #[test]
    fn looser_targets_never_give_smaller_rate(
        server in valid_server(),
        share in (0.002..1.0_f64, 0.002..1.0_f64),
        slack in (1.0..3.0_f64, 1.0..3.0_f64),
    ) {
        let predictions = predictions(&server, &[share.0, share.1]);
        let (ttft, itl) = (predictions[0].ttft, predictions[1].itl);
        let size = |ttft, itl| server.size(&LatencyTargets { ttft_ms: Some(ttft), itl_ms: Some(itl), tps: None });
        if let Ok(tight) = size(ttft, itl) {
            let loose = size(ttft * slack.0, itl * slack.1).unwrap();
            prop_assert!(not_below(loose.rate, tight.rate), "{} then {}", tight.rate, loose.rate);
        }
    }

    #[test]
    fn sized_rate_is_largest_that_meets_targets(server in valid_server(), share in 0.002..1.0_f64, itl_slack in 0.5..1.5_f64) {
        let at = predictions(&server, &[share])[0];
        let (ttft, itl) = (at.ttft, at.itl * itl_slack);
        let range = server.rate_range();
        let targets = LatencyTargets { ttft_ms: Some(ttft), itl_ms: Some(itl), tps: None };
        let meets = |prediction: &Prediction| {
            (ttft == 0.0 || prediction.ttft <= ttft * (1.0 + TARGET_TOLERANCE)) && prediction.itl <= itl * (1.0 + TARGET_TOLERANCE)
        };
        match server.size(&targets) {
            Ok(sizing) => {
                prop_assert!(range.min <= sizing.rate && sizing.rate <= range.max);
                prop_assert!(meets(&sizing.prediction));
                prop_assert_eq!(sizing.prediction, server.predict(sizing.rate).unwrap());
                prop_assert_eq!(sizing.throughput, sizing.prediction.throughput);
                let above = server.predict((sizing.rate * 1.000_1).min(range.max)).unwrap();
                match sizing.binding {
                    Binding::Ttft => prop_assert!(above.ttft >= ttft * (1.0 - ROUNDING)),
                    Binding::Itl => prop_assert!(above.itl >= itl * (1.0 - ROUNDING)),
                    Binding::MaxRate => prop_assert_eq!(sizing.rate, range.max),
                    Binding::Tps => prop_assert!(false, "there is no TPS target"),
                }
            }
            Err(QueueingError::TargetUnreachable { .. }) => prop_assert!(!meets(&server.predict(range.min).unwrap())),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn predictions_are_continuous(server in valid_server(), share in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0_f64]) {
        let max = server.rate_range().max;
        let rate = max * share;
        let (here, there) = (server.predict(rate).unwrap(), server.predict((rate - max * 1e-12).abs()).unwrap());
        let (time, batch) = (here.response, f64::from(server.max_batch()));
        let scales = [max, time, time, time, time, time, batch, 1.0];
        for ((a, b), scale) in values(&here).into_iter().zip(values(&there)).zip(scales) {
            prop_assert!((a - b).abs() <= 1e-7 * scale, "{a} and {b}");
        }
    }

    #[test]
    fn single_server_without_queue_is_erlang_b(service_time in 0.01..1e4_f64, load in 0.0..1e3_f64) {
        let rate = load / service_time;
        let state = Queue { max_batch: 1, max_queue: 0, service_time: |_| service_time }.solve(rate);
        let blocked = load / (1.0 + load);
        prop_assert!(is_near(state.throughput, rate * (1.0 - blocked), ROUNDING));
        prop_assert!(is_near(state.idle, 1.0 - blocked, ROUNDING));
        prop_assert_eq!((state.wait, state.concurrency), (0.0, 1.0));
        prop_assert!(is_near(state.service_time, service_time, ROUNDING));
    }

    #[test]
    fn servers_without_queue_are_erlang_b(servers in 1_u32..900, load in 0.01..2_000.0_f64) {
        let state = Queue { max_batch: servers, max_queue: 0, service_time: |_| 1.0 }.solve(load);
        let mut blocked = 1.0;
        for n in (1..=servers).map(f64::from) {
            blocked = load * blocked / (n + load * blocked);
        }
        prop_assert!(is_near(state.throughput, load * (1.0 - blocked), ROUNDING));
        prop_assert!(is_near(state.service_time, 1.0, ROUNDING));
    }

    #[test]
    fn closed_tail_equals_sum_over_states(
        times in proptest::collection::vec(0.1..1.0_f64, 1..6),
        max_queue in 0_u32..400,
        load in prop_oneof![0.001..3.0_f64, 0.99..1.01_f64, Just(1.0), 1.0 - 1e-9..1.0 + 1e-9],
    ) {
        // Completion rates that do not fall: sums of positive numbers.
        let rates: Vec<f64> =
            times.iter().scan(0.0, |rate, time| { *rate += time; Some(*rate) }).collect();
        let rate = load * rates[rates.len() - 1];
        let service_time = |n: f64| n / rates[n as usize - 1];
        let max_batch = u32::try_from(rates.len()).unwrap();
        let state = Queue { max_batch, max_queue, service_time }.solve(rate);
        let expected = sum_over_states(&rates, max_queue, rate);
        for (name, ours, direct) in [
            ("throughput", state.throughput, expected.throughput),
            ("wait", state.wait, expected.wait),
            ("service time", state.service_time, expected.service_time),
            ("concurrency", state.concurrency, expected.concurrency),
            ("immediate", state.immediate, expected.immediate),
            ("idle", state.idle, expected.idle),
        ] {
            prop_assert!(is_near(ours, direct, ROUNDING), "{name}: {ours} instead of {direct}");
        }
    }
}

/// All states one by one, from the probabilities of the states in time.
fn sum_over_states(rates: &[f64], max_queue: u32, arrival_rate: f64) -> SteadyState {
    let batch = rates.len();
    let capacity = batch + max_queue as usize;
    let mut weights = vec![1.0];
    for state in 1..=capacity {
        weights.push(weights[state - 1] * arrival_rate / rates[state.min(batch) - 1]);
        let largest = weights[state];
        if largest > 1e200 {
            weights.iter_mut().for_each(|weight| *weight /= largest);
        }
    }
    let total: f64 = weights.iter().sum();
    let accepted: f64 = weights[..capacity].iter().sum();
    let throughput = arrival_rate * accepted / total;
    let mean = |f: &dyn Fn(usize) -> usize| {
        weights.iter().enumerate().map(|(i, weight)| f(i) as f64 * weight).sum::<f64>() / total
    };
    let found = |f: &dyn Fn(usize) -> usize| {
        weights[..capacity].iter().enumerate().map(|(i, weight)| f(i) as f64 * weight).sum::<f64>() / accepted
    };
    SteadyState {
        throughput,
        wait: mean(&|i| i.saturating_sub(batch)) / throughput,
        service_time: mean(&|i| i.min(batch)) / throughput,
        concurrency: found(&|i| (i + 1).min(batch)),
        immediate: found(&|i| usize::from(i < batch)),
        idle: weights[0] / total,
    }
}

#[test]
fn zero_rate_predicts_unloaded_latency() {
    for (times, prefill, itl, first_token) in [
        (ServiceTimes::PrefillDecode { alpha: 7.0, beta: 0.5, gamma: 3.0, delta: 0.01 }, 4.0, 7.5, 0.0),
        // With 100 and 9 tokens an iteration takes 7 + 0.5·10.9·n; prefill of the only request is 57.
        (ServiceTimes::Iteration { alpha: 7.0, beta: 0.5, gamma: 0.0 }, 57.0, 12.95 + 5.45 / 9.0, 12.95 + 5.45 / 9.0),
    ] {
        let idle = server(times, 8, 80, 100.0, 9.0).predict(0.0).unwrap();
        assert_eq!((idle.throughput, idle.wait, idle.in_service, idle.utilization), (0.0, 0.0, 0.0, 0.0));
        assert!(is_near(idle.prefill, prefill, ROUNDING), "{idle:?}");
        assert!(is_near(idle.itl, itl, ROUNDING), "{idle:?}");
        assert!(is_near(idle.ttft, prefill + first_token, ROUNDING), "{idle:?}");
    }
}

#[test]
fn huge_rates_fill_the_queue() {
    for rate in [1e3, 1e30, 1e300, f64::MAX] {
        for (max_batch, max_queue) in [(1, 0), (1, 1), (256, 2_560), (256, 0), (3, u32::MAX), (16_384, u32::MAX)] {
            let state = Queue { max_batch, max_queue, service_time: |n| 10.0 + n }.solve(rate);
            let (batch, queue) = (f64::from(max_batch), f64::from(max_queue));
            let (service_time, share) = (10.0 + batch, ROUNDING + 100.0 / rate);
            assert!(is_near(state.throughput, batch / service_time, share), "{state:?}");
            assert!(is_near(state.service_time, service_time, share), "{state:?}");
            assert!(is_near(state.wait, queue * service_time / batch, share), "{state:?}");
            assert!(is_near(state.concurrency, batch, share), "{state:?}");
        }
    }
}

#[test]
fn full_load_is_exact_for_huge_queues() {
    // Completions at a constant rate and as many arrivals: all states but the first are equally likely.
    for max_queue in [1_u32, 1_000, u32::MAX] {
        let state = Queue { max_batch: 1, max_queue, service_time: |_| 1.0 }.solve(1.0);
        let queue = f64::from(max_queue);
        assert!(is_near(state.wait, queue / 2.0, ROUNDING), "{state:?}");
        assert!(is_near(state.idle, 1.0 / (queue + 2.0), ROUNDING), "{state:?}");
        for close in [1.0 - 1e-15, 1.0 + 1e-15] {
            let nearby = Queue { max_batch: 1, max_queue, service_time: |_| 1.0 }.solve(close);
            assert!(is_near(nearby.wait, state.wait, 1e-5), "{nearby:?}");
        }
    }
}

#[test]
fn constant_latency_does_not_limit_rate() {
    let server = server(DECODE_ONLY, 8, 0, 0.0, 10.0);
    let max = server.rate_range().max;
    for (itl, expected) in [(9.0, None), (10.0, Some(max)), (11.0, Some(max))] {
        let sizing = server.size(&LatencyTargets { itl_ms: Some(itl), ..LatencyTargets::default() });
        assert_eq!(
            sizing.ok().map(|sizing| (sizing.rate, sizing.binding)),
            expected.map(|rate| (rate, Binding::MaxRate))
        );
    }
}

#[test]
fn binding_names_the_strictest_target() {
    let server = server(LARGE, 256, 2_560, 1_024.0, 512.0);
    for (ttft_ms, itl_ms, tps, expected) in [
        (None, None, None, Binding::MaxRate),
        (Some(0.0), Some(0.0), Some(0.0), Binding::MaxRate),
        (Some(500.0), Some(24.0), None, Binding::Ttft),
        (Some(500.0), Some(9.0), Some(1.0), Binding::Itl),
        (Some(500.0), Some(24.0), Some(1.0), Binding::Tps),
    ] {
        assert_eq!(server.size(&LatencyTargets { ttft_ms, itl_ms, tps }).unwrap().binding, expected);
    }
}

#[test]
fn unreachable_target_reports_lowest_latency() {
    let server = server(LARGE, 256, 2_560, 1_024.0, 512.0);
    let lowest = server.predict(server.rate_range().min).unwrap().itl;
    let result = server.size(&LatencyTargets { itl_ms: Some(1.0), ..LatencyTargets::default() });
    assert_eq!(result, Err(QueueingError::TargetUnreachable { target: Input::Itl, value: 1.0, lowest }));
}

#[test]
fn invalid_inputs_are_typed_errors() {
    let input_of = |error| match error {
        QueueingError::OutOfRange { input, .. } => Some(input),
        QueueingError::RateAboveMaximum { .. } | QueueingError::TargetUnreachable { .. } => None,
    };
    let valid = RequestShape { input: 128.0, output: 128.0 };
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        let error = |times, shape| ModelServer::new(times, 8, 80, shape).err().and_then(input_of);
        let (alpha, beta, gamma, delta) = (1.0, 1.0, 1.0, 1.0);
        let times = ServiceTimes::PrefillDecode { alpha, beta, gamma, delta };
        assert_eq!(error(ServiceTimes::PrefillDecode { alpha: bad, beta, gamma, delta }, valid), Some(Input::Alpha));
        assert_eq!(error(ServiceTimes::PrefillDecode { alpha, beta, gamma, delta: bad }, valid), Some(Input::Delta));
        assert_eq!(error(ServiceTimes::Iteration { alpha, beta: bad, gamma }, valid), Some(Input::Beta));
        assert_eq!(error(ServiceTimes::Iteration { alpha, beta, gamma: bad }, valid), Some(Input::Gamma));
        assert_eq!(error(times, RequestShape { input: bad, ..valid }), Some(Input::InputTokens));
        assert_eq!(error(times, RequestShape { output: bad, ..valid }), Some(Input::OutputTokens));

        let server = server(times, 8, 80, 128.0, 128.0);
        assert_eq!(server.predict(bad).err().and_then(input_of), Some(Input::Rate));
        for (targets, input) in [
            (LatencyTargets { ttft_ms: Some(bad), ..LatencyTargets::default() }, Input::Ttft),
            (LatencyTargets { itl_ms: Some(bad), ..LatencyTargets::default() }, Input::Itl),
            (LatencyTargets { tps: Some(bad), ..LatencyTargets::default() }, Input::Tps),
        ] {
            assert_eq!(server.size(&targets).err().and_then(input_of), Some(input));
        }
    }
    let none = ServiceTimes::Iteration { alpha: 0.0, beta: 0.0, gamma: 0.0 };
    assert_eq!(ModelServer::new(none, 8, 80, valid).err().and_then(input_of), Some(Input::ServiceTime));
    for max_batch in [0, MAX_BATCH + 1, u32::MAX] {
        assert_eq!(ModelServer::new(LARGE, max_batch, 80, valid).err().and_then(input_of), Some(Input::MaxBatch));
    }
}

#[test]
fn rate_above_maximum_is_typed_error() {
    let server = server(LARGE, 256, 2_560, 1_024.0, 512.0);
    let max = server.rate_range().max;
    assert!(server.predict(max).is_ok());
    for rate in [max * 1.001, f64::MAX] {
        assert_eq!(server.predict(rate), Err(QueueingError::RateAboveMaximum { rate, max }));
    }
}

#[test]
fn extreme_servers_predict_finite_values() {
    let largest = ServiceTimes::PrefillDecode { alpha: 1e9, beta: 1e9, gamma: 1e9, delta: 1e9 };
    let smallest = ServiceTimes::PrefillDecode { alpha: 1e-9, beta: 0.0, gamma: 0.0, delta: 0.0 };
    for (times, tokens) in [(largest, 1e9), (smallest, 2.0)] {
        for (max_batch, max_queue) in [(1, 0), (MAX_BATCH, u32::MAX)] {
            let server = server(times, max_batch, max_queue, tokens, tokens);
            for prediction in predictions(&server, &[0.0, 1e-9, 0.5, 1.0]) {
                assert!(values(&prediction).iter().all(|value| value.is_finite()), "{prediction:?}");
            }
        }
    }
}

#[test]
fn itl_stays_at_its_peak() {
    // One request at a time: the formula charges more prefill, and so less decode, to each request that waits.
    let times = ServiceTimes::Iteration { alpha: 1.0, beta: 1.0, gamma: 0.0 };
    for (max_batch, max_queue, has_peak) in [(1, 0, true), (1, 10, true), (2, 0, false), (2, 100, true), (8, 80, false)]
    {
        let server = server(times, max_batch, max_queue, 100.0, 1.0);
        let shares: Vec<f64> = (0..=1_000_u32).map(|i| f64::from(i) / 1_000.0).collect();
        let predictions = predictions(&server, &shares);
        assert!(predictions.windows(2).all(|pair| not_below(pair[1].itl, pair[0].itl)));
        assert_eq!(predictions[999].itl == predictions[1_000].itl, has_peak, "{max_batch} {max_queue}");
    }
}
