//! The webhooks: conversion between versions, and admission.
//! Comes in: reviews from API servers, and whatever else reaches the address; goes out: an answered review each time, with
//! HTTP 200, because any other status would hide the reason from the user.
//!
//! A review that cannot be read, one that is too large and one on which our own code panics are all answered so, and the
//! process lives on. Memory has a bound: bodies count against a budget, and a few reviews are worked on at one time.

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

use crate::dynamo::metrics::Requests;
use admission::{Handlers, Route};
use body::{Gate, Refused};
use conversion::Convert;
use losses::Losses;

/// Reviews worked on at one time. They need the processor, not patience: more would only share it.
const AT_ONCE: usize = 4;

/// How long a handler may take. An API server that waits 10 s, as is usual, still hears this.
const JUDGED: Duration = Duration::from_secs(8);

/// How the code and the user hear of a panic.
const PANICKED: &str = "this webhook failed by a fault of its own; the operator's log says where, please report it";

/// What became of a review, for the metrics.
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
    /// Counts what was refused of DynamoGraphDeploymentRequests.
    requests: Arc<Requests>,
    gate: Gate,
    work: Arc<Semaphore>,
    losses: Arc<Losses>,
    leaving: CancellationToken,
}

/// `/convert`, `/validate/<family>` and `/mutate/<family>`, and 404 for everything else. From the moment that `leaving` is
/// cancelled, each answer is the last of its connection: a client that is told so does not lose its next request.
pub fn routes(
    convert: Convert,
    handlers: Handlers,
    metrics: Arc<Metrics>,
    requests: Arc<Requests>,
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
        Err(refused) => return (Outcome::Failed, refusal(&refused, conversion::failure)),
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
            panicked("/convert", error);
            let uid = conversion::uid(&held.bytes).unwrap_or_else(|| held.uid());
            (Outcome::Panicked, conversion::failure(&uid, 500, reason::INTERNAL_ERROR, PANICKED))
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
        Err(refused) => return (Outcome::Failed, refusal(&refused, admission::failure)),
    };
    let uid = held.uid();
    let failed = |uid: &str, code, reason, message: &str| {
        tracing::warn!(webhook = label, message, "a review could not be answered as it was asked");
        (Outcome::Failed, admission::failure(uid, code, reason, message))
    };
    let turn = shared.work.acquire().await;
    let reading = spawn_blocking(move || (admission::read(&held.bytes, &held.uid()), held)).await;
    // A handler waits for other objects more than it works; its request counts against the budget for as long.
    drop(turn);
    let (request, _held) = match reading {
        Ok((Ok(request), held)) => (request, held),
        Ok((Err((uid, failure)), _)) => return failed(&uid, 400, reason::BAD_REQUEST, &failure.to_string()),
        Err(error) => {
            panicked(label, error);
            return (Outcome::Panicked, admission::failure(&uid, 500, reason::INTERNAL_ERROR, PANICKED));
        }
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
            // What is mutated is validated afterwards: counted twice it would be two requests.
            if family == Some(Family::Dgdr) && route == Route::Validate {
                shared.requests.judged(&operation, answer.refusal(), began.elapsed());
            }
            (outcome, admission::written(&uid, route, &answer))
        }
        Err(_) => {
            let message = format!("there is no verdict after {} s; try again", JUDGED.as_secs());
            failed(&uid, 504, reason::TIMEOUT, &message)
        }
        Ok(Err(error)) => {
            panicked(label, error);
            (Outcome::Panicked, admission::failure(&uid, 500, reason::INTERNAL_ERROR, PANICKED))
        }
    }
}

fn refusal(refused: &Refused, failure: fn(&str, u16, &str, &str) -> Vec<u8>) -> Vec<u8> {
    let message = refused.to_string();
    tracing::warn!(message, "a review was not read");
    failure(refused.uid(), refused.code(), reason::BAD_REQUEST, &message)
}

/// The log alone hears what it was: the words of a panic may quote an object.
fn panicked(webhook: &'static str, error: JoinError) {
    let cause = match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".to_owned())
        }
        Err(error) => error.to_string(),
    };
    tracing::error!(webhook, cause, "a webhook panicked");
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
