//! Schedules the discovery of GPUs and keeps its last result.

use std::collections::BTreeMap;
use std::time::Duration;

use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

use crate::polling::backoff;

/// Validity of a result for a new request, and interval of discovery while requests wait.
const VALIDITY: Duration = Duration::from_secs(60);

/// Interval after the first failure; each further one doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct DiscoverySchedule {
    last: Option<(Instant, ObservedHardware)>,
    /// Waiting requests, and whether each has received a result.
    waiting: BTreeMap<NamespacedName, bool>,
    failures: u32,
    not_before: Option<Instant>,
}

impl DiscoverySchedule {
    /// The last result. None: discovery must run first. A request that has received a result keeps it until there is a new
    /// one, however old it is: otherwise the status of a waiting request would flap.
    pub fn last_result(&mut self, place: &NamespacedName, now: Instant) -> Option<ObservedHardware> {
        let received = self.waiting.get(place).copied().unwrap_or_default();
        let known = self.last.as_ref().filter(|(when, _)| received || now.duration_since(*when) < VALIDITY);
        let known = known.map(|(_, hardware)| hardware.clone());
        self.waiting.insert(place.clone(), known.is_some());
        known
    }

    pub fn forget(&mut self, place: &NamespacedName) {
        self.waiting.remove(place);
    }

    /// The time of the next discovery. None: no request waits.
    pub fn due(&self) -> Option<Instant> {
        let all_received = self.waiting.values().all(|received| *received);
        let due = match &self.last {
            _ if self.waiting.is_empty() => return None,
            Some((when, _)) if all_received => *when + VALIDITY,
            _ => Instant::now(),
        };
        Some(self.not_before.map_or(due, |earliest| due.max(earliest)))
    }

    /// Stores a result, and returns the requests for which it is new.
    pub fn store_result(&mut self, hardware: ObservedHardware, now: Instant) -> Vec<NamespacedName> {
        (self.failures, self.not_before) = (0, None);
        let new = self.last.as_ref().is_none_or(|(_, before)| *before != hardware);
        self.last = Some((now, hardware));
        let mut concerned = Vec::new();
        for (place, received) in &mut self.waiting {
            if new || !*received {
                *received = true;
                concerned.push(place.clone());
            }
        }
        concerned
    }

    pub fn failed(&mut self, now: Instant) {
        let wait = backoff(FIRST_RETRY, self.failures, VALIDITY);
        (self.failures, self.not_before) = (self.failures.saturating_add(1), Some(now + wait));
    }
}

#[cfg(test)]
mod tests {
    use steersman_reconcile::Lookup;

    use super::*;

    fn place(name: &str) -> NamespacedName {
        NamespacedName::new("ns", name)
    }

    fn hardware(rdma_pod: bool) -> ObservedHardware {
        ObservedHardware { awaited: false, rdma_pod, nodes: Lookup::Known(vec![]), ..ObservedHardware::awaited() }
    }

    #[test]
    fn result_serves_new_requests_for_a_minute() {
        let (mut known, now) = (DiscoverySchedule::default(), Instant::now());
        assert_eq!(known.due(), None, "no request waits");
        assert_eq!(known.last_result(&place("a"), now), None);
        assert_eq!(known.last_result(&place("b"), now), None);
        assert!(known.due().unwrap() <= Instant::now());
        assert_eq!(known.store_result(hardware(false), now), [place("a"), place("b")]);
        let later = now + Duration::from_secs(59);
        assert_eq!(known.last_result(&place("c"), later), Some(hardware(false)));
        assert_eq!(known.due(), Some(now + VALIDITY));
        let too_late = now + VALIDITY;
        assert_eq!(known.last_result(&place("d"), too_late), None, "an old result is not used for a new request");
        assert!(known.due().unwrap() <= Instant::now());
    }

    #[test]
    fn waiting_request_keeps_result_until_change() {
        let (mut known, now) = (DiscoverySchedule::default(), Instant::now());
        known.last_result(&place("a"), now);
        known.store_result(hardware(false), now);
        let (minute, hour) = (now + VALIDITY, now + 60 * VALIDITY);
        assert_eq!(known.last_result(&place("a"), minute), Some(hardware(false)));
        assert_eq!(
            known.store_result(hardware(false), minute),
            [] as [NamespacedName; 0],
            "an unchanged result enqueues no request"
        );
        assert_eq!(known.due(), Some(minute + VALIDITY));
        assert_eq!(known.store_result(hardware(true), hour), [place("a")]);
        known.forget(&place("a"));
        assert_eq!(known.due(), None, "no discovery runs without a waiting request");
        assert_eq!(
            known.last_result(&place("a"), hour + VALIDITY),
            None,
            "a later request of the same name gets no old result"
        );
    }

    #[test]
    fn failed_discovery_backs_off() {
        let (mut known, now) = (DiscoverySchedule::default(), Instant::now() + VALIDITY);
        known.last_result(&place("a"), now);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            known.failed(now);
            assert_eq!(known.due(), Some(now + Duration::from_secs(seconds)));
        }
        assert_eq!(known.store_result(hardware(false), now), [place("a")]);
        assert_eq!(known.due(), Some(now + VALIDITY));
    }
}
