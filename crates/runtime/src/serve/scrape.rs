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
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;

use super::admitted::{Admitted, Mark, Trust};
use crate::client::{CallError, Server};
use crate::rbac::Rule;
use crate::telemetry::metrics::{self, Metrics};

const PATH: &str = "/metrics";

/// Maximum concurrent reviews of unknown tokens, so that unauthenticated clients cannot flood the API server.
pub const AT_ONCE: usize = 4;

/// Maximum concurrent reviews of recently allowed tokens, each of which may have to wait for a slow API server.
pub const KNOWN_AT_ONCE: usize = 16;

/// Longest wait for a free review slot.
const TURN: Duration = Duration::from_secs(1);

/// RBAC rules that the reviews need.
pub fn rules() -> Vec<Rule> {
    let reviewer = |group, resource, why| Rule::cluster(group, resource, &["create"], why);
    vec![
        reviewer("authentication.k8s.io", "tokenreviews", "learn who scrapes its metrics"),
        reviewer("authorization.k8s.io", "subjectaccessreviews", "ask whether they may read metrics"),
    ]
}

/// Access control of `/metrics`.
pub enum Guard {
    /// No review: the server listens on a loopback address only.
    Everyone,
    /// Clients that the cluster allows to `get` the path. `Trust` bounds how long a review is valid.
    Reviewed(Server, Trust),
}

struct Shared {
    metrics: Arc<Metrics>,
    /// `None` admits every client.
    door: Option<Door>,
}

struct Door {
    server: Server,
    admitted: Admitted,
    strangers: Semaphore,
    /// Slots for recently allowed tokens, separate so that unknown clients cannot delay them.
    known: Semaphore,
}

/// `/metrics`, and 404 for everything else.
pub fn routes(metrics: Arc<Metrics>, guard: Guard) -> Router {
    let door = match guard {
        Guard::Everyone => None,
        Guard::Reviewed(server, trust) => Some(Door {
            server,
            admitted: Admitted::new(trust),
            strangers: Semaphore::new(AT_ONCE),
            known: Semaphore::new(KNOWN_AT_ONCE),
        }),
    };
    let shared = Arc::new(Shared { metrics, door });
    let missing = || async { (StatusCode::NOT_FOUND, "not found: this address has /metrics\n") };
    Router::new().route(PATH, get(scrape)).fallback(missing).with_state(shared)
}

async fn scrape(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Some(door) = &shared.door
        && let Err(refusal) = door.admit(&headers).await
    {
        return refusal.into_response();
    }
    match shared.metrics.pieces() {
        Ok(pieces) => {
            let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
            ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], body).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written as text\n").into_response(),
    }
}

/// Causes of a refused scrape.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("send a token that the cluster accepts: Authorization: Bearer TOKEN")]
    NoToken,
    #[error("{user} may not get the nonResourceURL {PATH}; bind a ClusterRole that allows it")]
    NotAllowed { user: String },
    #[error("others are being reviewed; try again")]
    Busy,
    #[error("who you are cannot be reviewed now: {0}")]
    NotReviewed(#[from] CallError),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = format!("{self}\n");
        match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response(),
            Self::NotAllowed { .. } => (StatusCode::FORBIDDEN, text).into_response(),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
            Self::NotReviewed(error) => {
                tracing::warn!(%error, "a scrape of the metrics could not be reviewed");
                // The cause contains the API server's address, which unauthenticated clients must not learn.
                (StatusCode::SERVICE_UNAVAILABLE, "who you are cannot be reviewed now; try again\n").into_response()
            }
        }
    }
}

impl Door {
    async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::NoToken)?;
        let (mark, now) = (Mark::of(token), Instant::now());
        if self.admitted.is_fresh(mark, now) {
            return Ok(());
        }
        let known = self.admitted.lasts(mark, now);
        // A full queue does not show that the API server is unavailable, so it must not admit a token that may have
        // lost its permission.
        let turn = tokio::time::timeout(TURN, if known { &self.known } else { &self.strangers }.acquire()).await;
        let Ok(_turn) = turn else { return Err(Refusal::Busy) };
        let reviewed = if known {
            let patience = self.admitted.trust.patience;
            let late = |_| Err(self.server.too_slow(patience).into());
            tokio::time::timeout(patience, self.review(token)).await.unwrap_or_else(late)
        } else {
            self.review(token).await
        };
        match &reviewed {
            Ok(()) => self.admitted.allow(mark, now),
            Err(Refusal::NotReviewed(error)) if known && is_passing(error) => {
                tracing::warn!(%error, "a scrape of the metrics could not be reviewed; as it was allowed lately, it still is");
                return Ok(());
            }
            Err(Refusal::NotReviewed(_) | Refusal::Busy) => {}
            Err(Refusal::NoToken | Refusal::NotAllowed { .. }) => self.admitted.refuse(mark),
        }
        reviewed
    }

    async fn review(&self, token: &str) -> Result<(), Refusal> {
        let user = authenticated(&self.server, token).await?.ok_or(Refusal::NoToken)?;
        let name = user.username.clone().unwrap_or_default();
        if allowed(&self.server, user).await? { Ok(()) } else { Err(Refusal::NotAllowed { user: name }) }
    }
}

/// The API server is away or busy. Any other answer is one: it may be that we have no right to ask any more.
fn is_passing(error: &CallError) -> bool {
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
    let question = TokenReview { spec, ..TokenReview::default() };
    let answer = server.call(reviews.create(&PostParams::default(), &question)).await?;
    let known = answer.status.filter(|status| status.authenticated == Some(true));
    Ok(known.and_then(|status| status.user))
}

async fn allowed(server: &Server, user: UserInfo) -> Result<bool, CallError> {
    let reviews: Api<SubjectAccessReview> = Api::all(server.client.clone());
    let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        resource_attributes: None,
    };
    let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = server.call(reviews.create(&PostParams::default(), &question)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
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
