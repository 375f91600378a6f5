//! Predicts the latency of a model server from its service times, and finds the rate that it can serve within latency
//! targets.
//!
//! Rates are in requests per second and times in milliseconds. All results are finite.

mod profile;
pub mod queue;
pub mod server;
pub mod sizing;

pub use profile::{Profile, ProfileError};
pub use server::{ModelServer, Prediction, RateRange, RequestShape, ServiceTimes};
pub use sizing::{Binding, LatencyTargets, Sizing};

use std::fmt;

use serde::Serialize;

/// An input of the queueing model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    Alpha,
    Beta,
    Gamma,
    Delta,
    InputTokens,
    OutputTokens,
    MaxBatch,
    ServiceTime,
    Rate,
    Ttft,
    Itl,
    Tps,
}

impl Input {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::Gamma => "gamma",
            Self::Delta => "delta",
            Self::InputTokens => "average input tokens",
            Self::OutputTokens => "average output tokens",
            Self::MaxBatch => "maximum batch size",
            Self::ServiceTime => "service time",
            Self::Rate => "request rate",
            Self::Ttft => "TTFT",
            Self::Itl => "ITL",
            Self::Tps => "TPS",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueingError {
    /// NaN, infinite, or outside of the range in which the model is defined.
    OutOfRange { input: Input, value: f64, min: f64, max: f64 },
    /// More requests arrive than the server completes at its maximum batch size. Rates in requests per second.
    RateAboveMaximum { rate: f64, max: f64 },
    /// The target is missed even at the lowest rate. `lowest` is the latency in milliseconds at that rate.
    TargetUnreachable { target: Input, value: f64, lowest: f64 },
}

impl fmt::Display for QueueingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { input, value, min, max: f64::MAX } => {
                write!(out, "{} is {value}: use a finite number of at least {min}", input.as_str())
            }
            Self::OutOfRange { input, value, min, max } => {
                write!(out, "{} is {value}: use a number from {min} to {max}", input.as_str())
            }
            Self::RateAboveMaximum { rate, max } => {
                write!(out, "request rate {rate}/s is above the maximum of {max}/s for one replica: add replicas")
            }
            Self::TargetUnreachable { target, value, lowest } => {
                let target = target.as_str();
                write!(out, "{target} target of {value} ms cannot be met: an idle replica needs {lowest} ms. ")?;
                write!(out, "Raise the target, or choose a faster accelerator")
            }
        }
    }
}

impl std::error::Error for QueueingError {}

/// Requires `min <= value <= max`, which NaN does not satisfy.
fn check_range(input: Input, value: f64, min: f64, max: f64) -> Result<f64, QueueingError> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(QueueingError::OutOfRange { input, value, min, max }) }
}
