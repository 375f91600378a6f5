//! The queue, predictions and sizing. Upstream computes rates and times in `f32`.

use std::collections::BTreeSet;

use serde::Deserialize;
use steersman_plan::variant::analyze::queueing::queue::Queue;
use steersman_plan::variant::analyze::queueing::{LatencyTargets, ModelServer, Prediction, RequestShape, ServiceTimes};

use crate::file::{Difference, assert_known_differences, load_vectors};

/// Relative tolerance. Upstream's bisection stops at 1e-6 of the latency, which is up to 1e-4 of the rate.
const TOLERANCE: f64 = 1e-4;
/// Upstream subtracts two response times in `f32`, each rounded three times, to get the wait.
const WAIT_RESOLUTION: f64 = 4.0 * f32::EPSILON as f64;

fn differences(found: Vec<String>) -> Vec<Difference> {
    found.into_iter().map(|case| Difference { case, detail: "not the recorded result".to_owned() }).collect()
}

fn is_close(ours: f64, recorded: f64) -> bool {
    is_close_above(ours, recorded, 0.0)
}

fn is_close_above(ours: f64, recorded: f64, resolution: f64) -> bool {
    (ours - recorded).abs() <= TOLERANCE * ours.abs().max(recorded.abs()) + resolution
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queues {
    mm1_state_dependent: Vec<QueueCase>,
    mm1k: Vec<QueueCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueCase {
    #[serde(rename = "K")]
    capacity: u32,
    lambda: f64,
    #[serde(default)]
    serv_rate: Vec<f64>,
    #[serde(default)]
    mu: f64,
    valid: bool,
    #[serde(flatten)]
    solution: Option<QueueSolution>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueSolution {
    avg_num_in_system: f64,
    avg_num_in_servers: Option<f64>,
    avg_resp_time: f64,
    avg_serv_time: f64,
    avg_wait_time: f64,
    avg_queue_length: f64,
    throughput: f64,
    p0: f64,
    #[serde(rename = "pK")]
    p_full: f64,
}

fn queue_difference(case: &QueueCase) -> bool {
    let rates = if case.serv_rate.is_empty() { vec![case.mu] } else { case.serv_rate.clone() };
    let max_batch = u32::try_from(rates.len()).unwrap();
    let interval = |n: f64| n / rates[n as usize - 1];
    let state = Queue { max_batch, max_queue: case.capacity - max_batch, service_time: interval }.solve(case.lambda);
    let Some(recorded) = &case.solution else { return true };
    let wait_resolution = WAIT_RESOLUTION * recorded.avg_resp_time;
    let in_service = recorded.avg_num_in_servers.unwrap_or(state.in_service());
    !(is_close(state.in_system(), recorded.avg_num_in_system)
        && is_close(state.in_service(), in_service)
        && is_close(state.response(), recorded.avg_resp_time)
        && is_close(state.service_time, recorded.avg_serv_time)
        && is_close_above(state.wait, recorded.avg_wait_time, wait_resolution)
        && is_close_above(state.wait * state.throughput, recorded.avg_queue_length, wait_resolution * case.lambda)
        && is_close(state.throughput, recorded.throughput)
        && is_close(state.idle, recorded.p0)
        && is_close_above(1.0 - state.throughput / case.lambda, recorded.p_full, f64::EPSILON))
}

#[test]
fn queue_matches_upstream() {
    let Some(file) = load_vectors::<Queues>("queue-models.json") else { return };
    let mut found = Vec::new();
    for case in file.mm1_state_dependent.iter().chain(&file.mm1k) {
        assert_eq!(case.valid, case.solution.is_some() || case.lambda == 0.0);
        if queue_difference(case) {
            found.push(format!("K={} lambda={} mu={}{:?}", case.capacity, case.lambda, case.mu, case.serv_rate));
        }
    }
    assert_known_differences(
        &[
            (
                "K=1 lambda=0.5 mu=0[1.0]",
                "upstream compares K with the utilization of the previous solution, initially 1",
            ),
            ("K=10 lambda=0 mu=1[]", "upstream divides by a throughput of 0; an idle queue has service time 1/mu"),
            ("K=10 lambda=15 mu=1[]", "upstream rejects a utilization above K; a bounded queue has a steady state"),
            ("K=10 lambda=1 mu=0[]", "a server that serves nothing; ModelServer rejects its infinite service time"),
        ],
        &differences(found),
    );
}

#[derive(Deserialize)]
struct Analyzer {
    cases: Vec<AnalyzerCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnalyzerCase {
    name: String,
    input: AnalyzerInput,
    rate_range: Range,
    analyze: Vec<AnalyzeCase>,
    size: Vec<SizeCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnalyzerInput {
    #[serde(alias = "Alpha")]
    alpha: f64,
    #[serde(alias = "Beta")]
    beta: f64,
    #[serde(alias = "Gamma")]
    gamma: f64,
    /// Absent in the iteration form.
    delta: Option<f64>,
    #[serde(alias = "MaxBatch", alias = "maxBatch")]
    max_batch_size: u32,
    #[serde(alias = "MaxQueue", alias = "maxQueue")]
    max_queue_size: u32,
    #[serde(alias = "In")]
    avg_input_tokens: Option<f64>,
    #[serde(alias = "Out")]
    avg_output_tokens: Option<f64>,
}

#[derive(Deserialize)]
struct Range {
    min: f64,
    max: f64,
}

#[derive(Deserialize)]
struct AnalyzeCase {
    rate: f64,
    metrics: Option<Metrics>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    avg_num_in_serv: f64,
    avg_prefill_time: f64,
    avg_resp_time: f64,
    #[serde(rename = "avgTTFT")]
    avg_ttft: Option<f64>,
    avg_token_time: f64,
    avg_wait_time: f64,
    rho: f64,
    throughput: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizeCase {
    target: Target,
    rate_target: Option<Target>,
    achieved: Option<Achieved>,
    metrics: Option<Metrics>,
}

#[derive(Clone, Copy, Deserialize)]
struct Achieved {
    ttft: f64,
    tps: f64,
}

#[derive(Clone, Copy, Deserialize)]
struct Target {
    ttft: f64,
    itl: f64,
    tps: f64,
}

impl AnalyzerInput {
    fn server(&self, input: f64, output: f64) -> ModelServer {
        let AnalyzerInput { alpha, beta, gamma, .. } = *self;
        let times = match self.delta {
            Some(delta) => ServiceTimes::PrefillDecode { alpha, beta, gamma, delta },
            None => ServiceTimes::Iteration { alpha, beta, gamma },
        };
        ModelServer::new(times, self.max_batch_size, self.max_queue_size, RequestShape { input, output }).unwrap()
    }
}

impl Target {
    fn lowest(self) -> f64 {
        self.ttft.min(self.itl).min(self.tps)
    }
}

/// Names of the fields that differ.
fn differing_fields(ours: &Prediction, recorded: &Metrics) -> Vec<&'static str> {
    let resolution = WAIT_RESOLUTION * recorded.avg_resp_time;
    let ttft = recorded.avg_ttft.unwrap_or(recorded.avg_wait_time + recorded.avg_prefill_time);
    let fields = [
        ("in_service", is_close(ours.in_service, recorded.avg_num_in_serv)),
        ("prefill", is_close(ours.prefill, recorded.avg_prefill_time)),
        ("response", is_close(ours.response, recorded.avg_resp_time)),
        ("ttft", is_close_above(ours.ttft, ttft, resolution)),
        ("itl", is_close(ours.itl, recorded.avg_token_time)),
        ("wait", is_close_above(ours.wait, recorded.avg_wait_time, resolution)),
        ("utilization", is_close(ours.utilization, recorded.rho)),
        ("throughput", is_close(ours.throughput, recorded.throughput)),
    ];
    fields.into_iter().filter(|(_, close)| !close).map(|(field, _)| field).collect()
}

fn size(server: &ModelServer, Target { ttft, itl, tps }: Target) -> Option<f64> {
    let targets = LatencyTargets { ttft_ms: Some(ttft), itl_ms: Some(itl), tps: Some(tps) };
    server.size(&targets).ok().map(|sizing| sizing.rate)
}

/// Whether all rates are the recorded ones, those for single targets included.
fn rates_are_close(server: &ModelServer, case: &SizeCase) -> bool {
    let Some(single) = case.rate_target else { return size(server, case.target).is_none() };
    let Target { ttft, itl, tps } = case.target;
    let none = Target { ttft: 0.0, itl: 0.0, tps: 0.0 };
    let is_sized = |target, recorded| size(server, target).is_some_and(|rate| is_close(rate, recorded));
    is_sized(case.target, single.lowest())
        && is_sized(Target { ttft, ..none }, single.ttft)
        && is_sized(Target { itl, ..none }, single.itl)
        && is_sized(Target { tps, ..none }, single.tps)
}

fn analyzer_differences(file: &Analyzer) -> Vec<String> {
    let mut found = BTreeSet::new();
    for case in &file.cases {
        let name = &case.name;
        let (input, output) = (case.input.avg_input_tokens.unwrap(), case.input.avg_output_tokens.unwrap());
        let server = case.input.server(input, output);
        let range = server.rate_range();
        assert!(is_close(range.min, case.rate_range.min) && is_close(range.max, case.rate_range.max), "{name}");
        for analyze in &case.analyze {
            match (server.predict(analyze.rate), &analyze.metrics) {
                (Ok(ours), Some(recorded)) => {
                    let fields = differing_fields(&ours, recorded);
                    found.extend(fields.into_iter().map(|field| format!("{name}: {field}")));
                }
                (Err(_), None) => {}
                _ => {
                    found.insert(format!("rate {}", analyze.rate));
                }
            }
        }
        for size in &case.size {
            if !rates_are_close(&server, size) {
                let Target { ttft, itl, tps } = size.target;
                found.insert(format!("{name}: size ttft={ttft} itl={itl} tps={tps}"));
            }
            // Latency at the recorded rate: close to saturation it differs by far more than the rate.
            let (Some(rate), Some(metrics), Some(achieved)) = (size.rate_target, &size.metrics, size.achieved) else {
                continue;
            };
            let ours = server.predict(rate.lowest()).unwrap();
            let fields = differing_fields(&ours, metrics);
            found.extend(fields.into_iter().map(|field| format!("{name}: {field}")));
            assert!(is_close(ours.throughput * output, achieved.tps), "{name}");
            assert!(is_close_above(ours.ttft, achieved.ttft, WAIT_RESOLUTION * metrics.avg_resp_time), "{name}");
        }
    }
    found.into_iter().collect()
}

const NO_RATE: &str = "upstream rejects a rate of 0; the latencies of an idle replica are known";
const CONSTANT_ITL: &str = "upstream bisects a constant ITL as if it fell with the rate; a target at or above it does not limit \
                            the rate, and one below it cannot be met";
const PREFILL_SUBTRACTED: &str =
    "upstream subtracts gamma from a service time without prefill, which leaves an ITL of alpha";

#[test]
fn prefill_decode_form_matches_upstream() {
    let Some(file) = load_vectors::<Analyzer>("queue-analyzer-prefill-decode.json") else { return };
    assert_known_differences(
        &[
            ("batch-1-queue-1: size ttft=0 itl=0.001 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=0 itl=11 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=1000000000 itl=1000000000 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=500 itl=24 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=500 itl=80 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=54.384552 itl=11 tps=0", CONSTANT_ITL),
            ("batch-1-queue-1: size ttft=54.384552 itl=11 tps=100", CONSTANT_ITL),
            (
                "optimizer-envtest-perf: size ttft=0.001 itl=0 tps=0",
                "without prefill TTFT is the wait, which upstream computes in steps of 0.0005 ms as a difference in f32",
            ),
            ("rate 0", NO_RATE),
            ("upstream-test-config-decode-only-1-token: itl", PREFILL_SUBTRACTED),
            ("upstream-test-config-decode-only-1-token: size ttft=0 itl=0.001 tps=0", PREFILL_SUBTRACTED),
            ("upstream-test-config-decode-only-1-token: size ttft=0 itl=1 tps=0", PREFILL_SUBTRACTED),
            ("upstream-test-config-decode-only-1-token: size ttft=0.554687 itl=1 tps=0", PREFILL_SUBTRACTED),
            ("upstream-test-config-decode-only-1-token: size ttft=0.554687 itl=1 tps=100", PREFILL_SUBTRACTED),
            ("upstream-test-config-decode-only-1-token: size ttft=1000000000 itl=1000000000 tps=0", CONSTANT_ITL),
            ("upstream-test-config-decode-only-1-token: size ttft=500 itl=24 tps=0", CONSTANT_ITL),
            ("upstream-test-config-decode-only-1-token: size ttft=500 itl=80 tps=0", CONSTANT_ITL),
        ],
        &differences(analyzer_differences(&file)),
    );
}

#[test]
fn iteration_form_matches_upstream() {
    let Some(file) = load_vectors::<Analyzer>("queue-analyzer-iteration.json") else { return };
    assert_known_differences(&[], &differences(analyzer_differences(&file)));
}

#[derive(Deserialize)]
struct Observed {
    cases: Vec<ObservedCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObservedCase {
    name: String,
    input: ObservedInput,
    printed: Printed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObservedInput {
    alpha: f64,
    beta: f64,
    gamma: f64,
    delta: f64,
    max_batch: u32,
    max_queue: Option<u32>,
    rate_req_per_min: f64,
    avg_in_tokens: f64,
    avg_out_tokens: f64,
    slo_itl_ms: f64,
    slo_ttft_ms: f64,
    min_replicas: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    num_replicas: f64,
    itl: f64,
    ttft: f64,
    rho: f64,
    #[serde(rename = "maxRPM")]
    max_rpm: f64,
}

fn observed_differences(case: &ObservedCase) -> Vec<String> {
    let ObservedInput { alpha, beta, gamma, delta, max_batch, avg_in_tokens, avg_out_tokens, .. } = case.input;
    let times = ServiceTimes::PrefillDecode { alpha, beta, gamma, delta };
    // Without load upstream prints the times of a request with one token.
    let idle = case.input.rate_req_per_min == 0.0;
    let shape = RequestShape { input: if idle { 1.0 } else { avg_in_tokens }, output: avg_out_tokens.max(1.0) };
    let server = ModelServer::new(times, max_batch, case.input.max_queue.unwrap_or(10 * max_batch), shape).unwrap();
    let (ttft_ms, itl_ms) = (Some(case.input.slo_ttft_ms), Some(case.input.slo_itl_ms));
    let sizing = server.size(&LatencyTargets { ttft_ms, itl_ms, tps: None }).unwrap();
    let rate = case.input.rate_req_per_min / 60.0;
    let replicas = (rate / sizing.throughput).ceil().max(case.input.min_replicas);
    let ours = server.predict(rate / replicas).unwrap();
    let fields = [
        ("replicas", replicas == case.printed.num_replicas),
        ("itl", is_close(ours.itl, case.printed.itl)),
        ("ttft", is_close_above(ours.ttft, case.printed.ttft, WAIT_RESOLUTION * ours.response)),
        ("utilization", is_close(ours.utilization, case.printed.rho)),
        ("max rate", is_close(sizing.rate * 60.0, case.printed.max_rpm)),
    ];
    fields.into_iter().filter(|(_, close)| !close).map(|(field, _)| format!("{}: {field}", case.name)).collect()
}

#[test]
fn field_results_match_printed_logs() {
    let Some(file) = load_vectors::<Observed>("field-observed.json") else { return };
    let found: Vec<String> = file.cases.iter().flat_map(observed_differences).collect();
    assert_known_differences(
        &[
            ("a100-decode-only-122-rpm: itl", PREFILL_SUBTRACTED),
            ("a100-decode-only-122-rpm: max rate", PREFILL_SUBTRACTED),
            ("h100-zero-load: max rate", "without load upstream prints the rate of a full batch, whatever the targets"),
        ],
        &differences(found),
    );
}
