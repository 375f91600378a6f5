//! Finds the largest rate at which a replica meets latency targets.
//!
//! Latencies do not fall when the rate rises, so a looser target never yields a lower rate.

use serde::{Deserialize, Serialize};

use super::server::{ModelServer, Prediction, ROUNDING_TOLERANCE};
use super::{Input, QueueingError, check_range};

/// Share of the maximum rate that a throughput target leaves to a replica. Throughput rises with the rate, so such a
/// target does not limit the rate itself; the rest is a reserve against saturation.
const TPS_LOAD: f64 = 0.9;
/// Width of the final search interval, as a share of the maximum rate.
const RATE_RESOLUTION: f64 = 1e-11;

/// `None` and 0 are no target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyTargets {
    pub ttft_ms: Option<f64>,
    pub itl_ms: Option<f64>,
    /// Output tokens per second.
    pub tps: Option<f64>,
}

/// Limit that keeps the rate from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Binding {
    Ttft,
    Itl,
    Tps,
    /// All targets are met at the maximum rate.
    MaxRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sizing {
    /// Arriving requests per second.
    pub rate: f64,
    /// Completed requests per second at that rate.
    pub throughput: f64,
    pub prediction: Prediction,
    pub binding: Binding,
}

/// A rate and its prediction.
#[derive(Clone, Copy)]
struct Point {
    rate: f64,
    prediction: Prediction,
}

#[derive(Clone, Copy)]
struct Limit {
    binding: Binding,
    target: Input,
    value: f64,
    latency: fn(&Prediction) -> f64,
}

impl Limit {
    fn is_met(&self, point: &Point) -> bool {
        (self.latency)(&point.prediction) <= self.value * (1.0 + ROUNDING_TOLERANCE)
    }

    /// From -1 to 1, and 0 at the target. Latency grows like a pole near saturation; this is nearly linear there, so that
    /// the search needs few predictions.
    fn excess(&self, point: &Point) -> f64 {
        let latency = (self.latency)(&point.prediction);
        (latency - self.value) / (latency + self.value)
    }
}

impl ModelServer {
    /// The largest rate of `rate_range()` that meets all targets.
    pub fn size(&self, targets: &LatencyTargets) -> Result<Sizing, QueueingError> {
        let range = self.rate_range();
        let point = |rate| Point { rate, prediction: self.prediction(rate) };
        let (highest, mut binding) = match target(Input::Tps, targets.tps)? {
            Some(_) => (range.max * TPS_LOAD, Binding::Tps),
            None => (range.max, Binding::MaxRate),
        };
        let limits = [
            target(Input::Ttft, targets.ttft_ms)?.map(|value| Limit {
                binding: Binding::Ttft,
                target: Input::Ttft,
                value,
                latency: |p| p.ttft,
            }),
            target(Input::Itl, targets.itl_ms)?.map(|value| Limit {
                binding: Binding::Itl,
                target: Input::Itl,
                value,
                latency: |p| p.itl,
            }),
        ];
        let mut best = point(highest);
        let mut low = None;
        for limit in limits.iter().flatten() {
            if limit.is_met(&best) {
                continue;
            }
            let low = *low.get_or_insert_with(|| point(range.min));
            if !limit.is_met(&low) {
                let lowest = (limit.latency)(&low.prediction);
                return Err(QueueingError::TargetUnreachable { target: limit.target, value: limit.value, lowest });
            }
            best = highest_within(limit, low, best, range.max * RATE_RESOLUTION, point);
            binding = limit.binding;
        }
        Ok(Sizing { rate: best.rate, throughput: best.prediction.throughput, prediction: best.prediction, binding })
    }
}

fn target(input: Input, value: Option<f64>) -> Result<Option<f64>, QueueingError> {
    let Some(value) = value else { return Ok(None) };
    check_range(input, value, 0.0, f64::MAX)?;
    Ok((value > 0.0).then_some(value))
}

/// The highest rate between `low`, which meets the limit, and `high`, which does not, up to `resolution`. Uses the ITP
/// method (interpolate, truncate, project): it needs at most two steps more than bisection, and far fewer on smooth
/// functions.
fn highest_within(
    limit: &Limit,
    mut low: Point,
    mut high: Point,
    resolution: f64,
    point: impl Fn(f64) -> Point,
) -> Point {
    let (mut low_excess, mut high_excess) = (limit.excess(&low), limit.excess(&high));
    if low_excess >= 0.0 {
        return low;
    }
    let truncation = 0.2 / (high.rate - low.rate);
    let mut bisection_width = 2.0 * (high.rate - low.rate);
    while high.rate - low.rate > resolution {
        let width = high.rate - low.rate;
        let middle = low.rate + width / 2.0;
        let interpolated = (low.rate * high_excess - high.rate * low_excess) / (high_excess - low_excess);
        let toward_middle = middle - interpolated;
        let step = (truncation * width * width).max(resolution / 4.0).min(toward_middle.abs());
        let truncated = interpolated + step.copysign(toward_middle);
        // Bisection would have reached `bisection_width` by now; the next interval must not be wider.
        let radius = (bisection_width - width / 2.0).max(0.0);
        let rate = truncated.clamp(middle - radius, middle + radius);
        if !(low.rate < rate && rate < high.rate) {
            break;
        }
        let next = point(rate);
        let excess = limit.excess(&next);
        if excess <= 0.0 {
            (low, low_excess) = (next, excess);
        } else {
            (high, high_excess) = (next, excess);
        }
        if low_excess == 0.0 {
            break;
        }
        bisection_width /= 2.0;
    }
    low
}
