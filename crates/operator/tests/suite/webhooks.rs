//! The webhook routes: responses to reviews, and robustness against invalid and hostile bodies.

mod admission;
mod bodies;
mod conversion;
mod slow_clients;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use jiff::Timestamp;
use serde_json::Value;
use steersman::metrics::FamilyMetrics;
use steersman::webhooks::admission::Handlers;
use steersman::webhooks::conversion::Convert;
use steersman::webhooks::routes;
use steersman_runtime::telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The routes in this process, with a converter and handlers of the test.
pub struct WebhookRoutes {
    routes: Router,
    shutdown: CancellationToken,
    metrics: Arc<Metrics>,
}

impl WebhookRoutes {
    pub fn new(convert: Convert, handlers: Handlers) -> Self {
        let (metrics, families) = Metrics::new(Timestamp::UNIX_EPOCH, FamilyMetrics::register);
        let metrics = Arc::new(metrics);
        let shutdown = CancellationToken::new();
        Self {
            routes: routes(convert, handlers, metrics.clone(), families.requests, shutdown.clone()),
            metrics,
            shutdown,
        }
    }

    fn for_conversion() -> Self {
        Self::new(steersman_api::convert::convert, Handlers::default())
    }

    /// The `response` of the returned review.
    pub async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> Value {
        let request = Request::post(path).body(Body::from(body.into())).unwrap();
        let answer = self.routes.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200, "any other status would hide the reason from the user");
        assert_eq!(answer.headers()["content-type"], "application/json");
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let review: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = match path {
            "/convert" => ("apiextensions.k8s.io/v1", "ConversionReview"),
            _ => ("admission.k8s.io/v1", "AdmissionReview"),
        };
        assert_eq!((review["apiVersion"].as_str().unwrap(), review["kind"].as_str().unwrap()), expected);
        review["response"].clone()
    }

    fn review_count(&self, webhook: &str, outcome: &str) -> u64 {
        let text = self.metrics.text().unwrap();
        let line = format!("steersman_webhook_reviews_total{{webhook=\"{webhook}\",outcome=\"{outcome}\"}} ");
        text.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
    }
}
