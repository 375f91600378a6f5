//! Debounces triggers into reconciles.

use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time;

/// Limits of the debounce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebounceConfig {
    /// Triggers that follow each other within this time cause one reconcile.
    pub quiet_period: Duration,
    /// Longest delay of a reconcile while triggers keep coming.
    pub max_delay: Duration,
}

impl Default for DebounceConfig {
    fn default() -> Self {
        Self { quiet_period: Duration::from_millis(200), max_delay: Duration::from_secs(2) }
    }
}

impl DebounceConfig {
    /// When the debounce ends, for the first and the last trigger so far.
    fn due(self, first: Instant, last: Instant) -> Instant {
        (last + self.quiet_period).min(first + self.max_delay)
    }
}

pub struct Debouncer {
    config: DebounceConfig,
    triggered: Notify,
}

impl Debouncer {
    pub fn new(config: DebounceConfig) -> Self {
        Self { config, triggered: Notify::new() }
    }

    /// Triggers a reconcile. Any number of calls before it causes one.
    pub fn trigger(&self) {
        self.triggered.notify_one();
    }

    /// Returns when the next reconcile is due: after a debounced trigger, or at `due`.
    pub async fn wait(&self, due: Option<Instant>) {
        tokio::select! {
            () = self.triggered.notified() => {}
            () = until(due) => {}
        }
        let first = Instant::now();
        let mut last = first;
        loop {
            tokio::select! {
                biased;
                () = until(Some(self.config.due(first, last))) => return,
                () = self.triggered.notified() => last = Instant::now(),
            }
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debounce_is_extended_up_to_its_limit() {
        let config = DebounceConfig { quiet_period: Duration::from_millis(200), max_delay: Duration::from_secs(2) };
        let first = Instant::now();
        for (last, due) in [(0, 200), (150, 350), (1700, 1900), (1900, 2000), (2500, 2000)] {
            let last = first + Duration::from_millis(last);
            assert_eq!(config.due(first, last) - first, Duration::from_millis(due));
        }
    }

    #[tokio::test]
    async fn changes_during_reconcile_cause_one_more() {
        let moment = Duration::from_millis(1);
        let debouncer = Debouncer::new(DebounceConfig { quiet_period: moment, max_delay: moment });
        debouncer.trigger();
        debouncer.wait(None).await;
        for _ in 0..5 {
            debouncer.trigger();
        }
        debouncer.wait(None).await;
        let third = time::timeout(50 * moment, debouncer.wait(None)).await;
        assert!(third.is_err(), "five triggers must cause one reconcile");
        debouncer.wait(Some(Instant::now())).await;
    }
}
