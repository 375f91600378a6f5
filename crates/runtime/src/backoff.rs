//! The delay between retries.

use std::time::Duration;

/// The delay after `failures` earlier failures: `first`, doubled for each of them, up to `longest`.
pub fn backoff(first: Duration, failures: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum() {
        let (first, longest) = (Duration::from_millis(500), Duration::from_secs(60));
        let delays: Vec<_> =
            [0, 1, 2, 6, 7, 99, u32::MAX].map(|failures| backoff(first, failures, longest).as_secs_f64()).to_vec();
        assert_eq!(delays, [0.5, 1.0, 2.0, 32.0, 60.0, 60.0, 60.0]);
    }
}
