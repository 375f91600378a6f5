//! Remembers the tokens that were recently allowed to read `/metrics`, so that autoscalers that depend on the metrics
//! do not wait for a slow API server. Denied tokens are not remembered.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// A cluster has a handful of scrapers, and each a new token now and then.
const MOST: usize = 64;

/// Validity of one review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Within this time, a token is accepted without another review.
    pub fresh: Duration,
    /// Within this time, a token that was allowed is accepted if no review is possible.
    pub lasting: Duration,
    /// Time limit for the review of such a token. The response must arrive before the scrape times out.
    pub patience: Duration,
}

impl Default for Trust {
    fn default() -> Self {
        Self { fresh: Duration::from_secs(60), lasting: Duration::from_secs(10 * 60), patience: Duration::from_secs(3) }
    }
}

/// Hash of a token, so that the token itself does not stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark([u8; 32]);

impl Mark {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Tokens that were allowed. A denied token is reviewed at each request, so that a new permission takes effect at once.
pub struct Admitted {
    pub trust: Trust,
    /// When each was last allowed.
    known: Mutex<BTreeMap<Mark, Instant>>,
}

impl Admitted {
    pub fn new(trust: Trust) -> Self {
        Self { trust, known: Mutex::default() }
    }

    /// Whether the token is accepted without a review.
    pub fn is_fresh(&self, mark: Mark, now: Instant) -> bool {
        self.within(self.trust.fresh, mark, now)
    }

    /// Whether the token is accepted if no review is possible.
    pub fn lasts(&self, mark: Mark, now: Instant) -> bool {
        self.within(self.trust.lasting, mark, now)
    }

    pub fn allow(&self, mark: Mark, now: Instant) {
        let mut known = self.known();
        known.retain(|_, at| now.saturating_duration_since(*at) < self.trust.lasting);
        known.insert(mark, now);
        if known.len() > MOST {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(mark, _)| *mark);
            oldest.and_then(|mark| known.remove(&mark));
        }
    }

    /// Forgets a token that has lost its permission.
    pub fn refuse(&self, mark: Mark) {
        self.known().remove(&mark);
    }

    fn within(&self, limit: Duration, mark: Mark, now: Instant) -> bool {
        self.known().get(&mark).is_some_and(|at| now.saturating_duration_since(*at) < limit)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Mark, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_expires_later_without_api_server() {
        let (admitted, now, mark) = (Admitted::new(Trust::default()), Instant::now(), Mark::of("token"));
        let at = |seconds| {
            let then = now + Duration::from_secs(seconds);
            (admitted.is_fresh(mark, then), admitted.lasts(mark, then))
        };
        assert_eq!(at(0), (false, false), "nobody was asked");
        admitted.allow(mark, now);
        for (seconds, expected) in
            [(0, (true, true)), (59, (true, true)), (60, (false, true)), (599, (false, true)), (600, (false, false))]
        {
            assert_eq!(at(seconds), expected, "after {seconds} s");
        }
        assert!(!admitted.lasts(Mark::of("other"), now));
        admitted.refuse(mark);
        assert_eq!(at(0), (false, false), "a refusal ends it");
    }

    #[test]
    fn oldest_tokens_are_evicted_first() {
        let (admitted, began) = (Admitted::new(Trust::default()), Instant::now());
        let mark = |number: u64| Mark::of(&number.to_string());
        let after = |number: u64| began + Duration::from_millis(number);
        let most = MOST as u64;
        (0..=most).for_each(|number| admitted.allow(mark(number), after(number)));
        assert_eq!(admitted.known().len(), MOST);
        assert!(!admitted.lasts(mark(0), after(most)) && admitted.lasts(mark(1), after(most)));
        let later = after(most) + Duration::from_secs(600);
        admitted.allow(mark(0), later);
        assert_eq!(admitted.known().len(), 1, "what is too old to count is not kept");
    }
}
