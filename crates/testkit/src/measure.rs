//! Measures the duration of functions for benchmarks, and prints the median and the 99th percentile as a table.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

const WARM_UP_TIME: Duration = Duration::from_millis(300);
const MEASURE_TIME: Duration = Duration::from_secs(2);
const MAX_RUNS: usize = 20_000;

pub struct Measurement {
    pub case: &'static str,
    /// The input of the measured function.
    pub input: String,
    pub goal: Duration,
    pub median: Duration,
    pub p99: Duration,
    pub runs: usize,
}

/// Measures `run` without the time of `prepare`.
pub fn measure<I, O>(
    case: &'static str,
    input: String,
    goal: Duration,
    prepare: impl Fn() -> I,
    run: impl Fn(I) -> O,
) -> Measurement {
    let warm_up_start = Instant::now();
    while warm_up_start.elapsed() < WARM_UP_TIME {
        black_box(run(black_box(prepare())));
    }
    let started = Instant::now();
    let mut times = Vec::with_capacity(MAX_RUNS);
    while times.len() < MAX_RUNS && (started.elapsed() < MEASURE_TIME || times.is_empty()) {
        let input = black_box(prepare());
        let before = Instant::now();
        let output = black_box(run(input));
        times.push(before.elapsed());
        drop(output);
    }
    times.sort_unstable();
    let percentile = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    Measurement { case, input, goal, median: percentile(50), p99: percentile(99), runs: times.len() }
}

/// All rows as a table. Rows that miss their goal are marked.
pub fn table(rows: &[Measurement]) -> String {
    let mut table =
        format!("{:<20} {:<40} {:>10} {:>10} {:>10} {:>7}", "case", "objects", "median", "p99", "goal", "runs");
    for Measurement { case, input, goal, median, p99, runs } in rows {
        let verdict = if median > goal { "  above the goal" } else { "" };
        let [median, p99, goal] = [median, p99, goal].map(|time| format_duration(*time));
        // Writing to a `String` cannot fail.
        let _ = write!(table, "\n{case:<20} {input:<40} {median:>10} {p99:>10} {goal:>10} {runs:>7}{verdict}");
    }
    table
}

/// Formats a duration with its unit.
pub fn format_duration(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        ..1e3 => format!("{micros:.1} µs"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}
