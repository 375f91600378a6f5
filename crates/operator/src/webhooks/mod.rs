//! Serves the conversion and admission webhooks.
//!
//! Every review is answered with HTTP 200, even one that cannot be read, is too large or makes a handler panic: any other
//! status would hide the reason from the user. Memory is bounded: bodies count against a budget, and few reviews are
//! processed at a time.

pub mod admission;
mod body;
mod case;
pub mod conversion;
pub mod dynamo;
pub mod endpoint;
pub mod llamastack;
mod losses;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kube::core::response::reason;
use steersman_api::Family;
use steersman_runtime::telemetry::metrics::Metrics;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::dynamo::metrics::RequestMetrics;
use admission::{Handlers, Route};
use body::{Gate, Refused};
use conversion::Convert;
use losses::Losses;

/// Reviews processed at a time. They are CPU-bound: more would only share the processor.
const AT_ONCE: usize = 4;

/// Longest time for a handler. API servers usually wait 10 s.
const JUDGED: Duration = Duration::from_secs(8);

const PANICKED: &str = "this webhook failed by a fault of its own; the operator's log says where, please report it";

/// Outcome of a review, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    Denied,
    Failed,
    Panicked,
}

impl Outcome {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }
}

struct Shared {
    convert: Convert,
    handlers: Handlers,
    metrics: Arc<Metrics>,
    /// Counts refused DynamoGraphDeploymentRequests.
    requests: Arc<RequestMetrics>,
    gate: Gate,
    work: Arc<Semaphore>,
    losses: Arc<Losses>,
    leaving: CancellationToken,
}

/// `/convert`, `/validate/<family>` and `/mutate/<family>`, and 404 for everything else. After `leaving` is cancelled, each
/// response closes its connection, so that no client loses its next request.
pub fn routes(
    convert: Convert,
    handlers: Handlers,
    metrics: Arc<Metrics>,
    requests: Arc<RequestMetrics>,
    leaving: CancellationToken,
) -> Router {
    let work = Arc::new(Semaphore::new(AT_ONCE));
    let (gate, losses) = (Gate::default(), Arc::default());
    let shared = Arc::new(Shared { convert, handlers, metrics, requests, gate, work, losses, leaving });
    let missing = || async {
        (StatusCode::NOT_FOUND, "not found: this address has POST /convert, /validate/<family> and /mutate/<family>\n")
    };
    let validate = |shared, family, request| admit(shared, Route::Validate, family, request);
    let mutate = |shared, family, request| admit(shared, Route::Mutate, family, request);
    Router::new()
        .route("/convert", post(convert_review))
        .route("/validate/{family}", post(validate))
        .route("/mutate/{family}", post(mutate))
        .fallback(missing)
        .with_state(shared)
}

async fn convert_review(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let began = Instant::now();
    let (outcome, text) = converted(&shared, request).await;
    shared.respond("/convert", outcome, began, text)
}

async fn converted(shared: &Shared, request: Request<Body>) -> (Outcome, Vec<u8>) {
    let held = match shared.gate.read(request, body::LONGEST).await {
        Ok(held) => Arc::new(held),
        Err(refused) => return unread(&refused, conversion::failure),
    };
    let _turn = shared.work.acquire().await;
    let (review, convert, losses) = (held.clone(), shared.convert, shared.losses.clone());
    let work = spawn_blocking(move || conversion::answer(&review.bytes, &review.uid(), convert, &losses));
    match work.await {
        Ok(Ok(text)) => (Outcome::Answered, text),
        Ok(Err((uid, failure))) => {
            let message = failure.to_string();
            tracing::warn!(webhook = "/convert", message, "a review could not be answered as it was asked");
            (Outcome::Failed, conversion::failure(&uid, 400, reason::BAD_REQUEST, &message))
        }
        Err(error) => {
            let uid = conversion::uid(&held.bytes).unwrap_or_else(|| held.uid());
            panicked("/convert", error, &uid, conversion::failure)
        }
    }
}

async fn admit(
    State(shared): State<Arc<Shared>>,
    route: Route,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response {
    let began = Instant::now();
    let family: Option<Family> = name.parse().ok();
    let label = route.label(family);
    let (outcome, text) = admitted(&shared, route, family, label, request).await;
    shared.respond(label, outcome, began, text)
}

async fn admitted(
    shared: &Shared,
    route: Route,
    family: Option<Family>,
    label: &'static str,
    request: Request<Body>,
) -> (Outcome, Vec<u8>) {
    let held = match shared.gate.read(request, admission::LONGEST).await {
        Ok(held) => held,
        Err(refused) => return unread(&refused, admission::failure),
    };
    let uid = held.uid();
    let failed = |uid: &str, code, reason, message: &str| {
        tracing::warn!(webhook = label, message, "a review could not be answered as it was asked");
        (Outcome::Failed, admission::failure(uid, code, reason, message))
    };
    let turn = shared.work.acquire().await;
    let reading = spawn_blocking(move || (admission::read(&held.bytes, &held.uid()), held)).await;
    // A handler mostly waits for other objects. The body stays in memory until it is done, and so counts against the budget.
    drop(turn);
    let (request, _held) = match reading {
        Ok((Ok(request), held)) => (request, held),
        Ok((Err((uid, failure)), _)) => return failed(&uid, 400, reason::BAD_REQUEST, &failure.to_string()),
        Err(error) => return panicked(label, error, &uid, admission::failure),
    };
    let uid = request.uid.clone();
    let (began, operation) = (Instant::now(), format!("{:?}", request.operation).to_uppercase());
    let Some(handler) = shared.handlers.on(route, family) else {
        let message = format!(
            "this version of Steersman has no admission at {label}; remove the webhook from its configuration, \
             or correct its path"
        );
        return failed(&uid, 404, reason::NOT_FOUND, &message);
    };
    // The handler has a task of its own, so that a panic ends there. The limit is outside: CPU-bound work cannot be interrupted.
    match time::timeout(JUDGED, tokio::spawn(handler(request))).await {
        Ok(Ok(answer)) => {
            let denied = matches!(answer.verdict, admission::Verdict::Deny(_));
            let outcome = if denied { Outcome::Denied } else { Outcome::Answered };
            // A mutated request is validated afterwards, and counts once.
            if family == Some(Family::Dgdr) && route == Route::Validate {
                shared.requests.record_review(&operation, answer.refusal(), began.elapsed());
            }
            (outcome, admission::written(&uid, route, &answer))
        }
        Err(_) => {
            let message = format!("there is no verdict after {} s; try again", JUDGED.as_secs());
            failed(&uid, 504, reason::TIMEOUT, &message)
        }
        Ok(Err(error)) => panicked(label, error, &uid, admission::failure),
    }
}

/// Renders a failed review from its uid, code, reason and message.
type RenderFailure = fn(&str, u16, &str, &str) -> Vec<u8>;

fn unread(refused: &Refused, failure: RenderFailure) -> (Outcome, Vec<u8>) {
    let message = refused.to_string();
    tracing::warn!(message, "a review was not read");
    (Outcome::Failed, failure(refused.uid(), refused.code(), reason::BAD_REQUEST, &message))
}

/// The text of the panic goes to the log alone: it may quote an object.
fn panicked(webhook: &'static str, error: JoinError, uid: &str, failure: RenderFailure) -> (Outcome, Vec<u8>) {
    let cause = match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
        }
        Err(error) => error.to_string(),
    };
    tracing::error!(webhook, cause, "a webhook panicked");
    (Outcome::Panicked, failure(uid, 500, reason::INTERNAL_ERROR, PANICKED))
}

impl Shared {
    fn respond(&self, webhook: &'static str, outcome: Outcome, began: Instant, text: Vec<u8>) -> Response {
        self.metrics.reviewed(webhook, outcome.word(), began.elapsed());
        let mut answer = ([(CONTENT_TYPE, "application/json")], text).into_response();
        if self.leaving.is_cancelled() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}
