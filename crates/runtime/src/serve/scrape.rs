//! Serves `/metrics`. Except on a loopback address, a client must pass a TokenReview and a SubjectAccessReview, or have
//! passed them recently.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;

use super::allowed_tokens::{AllowedTokens, ReviewValidity, TokenHash};
use crate::client::{CallError, Server, is_allowed};
use crate::rbac::Rule;
use crate::telemetry::metrics::{self, Metrics};

const PATH: &str = "/metrics";

/// Maximum concurrent reviews of unknown tokens, so that unauthenticated clients cannot flood the API server.
pub const MAX_UNKNOWN_REVIEWS: usize = 4;

/// Maximum concurrent reviews of recently allowed tokens, each of which may have to wait for a slow API server.
pub const MAX_KNOWN_REVIEWS: usize = 16;

/// Longest wait for a free review slot.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(1);

/// RBAC rules that the reviews need.
pub fn rules() -> Vec<Rule> {
    let rule = |group, resource, why| Rule::cluster(group, resource, &["create"], why);
    vec![
        rule("authentication.k8s.io", "tokenreviews", "authenticate clients that scrape its metrics"),
        rule("authorization.k8s.io", "subjectaccessreviews", "check whether these clients may read its metrics"),
    ]
}

/// Access control of `/metrics`.
pub enum Guard {
    /// No review: the server listens on a loopback address only.
    Everyone,
    /// Clients that the cluster allows to `get` the path. `ReviewValidity` bounds how long a review is valid.
    Reviewed(Server, ReviewValidity),
}

struct ScrapeContext {
    metrics: Arc<Metrics>,
    /// `None` admits every client.
    reviewer: Option<TokenReviewer>,
}

struct TokenReviewer {
    server: Server,
    allowed_tokens: AllowedTokens,
    unknown: Semaphore,
    /// Slots for recently allowed tokens, separate so that unknown clients cannot delay them.
    known: Semaphore,
}

/// `/metrics`, and 404 for everything else.
pub fn routes(metrics: Arc<Metrics>, guard: Guard) -> Router {
    let reviewer = match guard {
        Guard::Everyone => None,
        Guard::Reviewed(server, validity) => Some(TokenReviewer {
            server,
            allowed_tokens: AllowedTokens::new(validity),
            unknown: Semaphore::new(MAX_UNKNOWN_REVIEWS),
            known: Semaphore::new(MAX_KNOWN_REVIEWS),
        }),
    };
    let context = Arc::new(ScrapeContext { metrics, reviewer });
    let missing = || async { (StatusCode::NOT_FOUND, "not found: this server has /metrics\n") };
    Router::new().route(PATH, get(scrape)).fallback(missing).with_state(context)
}

async fn scrape(State(context): State<Arc<ScrapeContext>>, headers: HeaderMap) -> Response {
    if let Some(reviewer) = &context.reviewer
        && let Err(refusal) = reviewer.admit(&headers).await
    {
        return refusal.into_response();
    }
    match context.metrics.pieces() {
        Ok(pieces) => {
            let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
            ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], body).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot render the metrics\n").into_response(),
    }
}

/// Causes of a refused scrape.
#[derive(Debug, thiserror::Error)]
enum ScrapeRefusal {
    #[error("no valid token; send one that the cluster accepts as the header Authorization: Bearer TOKEN")]
    NoToken,
    #[error("{user} may not get the nonResourceURL {PATH}; bind a ClusterRole that allows it to this user")]
    NotAllowed { user: String },
    #[error("too many tokens are being reviewed; try again")]
    Busy,
    #[error("cannot review the token: {0}")]
    NotReviewed(#[from] CallError),
}

impl IntoResponse for ScrapeRefusal {
    fn into_response(self) -> Response {
        let text = format!("{self}\n");
        match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response(),
            Self::NotAllowed { .. } => (StatusCode::FORBIDDEN, text).into_response(),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
            Self::NotReviewed(error) => {
                tracing::warn!(%error, "cannot review the token of a scrape");
                // The cause contains the API server's address, which unauthenticated clients must not learn.
                (StatusCode::SERVICE_UNAVAILABLE, "cannot review the token now; try again\n").into_response()
            }
        }
    }
}

impl TokenReviewer {
    async fn admit(&self, headers: &HeaderMap) -> Result<(), ScrapeRefusal> {
        let token = bearer(headers).ok_or(ScrapeRefusal::NoToken)?;
        let (hash, now) = (TokenHash::of(token), Instant::now());
        if self.allowed_tokens.is_fresh(hash, now) {
            return Ok(());
        }
        let known = self.allowed_tokens.is_valid_without_review(hash, now);
        // A full queue does not show that the API server is unavailable, so it must not admit a token that may have
        // lost its permission.
        let turn =
            tokio::time::timeout(MAX_QUEUE_TIME, if known { &self.known } else { &self.unknown }.acquire()).await;
        let Ok(_turn) = turn else { return Err(ScrapeRefusal::Busy) };
        let reviewed = if known {
            let patience = self.allowed_tokens.validity.patience;
            let late = |_| Err(self.server.too_slow(patience).into());
            tokio::time::timeout(patience, self.review(token)).await.unwrap_or_else(late)
        } else {
            self.review(token).await
        };
        match &reviewed {
            Ok(()) => self.allowed_tokens.allow(hash, now),
            Err(ScrapeRefusal::NotReviewed(error)) if known && is_unavailable(error) => {
                tracing::warn!(%error, "cannot review the token of a scrape; it is accepted because it was allowed recently");
                return Ok(());
            }
            Err(ScrapeRefusal::NotReviewed(_) | ScrapeRefusal::Busy) => {}
            Err(ScrapeRefusal::NoToken | ScrapeRefusal::NotAllowed { .. }) => self.allowed_tokens.refuse(hash),
        }
        reviewed
    }

    async fn review(&self, token: &str) -> Result<(), ScrapeRefusal> {
        let user = authenticated(&self.server, token).await?.ok_or(ScrapeRefusal::NoToken)?;
        let name = user.username.clone().unwrap_or_default();
        if may_scrape(&self.server, user).await? { Ok(()) } else { Err(ScrapeRefusal::NotAllowed { user: name }) }
    }
}

/// Whether the API server is unavailable or busy. Any other error counts as an answer: our own permission may be gone.
fn is_unavailable(error: &CallError) -> bool {
    match error {
        CallError::TooSlow { .. } | CallError::Refused { .. } | CallError::Failed { .. } => true,
        CallError::Answered { code, .. } => *code == 429 || *code >= 500,
        CallError::NotTrusted { .. } | CallError::Unauthorized { .. } | CallError::NotLeading(_) => false,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn authenticated(server: &Server, token: &str) -> Result<Option<UserInfo>, CallError> {
    let reviews: Api<TokenReview> = Api::all(server.client.clone());
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = server.call(reviews.create(&PostParams::default(), &review)).await?;
    let known = answer.status.filter(|status| status.authenticated == Some(true));
    Ok(known.and_then(|status| status.user))
}

async fn may_scrape(server: &Server, user: UserInfo) -> Result<bool, CallError> {
    let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let access =
        SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..SubjectAccessReviewSpec::default() };
    is_allowed(server, user, access).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        let cases = [
            (Some("Bearer abc"), Some("abc")),
            (Some("bearer  abc "), Some("abc")),
            (Some("Basic abc"), None),
            (Some("Bearer "), None),
            (Some("Bearer"), None),
            (Some("abc"), None),
            (None, None),
        ];
        for (given, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, given.parse().unwrap());
            }
            assert_eq!(bearer(&headers), expected, "{given:?}");
        }
    }
}
