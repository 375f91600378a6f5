//! Delays between polls.

use std::time::Duration;

use tokio::time::{self, Instant};

/// The delay after `failures` earlier failures: `first`, doubled for each of them, up to `longest`.
pub fn backoff(first: Duration, failures: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}

/// Sleeps until then, or for ever.
pub async fn sleep_until(then: Option<Instant>) {
    match then {
        Some(then) => time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}
