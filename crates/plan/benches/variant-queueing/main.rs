//! Measures how long it takes to predict the latency of a replica, and to find the rate that it serves within its
//! latency targets, for the batch sizes of real servers. Run by `cargo xtask bench variant-queueing`, which fails if a
//! goal is missed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]
#![allow(clippy::unwrap_used, reason = "the inputs are our own")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use steersman_plan::variant::analyze::queueing::{LatencyTargets, ModelServer, RequestShape, ServiceTimes};
use steersman_testkit::measure::{Measurement, measure, table};

/// For one size search at a batch of 256. Other batches are in proportion.
const GOAL: Duration = Duration::from_micros(50);
const GOAL_BATCH: u32 = 256;
const BATCHES: [u32; 3] = [64, GOAL_BATCH, 1_024];
const SHAPE: RequestShape = RequestShape { input: 1_024.0, output: 512.0 };

fn main() -> ExitCode {
    let prefill_decode = ServiceTimes::PrefillDecode { alpha: 7.5, beta: 0.05, gamma: 3.0, delta: 0.0005 };
    let iteration = ServiceTimes::Iteration { alpha: 5.0, beta: 0.05, gamma: 0.000_05 };
    let forms = [("prefill/decode", prefill_decode), ("iteration", iteration)];
    let cases = forms.into_iter().flat_map(|(form, times)| BATCHES.map(|batch| (form, times, batch)));
    let rows: Vec<Measurement> = cases.flat_map(|(form, times, batch)| measured(form, times, batch)).collect();
    println!("{}", table(&rows));
    match rows.iter().find(|row| row.median > row.goal) {
        Some(row) => {
            eprintln!("{} with {} takes longer than its goal", row.case, row.input);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn measured(form: &str, times: ServiceTimes, batch: u32) -> [Measurement; 3] {
    let server = ModelServer::new(times, batch, 10 * batch, SHAPE).unwrap();
    let rate = server.rate_range().max * 0.8;
    let targets = |ttft, itl| LatencyTargets { ttft_ms: Some(ttft), itl_ms: Some(itl), tps: None };
    let at = server.predict(rate).unwrap();
    let (ttft_binds, both_bind) = (targets(at.ttft, 1e6), targets(at.ttft * 1.001, at.itl));
    let goal = GOAL.mul_f64((f64::from(batch) / f64::from(GOAL_BATCH)).max(1.0));
    let input = || format!("{form}, batch {batch}");
    [
        measure("predict", input(), goal, || (), |()| server.predict(black_box(rate))),
        measure("size, one target", input(), goal, || (), |()| server.size(black_box(&ttft_binds))),
        measure("size, both targets", input(), goal, || (), |()| server.size(black_box(&both_bind))),
    ]
}
