//! Remembers the tokens that were recently allowed to read `/metrics`, so that autoscalers that depend on the metrics
//! do not wait for a slow API server. Denied tokens are not remembered.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// A cluster has a handful of scrapers, and each a new token now and then.
const MAX_TOKENS: usize = 64;

/// Validity of one review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewValidity {
    /// Within this time, a token is accepted without another review.
    pub fresh: Duration,
    /// Within this time, a token that was allowed is accepted if no review is possible.
    pub lasting: Duration,
    /// Time limit for the review of such a token. The response must arrive before the scrape times out.
    pub patience: Duration,
}

impl Default for ReviewValidity {
    fn default() -> Self {
        Self { fresh: Duration::from_secs(60), lasting: Duration::from_secs(10 * 60), patience: Duration::from_secs(3) }
    }
}

/// Hash of a token, so that the token itself does not stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Tokens that were allowed. A denied token is reviewed at each request, so that a new permission takes effect at once.
pub struct AllowedTokens {
    pub validity: ReviewValidity,
    /// When each was last allowed.
    known: Mutex<BTreeMap<TokenHash, Instant>>,
}

impl AllowedTokens {
    pub fn new(validity: ReviewValidity) -> Self {
        Self { validity, known: Mutex::default() }
    }

    /// Whether the token is accepted without a review.
    pub fn is_fresh(&self, hash: TokenHash, now: Instant) -> bool {
        self.within(self.validity.fresh, hash, now)
    }

    /// Whether the token is accepted if no review is possible.
    pub fn is_valid_without_review(&self, hash: TokenHash, now: Instant) -> bool {
        self.within(self.validity.lasting, hash, now)
    }

    pub fn allow(&self, hash: TokenHash, now: Instant) {
        let mut known = self.known();
        known.retain(|_, at| now.saturating_duration_since(*at) < self.validity.lasting);
        known.insert(hash, now);
        if known.len() > MAX_TOKENS {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(hash, _)| *hash);
            oldest.and_then(|hash| known.remove(&hash));
        }
    }

    /// Forgets a token that has lost its permission.
    pub fn refuse(&self, hash: TokenHash) {
        self.known().remove(&hash);
    }

    fn within(&self, limit: Duration, hash: TokenHash, now: Instant) -> bool {
        self.known().get(&hash).is_some_and(|at| now.saturating_duration_since(*at) < limit)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<TokenHash, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_expires_later_without_api_server() {
        let (allowed_tokens, now, hash) =
            (AllowedTokens::new(ReviewValidity::default()), Instant::now(), TokenHash::of("token"));
        let at = |seconds| {
            let then = now + Duration::from_secs(seconds);
            (allowed_tokens.is_fresh(hash, then), allowed_tokens.is_valid_without_review(hash, then))
        };
        assert_eq!(at(0), (false, false), "not reviewed");
        allowed_tokens.allow(hash, now);
        for (seconds, expected) in
            [(0, (true, true)), (59, (true, true)), (60, (false, true)), (599, (false, true)), (600, (false, false))]
        {
            assert_eq!(at(seconds), expected, "after {seconds} s");
        }
        assert!(!allowed_tokens.is_valid_without_review(TokenHash::of("other"), now));
        allowed_tokens.refuse(hash);
        assert_eq!(at(0), (false, false), "a denial ends it");
    }

    #[test]
    fn oldest_tokens_are_evicted_first() {
        let (allowed_tokens, began) = (AllowedTokens::new(ReviewValidity::default()), Instant::now());
        let hash = |number: u64| TokenHash::of(&number.to_string());
        let after = |number: u64| began + Duration::from_millis(number);
        let most = MAX_TOKENS as u64;
        (0..=most).for_each(|number| allowed_tokens.allow(hash(number), after(number)));
        assert_eq!(allowed_tokens.known().len(), MAX_TOKENS);
        assert!(
            !allowed_tokens.is_valid_without_review(hash(0), after(most))
                && allowed_tokens.is_valid_without_review(hash(1), after(most))
        );
        let later = after(most) + Duration::from_secs(600);
        allowed_tokens.allow(hash(0), later);
        assert_eq!(allowed_tokens.known().len(), 1, "expired tokens are dropped");
    }
}
