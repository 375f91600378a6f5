//! Reads `spec.variantProfile` as the parameters of the queueing model.

use std::collections::BTreeMap;

use serde::Serialize;
use steersman_api::variant::v1alpha1::{PerfParms, VariantProfile};

use super::QueueingError;
use super::server::{MAX_BATCH, ModelServer, RequestShape, ServiceTimes};

/// Requests that wait at a replica for each one in its batch, as in upstream.
const QUEUE_PER_BATCH: u32 = 10;

/// A valid `spec.variantProfile`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub times: ServiceTimes,
    pub max_batch: u32,
}

/// Path below `spec.variantProfile`, and what is wrong with the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileError {
    pub field: &'static str,
    pub why: String,
}

const MAX_BATCH_SIZE: &str = "maxBatchSize";
const ALPHA: &str = "perfParms.decodeParms.alpha";
const BETA: &str = "perfParms.decodeParms.beta";
const GAMMA: &str = "perfParms.prefillParms.gamma";
const DELTA: &str = "perfParms.prefillParms.delta";

impl Profile {
    pub fn read(profile: &VariantProfile) -> Result<Self, ProfileError> {
        let max_batch = u32::try_from(profile.max_batch_size).ok().filter(|batch| (1..=MAX_BATCH).contains(batch));
        let max_batch = max_batch.ok_or_else(|| ProfileError {
            field: MAX_BATCH_SIZE,
            why: format!("{} is not a number from 1 to {MAX_BATCH}", profile.max_batch_size),
        })?;
        let PerfParms { decode_parms, prefill_parms } = &profile.perf_parms;
        let times = ServiceTimes::PrefillDecode {
            alpha: milliseconds(decode_parms, "alpha", ALPHA)?,
            beta: milliseconds(decode_parms, "beta", BETA)?,
            gamma: milliseconds(prefill_parms, "gamma", GAMMA)?,
            delta: milliseconds(prefill_parms, "delta", DELTA)?,
        };
        let read = Self { times, max_batch };
        // A request needs at least one decode, because prefill may take no time.
        match read.server(RequestShape { input: 1.0, output: 2.0 }) {
            Ok(_) => Ok(read),
            Err(why) => Err(ProfileError { field: "perfParms", why: why.to_string() }),
        }
    }

    pub fn server(&self, shape: RequestShape) -> Result<ModelServer, QueueingError> {
        ModelServer::new(self.times, self.max_batch, QUEUE_PER_BATCH * self.max_batch, shape)
    }
}

fn milliseconds(parms: &BTreeMap<String, String>, key: &str, field: &'static str) -> Result<f64, ProfileError> {
    let text = parms.get(key).ok_or_else(|| ProfileError { field, why: "it is missing".to_owned() })?;
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| ProfileError { field, why: format!("{text:?} is not a number of milliseconds, 0 or more") })
}
