//! Debounces triggers into reconciles.

use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time;

/// Limits of the debounce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// Triggers within this time of each other become one reconcile.
    pub settle: Duration,
    /// Under constant triggers, a reconcile is due after this time.
    pub longest: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { settle: Duration::from_millis(200), longest: Duration::from_secs(2) }
    }
}

impl Rhythm {
    /// When the debounce ends, for the first and the last trigger so far.
    fn settled(self, first: Instant, last: Instant) -> Instant {
        (last + self.settle).min(first + self.longest)
    }
}

pub struct Alarm {
    rhythm: Rhythm,
    woken: Notify,
}

impl Alarm {
    pub fn new(rhythm: Rhythm) -> Self {
        Self { rhythm, woken: Notify::new() }
    }

    /// Triggers a reconcile. Any number of calls before it causes one.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Returns when the next reconcile is due: after a debounced trigger, or at `due`.
    pub async fn next(&self, due: Option<Instant>) {
        tokio::select! {
            () = self.woken.notified() => {}
            () = until(due) => {}
        }
        let first = Instant::now();
        let mut last = first;
        loop {
            tokio::select! {
                biased;
                () = until(Some(self.rhythm.settled(first, last))) => return,
                () = self.woken.notified() => last = Instant::now(),
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
        let rhythm = Rhythm { settle: Duration::from_millis(200), longest: Duration::from_secs(2) };
        let first = Instant::now();
        for (last, settled) in [(0, 200), (150, 350), (1700, 1900), (1900, 2000), (2500, 2000)] {
            let last = first + Duration::from_millis(last);
            assert_eq!(rhythm.settled(first, last) - first, Duration::from_millis(settled));
        }
    }

    #[tokio::test]
    async fn changes_during_reconcile_cause_one_more() {
        let moment = Duration::from_millis(1);
        let alarm = Alarm::new(Rhythm { settle: moment, longest: moment });
        alarm.wake();
        alarm.next(None).await;
        for _ in 0..5 {
            alarm.wake();
        }
        alarm.next(None).await;
        let third = time::timeout(50 * moment, alarm.next(None)).await;
        assert!(third.is_err(), "five wakes were one pass");
        alarm.next(Some(Instant::now())).await;
    }
}
