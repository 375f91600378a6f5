//! Serves the conversion and admission webhooks.
//!
//! Every review is answered with HTTP 200, even one that cannot be read, is too large or makes a handler panic: any other
//! status would hide the reason from the user. Only a client that may not send reviews gets 403, with the reason as text. Memory is bounded: bodies count against a budget, and few reviews are
//! processed at a time.

pub mod admission;
mod body;
mod budget;
pub mod case;
pub mod client_ca;
pub mod conversion;
pub mod dynamo;
pub mod endpoint;
pub mod llamastack;
mod losses;

use std::net::IpAddr;
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
use tokio::task::{JoinError, spawn_blocking};
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::dynamo::metrics::RequestMetrics;
use admission::{Handlers, Route};
use body::{BodyBudget, BodyError};
use budget::{FairBudget, Share};
use case::shortened;
use conversion::Convert;
use losses::Losses;

/// Reviews read or converted at a time, and those of one address. They are CPU-bound: more would only share the processor.
const MAX_CONCURRENT_REVIEWS: u32 = 4;
const MAX_REVIEWS_PER_ADDRESS: u32 = 3;

/// Handlers of admission in progress, and those of one address. Most wait for other objects.
const MAX_CONCURRENT_HANDLERS: u32 = 64;
const MAX_HANDLERS_PER_ADDRESS: u32 = 48;

/// Longest wait for one of these places.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(8);

/// Longest time for a handler. API servers usually wait 10 s.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(8);

const BUSY: &str = "this webhook is busy with other reviews; try again";

const PANICKED: &str =
    "the webhook panicked, which is a defect of the operator; find \"panicked\" in the operator's log and report it";

/// Outcome of an AdmissionReview or ConversionReview, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewOutcome {
    Answered,
    Denied,
    Failed,
    Panicked,
}

impl ReviewOutcome {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }
}

struct WebhookContext {
    convert: Convert,
    handlers: Handlers,
    metrics: Arc<Metrics>,
    /// Counts refused DynamoGraphDeploymentRequests.
    requests: Arc<RequestMetrics>,
    budget: BodyBudget,
    work: FairBudget,
    handling: FairBudget,
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
    let work = FairBudget::new(MAX_CONCURRENT_REVIEWS, MAX_REVIEWS_PER_ADDRESS);
    let handling = FairBudget::new(MAX_CONCURRENT_HANDLERS, MAX_HANDLERS_PER_ADDRESS);
    let (budget, losses) = (BodyBudget::default(), Arc::default());
    let context =
        Arc::new(WebhookContext { convert, handlers, metrics, requests, budget, work, handling, losses, leaving });
    let missing = || async {
        (StatusCode::NOT_FOUND, "not found: this server has POST /convert, /validate/<family> and /mutate/<family>\n")
    };
    let validate = |context, family, request| admit(context, Route::Validate, family, request);
    let mutate = |context, family, request| admit(context, Route::Mutate, family, request);
    Router::new()
        .route("/convert", post(convert_review))
        .route("/validate/{family}", post(validate))
        .route("/mutate/{family}", post(mutate))
        .fallback(missing)
        .with_state(context)
}

async fn convert_review(State(context): State<Arc<WebhookContext>>, request: Request<Body>) -> Response {
    let began = Instant::now();
    let (outcome, text) = review_conversion(&context, request).await;
    context.respond("/convert", outcome, began, text)
}

async fn review_conversion(context: &WebhookContext, request: Request<Body>) -> (ReviewOutcome, Vec<u8>) {
    let address = body::peer_address(&request);
    let held = match context.budget.read(request, body::MAX_BODY_BYTES).await {
        Ok(held) => Arc::new(held),
        Err(refused) => return unread(&refused, conversion::failure),
    };
    let Some(turn) = place(&context.work, address).await else {
        return busy("/convert", &held.uid(), conversion::failure);
    };
    let (review, convert, losses) = (held.clone(), context.convert, context.losses.clone());
    // The place belongs to the work, which goes on if the client leaves.
    let work = spawn_blocking(move || {
        let _turn = turn;
        conversion::answer(&review.bytes, &review.uid(), convert, &losses)
    });
    match work.await {
        Ok(Ok(text)) => (ReviewOutcome::Answered, text),
        Ok(Err((uid, failure))) => {
            let message = shortened(failure.to_string());
            tracing::warn!(webhook = "/convert", message, "cannot answer a review");
            (ReviewOutcome::Failed, conversion::failure(&uid, 400, reason::BAD_REQUEST, &message))
        }
        Err(error) => {
            let uid = conversion::uid(&held.bytes).unwrap_or_else(|| held.uid());
            panicked("/convert", error, &uid, conversion::failure)
        }
    }
}

async fn admit(
    State(context): State<Arc<WebhookContext>>,
    route: Route,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response {
    let began = Instant::now();
    let family: Option<Family> = name.parse().ok();
    let label = route.label(family);
    if let Some(Err(refusal)) = context.handlers.client_ca.as_ref().map(|ca| ca.check(&request)) {
        let message = refusal.to_string();
        tracing::warn!(webhook = label, message, "refused a client");
        context.metrics.reviewed(label, ReviewOutcome::Failed.word(), began.elapsed());
        return (StatusCode::FORBIDDEN, format!("{message}\n")).into_response();
    }
    let (outcome, text) = review_admission(&context, route, family, label, request).await;
    context.respond(label, outcome, began, text)
}

async fn review_admission(
    context: &WebhookContext,
    route: Route,
    family: Option<Family>,
    label: &'static str,
    request: Request<Body>,
) -> (ReviewOutcome, Vec<u8>) {
    let address = body::peer_address(&request);
    let held = match context.budget.read(request, admission::MAX_REVIEW_BYTES).await {
        Ok(held) => held,
        Err(refused) => return unread(&refused, admission::failure),
    };
    let uid = held.uid();
    let failed = |uid: &str, code, reason, message: &str| {
        tracing::warn!(webhook = label, message, "cannot answer a review");
        (ReviewOutcome::Failed, admission::failure(uid, code, reason, message))
    };
    let Some(turn) = place(&context.work, address).await else { return busy(label, &uid, admission::failure) };
    let reading = spawn_blocking(move || {
        let _turn = turn;
        (admission::read(&held.bytes, &held.uid()), held)
    })
    .await;
    let (request, held) = match reading {
        Ok((Ok(request), held)) => (request, held),
        Ok((Err((uid, failure)), _)) => return failed(&uid, 400, reason::BAD_REQUEST, &shortened(failure.to_string())),
        Err(error) => return panicked(label, error, &uid, admission::failure),
    };
    let uid = request.uid.clone();
    let (began, operation) = (Instant::now(), format!("{:?}", request.operation).to_uppercase());
    let Some(handler) = context.handlers.on(route, family) else {
        let message = format!(
            "this version of Steersman has no admission webhook at {label}; remove the webhook from its configuration, \
             or correct its path"
        );
        return failed(&uid, 404, reason::NOT_FOUND, &message);
    };
    let Some(place) = place(&context.handling, address).await else {
        return busy(label, &uid, admission::failure);
    };
    // The handler has a task of its own, so that a panic ends there. The limit is outside: CPU-bound work cannot be interrupted.
    // The body stays in memory until the handler is done, and so counts against the budget.
    let handling = tokio::spawn(async move {
        let _until_done = (place, held);
        handler(request).await
    });
    match time::timeout(HANDLER_TIMEOUT, handling).await {
        Ok(Ok(answer)) => {
            let denied = matches!(answer.verdict, admission::Verdict::Deny(_));
            let outcome = if denied { ReviewOutcome::Denied } else { ReviewOutcome::Answered };
            // A mutated request is validated afterwards, and counts once.
            if family == Some(Family::Dgdr) && route == Route::Validate {
                context.requests.record_review(&operation, answer.refusal(), began.elapsed());
            }
            (outcome, admission::render(&uid, route, &answer))
        }
        Err(_) => {
            let message = format!("no decision after {} s; try again", HANDLER_TIMEOUT.as_secs());
            failed(&uid, 504, reason::TIMEOUT, &message)
        }
        Ok(Err(error)) => panicked(label, error, &uid, admission::failure),
    }
}

async fn place(budget: &FairBudget, address: IpAddr) -> Option<Share> {
    time::timeout(MAX_QUEUE_TIME, budget.acquire(address, 1)).await.ok().flatten()
}

fn busy(webhook: &'static str, uid: &str, failure: RenderFailure) -> (ReviewOutcome, Vec<u8>) {
    tracing::warn!(webhook, message = BUSY, "cannot answer a review");
    (ReviewOutcome::Failed, failure(uid, 429, reason::TOO_MANY_REQUESTS, BUSY))
}

/// Renders a failed review from its uid, code, reason and message.
type RenderFailure = fn(&str, u16, &str, &str) -> Vec<u8>;

fn unread(refused: &BodyError, failure: RenderFailure) -> (ReviewOutcome, Vec<u8>) {
    let message = refused.to_string();
    tracing::warn!(message, "cannot read a review");
    (ReviewOutcome::Failed, failure(refused.uid(), refused.code(), reason::BAD_REQUEST, &message))
}

/// The text of the panic goes to the log alone: it may quote an object.
fn panicked(webhook: &'static str, error: JoinError, uid: &str, failure: RenderFailure) -> (ReviewOutcome, Vec<u8>) {
    let cause = match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
        }
        Err(error) => error.to_string(),
    };
    tracing::error!(webhook, cause, "a webhook panicked");
    (ReviewOutcome::Panicked, failure(uid, 500, reason::INTERNAL_ERROR, PANICKED))
}

impl WebhookContext {
    fn respond(&self, webhook: &'static str, outcome: ReviewOutcome, began: Instant, text: Vec<u8>) -> Response {
        self.metrics.reviewed(webhook, outcome.word(), began.elapsed());
        let mut answer = ([(CONTENT_TYPE, "application/json")], text).into_response();
        if self.leaving.is_cancelled() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}
