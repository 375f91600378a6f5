//! Predicts throughput, latency and occupancy of one replica at a request rate.
//!
//! TTFT and ITL do not fall when the rate rises: they are sums of means that do not (see `queue`), and ITL of the
//! iteration form is limited to its peak.

use serde::{Deserialize, Serialize};

use super::queue::{Queue, SteadyState};
use super::{Input, QueueingError, check_range};

/// A prediction takes time in proportion to the batch size, which users choose. Servers use at most a few thousand.
pub const MAX_BATCH: u32 = 16_384;
/// Limit of service parameters and token counts.
const MAX_INPUT: f64 = 1e9;
/// Limits of the time in service, in milliseconds. They keep all results finite.
const MIN_SERVICE_TIME: f64 = 1e-9;
const MAX_SERVICE_TIME: f64 = 1e30;
/// The rate range in shares of the completion rate with one request, and with a full batch.
const MIN_LOAD: f64 = 0.001;
const MAX_LOAD: f64 = 0.999;
/// Relative excess up to which a rate or latency that was rounded on its way still counts as its limit.
pub(super) const ROUNDING_TOLERANCE: f64 = 1e-6;
const MS_PER_SECOND: f64 = 1_000.0;

/// Parameters of the time in service, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceTimes {
    /// Prefill takes `gamma + delta · input · n` with `n` requests in service, and each decode `alpha + beta · n`.
    PrefillDecode { alpha: f64, beta: f64, gamma: f64, delta: f64 },
    /// An iteration takes `alpha`, plus `beta` for each token computed and `gamma` for each token read from the KV cache.
    Iteration { alpha: f64, beta: f64, gamma: f64 },
}

/// Average tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestShape {
    /// 0 if the server does not prefill.
    pub input: f64,
    /// At least 1.
    pub output: f64,
}

/// A replica with validated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelServer {
    times: ServiceTimes,
    max_batch: u32,
    max_queue: u32,
    shape: RequestShape,
    #[serde(skip)]
    prefill: LinearTime,
    #[serde(skip)]
    decode: LinearTime,
    /// Time in service: prefill and all decodes.
    #[serde(skip)]
    service: LinearTime,
    #[serde(skip)]
    itl_peak: Option<ItlPeak>,
}

/// Rates that the model covers, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateRange {
    /// Lowest rate that sizing returns. Lower rates are predicted, too.
    pub min: f64,
    /// Just below the completion rate of a full batch.
    pub max: f64,
}

/// Means in steady state. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prediction {
    /// Completed requests per second. Lower than the rate if the queue is full at times.
    pub throughput: f64,
    /// Time in the queue.
    pub wait: f64,
    pub prefill: f64,
    /// Time to first token, including the wait.
    pub ttft: f64,
    /// Time between two tokens of a request.
    pub itl: f64,
    /// From arrival to the last token.
    pub response: f64,
    /// Requests in service.
    pub in_service: f64,
    /// Requests in service as a share of the maximum batch size.
    pub utilization: f64,
}

/// A time that grows linearly with the number of requests in service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LinearTime {
    fixed: f64,
    per_request: f64,
}

/// Rate with the highest ITL of the iteration form, if that is not the maximum rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ItlPeak {
    rate: f64,
    itl: f64,
}

impl LinearTime {
    fn at(self, requests: f64) -> f64 {
        self.fixed + self.per_request * requests
    }
}

impl ServiceTimes {
    fn check(self) -> Result<(), QueueingError> {
        let (decode, prefill) = match self {
            Self::PrefillDecode { alpha, beta, gamma, delta } => ((alpha, beta), [gamma, delta]),
            Self::Iteration { alpha, beta, gamma } => ((alpha, beta), [gamma, 0.0]),
        };
        let inputs = [Input::Alpha, Input::Beta, Input::Gamma, Input::Delta];
        for (input, value) in inputs.into_iter().zip([decode.0, decode.1, prefill[0], prefill[1]]) {
            check_range(input, value, 0.0, MAX_INPUT)?;
        }
        Ok(())
    }

    /// Prefill, one decode, and the number of decodes.
    fn phases(self, shape: RequestShape) -> (LinearTime, LinearTime, f64) {
        let RequestShape { input, output } = shape;
        let (prefill, decode, decodes) = match self {
            Self::PrefillDecode { alpha, beta, gamma, delta } => (
                LinearTime { fixed: gamma, per_request: delta * input },
                LinearTime { fixed: alpha, per_request: beta },
                // Prefill yields the first token. Without it, even a single token needs a decode.
                if input > 0.0 { output - 1.0 } else { (output - 1.0).max(1.0) },
            ),
            Self::Iteration { alpha, beta, gamma } => {
                let context = input + output / 2.0;
                let per_request = beta * (input + output) / (output + 1.0) + gamma * context;
                (
                    LinearTime { fixed: alpha + (beta + gamma) * input, per_request },
                    LinearTime { fixed: alpha + beta + gamma * context, per_request },
                    output,
                )
            }
        };
        (if input > 0.0 { prefill } else { LinearTime::default() }, decode, decodes)
    }
}

impl ModelServer {
    pub fn new(
        times: ServiceTimes,
        max_batch: u32,
        max_queue: u32,
        shape: RequestShape,
    ) -> Result<Self, QueueingError> {
        times.check()?;
        check_range(Input::InputTokens, shape.input, 0.0, MAX_INPUT)?;
        check_range(Input::OutputTokens, shape.output, 1.0, MAX_INPUT)?;
        check_range(Input::MaxBatch, f64::from(max_batch), 1.0, f64::from(MAX_BATCH))?;
        let (prefill, decode, decodes) = times.phases(shape);
        let service = LinearTime {
            fixed: prefill.fixed + decodes * decode.fixed,
            per_request: prefill.per_request + decodes * decode.per_request,
        };
        for requests in [1.0, f64::from(max_batch)] {
            check_range(Input::ServiceTime, service.at(requests), MIN_SERVICE_TIME, MAX_SERVICE_TIME)?;
        }
        let server = Self { times, max_batch, max_queue, shape, prefill, decode, service, itl_peak: None };
        Ok(Self { itl_peak: server.find_itl_peak(), ..server })
    }

    pub fn times(&self) -> ServiceTimes {
        self.times
    }

    pub fn max_batch(&self) -> u32 {
        self.max_batch
    }

    pub fn max_queue(&self) -> u32 {
        self.max_queue
    }

    pub fn shape(&self) -> RequestShape {
        self.shape
    }

    pub fn rate_range(&self) -> RateRange {
        let max_batch = f64::from(self.max_batch);
        RateRange {
            min: MS_PER_SECOND * MIN_LOAD / self.service.at(1.0),
            max: MS_PER_SECOND * MAX_LOAD * max_batch / self.service.at(max_batch),
        }
    }

    /// A rate of 0 yields the latencies of a single request.
    pub fn predict(&self, rate: f64) -> Result<Prediction, QueueingError> {
        check_range(Input::Rate, rate, 0.0, f64::MAX)?;
        let max = self.rate_range().max;
        if rate > max * (1.0 + ROUNDING_TOLERANCE) {
            return Err(QueueingError::RateAboveMaximum { rate, max });
        }
        Ok(self.prediction(rate))
    }

    /// `rate` is not negative and at most the maximum of the range, apart from rounding.
    pub(super) fn prediction(&self, rate: f64) -> Prediction {
        let state = self.steady_state(rate);
        let in_service = state.in_service();
        let (prefill, itl, first_token) = match self.times {
            ServiceTimes::PrefillDecode { .. } => {
                (self.prefill.at(state.concurrency), self.decode.at(state.concurrency), 0.0)
            }
            ServiceTimes::Iteration { .. } => {
                let itl = match self.itl_peak {
                    Some(peak) if rate > peak.rate => peak.itl,
                    _ => self.iteration_itl(&state),
                };
                (self.prefill.at(in_service), itl, itl)
            }
        };
        Prediction {
            throughput: state.throughput * MS_PER_SECOND,
            wait: state.wait,
            prefill,
            ttft: state.wait + prefill + first_token,
            itl,
            response: state.response(),
            in_service,
            utilization: (in_service / f64::from(self.max_batch)).clamp(0.0, 1.0),
        }
    }

    fn steady_state(&self, rate: f64) -> SteadyState {
        let service_time = |requests| self.service.at(requests);
        Queue { max_batch: self.max_batch, max_queue: self.max_queue, service_time }.solve(rate / MS_PER_SECOND)
    }

    /// The time in service without prefill, per output token. A request has `concurrency` requests in service for
    /// company, itself included, but its prefill is charged only for those that it finds: one less if it does not wait.
    fn iteration_itl(&self, state: &SteadyState) -> f64 {
        self.decode.at(state.concurrency) + self.prefill.per_request * state.immediate / self.shape.output
    }

    /// ITL of the iteration form can fall near saturation with very small batches and outputs, because requests that
    /// wait are charged more for prefill. A server does not become faster with load, so ITL stays at its peak.
    ///
    /// There is one peak: ITL is the mean of a quantity that rises with the state and drops once, at the state
    /// `max_batch`. The weights `rate^i` are totally positive, so the mean minus any constant changes its sign as often as
    /// that quantity at most, and in the same order.
    fn find_itl_peak(&self) -> Option<ItlPeak> {
        const GOLDEN_SECTION: f64 = 0.618_033_988_749_894_9;
        const STEPS: u32 = 50;
        if matches!(self.times, ServiceTimes::PrefillDecode { .. }) || self.prefill.per_request <= 0.0 {
            return None;
        }
        let itl = |rate| self.iteration_itl(&self.steady_state(rate));
        let (mut low, mut high) = (0.0, self.rate_range().max * (1.0 + ROUNDING_TOLERANCE));
        if itl(high) >= itl(high * (1.0 - ROUNDING_TOLERANCE)) {
            return None;
        }
        let point = |low: f64, high: f64, share: f64| low + share * (high - low);
        let (mut left, mut right) = (point(low, high, 1.0 - GOLDEN_SECTION), point(low, high, GOLDEN_SECTION));
        let (mut left_itl, mut right_itl) = (itl(left), itl(right));
        for _ in 0..STEPS {
            if left_itl < right_itl {
                (low, left, left_itl) = (left, right, right_itl);
                right = point(low, high, GOLDEN_SECTION);
                right_itl = itl(right);
            } else {
                (high, right, right_itl) = (right, left, left_itl);
                left = point(low, high, 1.0 - GOLDEN_SECTION);
                left_itl = itl(left);
            }
        }
        let inner = ItlPeak { rate: left, itl: left_itl.max(right_itl) };
        let unloaded = ItlPeak { rate: 0.0, itl: itl(0.0) };
        Some(if unloaded.itl >= inner.itl { unloaded } else { inner })
    }
}
