//! Delays between polls.

pub use steersman_runtime::backoff::backoff;
use tokio::time::{self, Instant};

/// Sleeps until then, or for ever.
pub async fn sleep_until(then: Option<Instant>) {
    match then {
        Some(then) => time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}
