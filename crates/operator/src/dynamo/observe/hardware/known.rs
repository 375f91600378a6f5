//! What is known of the GPUs, who wants to know it, and when to look again.
//! Comes in: requests, answers and the time; goes out: what is known, when to look next, and whom to wake.

use std::collections::BTreeMap;
use std::time::Duration;

use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_reconcile::NamespacedName;
use tokio::time::Instant;

/// How long an answer counts for a request that has none yet, and how often it is looked again while one waits.
const HOLDS: Duration = Duration::from_secs(60);

/// After a look that failed; each further one doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Known {
    last: Option<(Instant, ObservedHardware)>,
    /// Who wants to know, and whether they were told anything yet.
    waiting: BTreeMap<NamespacedName, bool>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Known {
    /// What there is to know. None: it is to be looked up. Who was told something is told it until there is something new,
    /// however old it is by then: otherwise a request that waits would take back each time what it waits for.
    pub fn want(&mut self, place: &NamespacedName, now: Instant) -> Option<ObservedHardware> {
        let told = self.waiting.get(place).copied().unwrap_or_default();
        let known = self.last.as_ref().filter(|(when, _)| told || now.duration_since(*when) < HOLDS);
        let known = known.map(|(_, seen)| seen.clone());
        self.waiting.insert(place.clone(), known.is_some());
        known
    }

    pub fn forget(&mut self, place: &NamespacedName) {
        self.waiting.remove(place);
    }

    /// When to look next. None: nobody wants to know.
    pub fn due(&self) -> Option<Instant> {
        let untold = self.waiting.values().any(|told| !told);
        let due = match &self.last {
            _ if self.waiting.is_empty() => return None,
            Some((when, _)) if !untold => *when + HOLDS,
            _ => Instant::now(),
        };
        Some(self.not_before.map_or(due, |earliest| due.max(earliest)))
    }

    /// Keeps an answer. Returns for whom it is new.
    pub fn learned(&mut self, seen: ObservedHardware, now: Instant) -> Vec<NamespacedName> {
        (self.failures, self.not_before) = (0, None);
        let new = self.last.as_ref().is_none_or(|(_, before)| *before != seen);
        self.last = Some((now, seen));
        let concerned = self.waiting.iter_mut().filter(|(_, told)| new || !**told);
        concerned
            .map(|(place, told)| {
                *told = true;
                place.clone()
            })
            .collect()
    }

    pub fn failed(&mut self, now: Instant) {
        let wait = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(HOLDS);
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

    fn seen(rdma_pod: bool) -> ObservedHardware {
        ObservedHardware { awaited: false, rdma_pod, nodes: Lookup::Known(vec![]), ..ObservedHardware::awaited() }
    }

    #[test]
    fn many_requests_are_answered_by_one_look_that_holds_for_a_minute() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert_eq!(known.due(), None, "nobody wants to know");
        assert_eq!(known.want(&place("a"), now), None);
        assert_eq!(known.want(&place("b"), now), None);
        assert!(known.due().unwrap() <= Instant::now());
        assert_eq!(known.learned(seen(false), now), [place("a"), place("b")]);
        let later = now + Duration::from_secs(59);
        assert_eq!(known.want(&place("c"), later), Some(seen(false)));
        assert_eq!(known.due(), Some(now + HOLDS));
        let too_late = now + HOLDS;
        assert_eq!(known.want(&place("d"), too_late), None, "what is old is not believed");
        assert!(known.due().unwrap() <= Instant::now());
    }

    #[test]
    fn who_waits_is_told_the_same_until_there_is_something_new() {
        let (mut known, now) = (Known::default(), Instant::now());
        known.want(&place("a"), now);
        known.learned(seen(false), now);
        let (minute, hour) = (now + HOLDS, now + 60 * HOLDS);
        assert_eq!(known.want(&place("a"), minute), Some(seen(false)));
        assert_eq!(known.learned(seen(false), minute), [] as [NamespacedName; 0], "the same wakes nobody");
        assert_eq!(known.due(), Some(minute + HOLDS));
        assert_eq!(known.learned(seen(true), hour), [place("a")]);
        known.forget(&place("a"));
        assert_eq!(known.due(), None, "nobody looks without need");
        assert_eq!(known.want(&place("a"), hour + HOLDS), None, "a later request of the name begins anew");
    }

    #[test]
    fn a_look_that_fails_is_made_again_ever_more_rarely() {
        let (mut known, now) = (Known::default(), Instant::now() + HOLDS);
        known.want(&place("a"), now);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            known.failed(now);
            assert_eq!(known.due(), Some(now + Duration::from_secs(seconds)));
        }
        assert_eq!(known.learned(seen(false), now), [place("a")]);
        assert_eq!(known.due(), Some(now + HOLDS));
    }
}
