//! Metrics of the process. Names that tools look for are those of controller-runtime; labels take their values from short
//! fixed lists.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Content type of a scrape response.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All measurements of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    leads: Family<Lease, Gauge>,
    reconciles: Family<Reconciled, Counter>,
    failed_reconciles: Family<Controller, Counter>,
    reconcile_time: Family<Controller, Histogram>,
    queue_depth: Family<Queue, Gauge>,
    active_workers: Family<Controller, Gauge>,
    webhook_requests: Family<WebhookRequest, Counter>,
    webhook_latency: Family<Webhook, Histogram, fn() -> Histogram>,
    webhook_reviews: Family<WebhookReview, Counter>,
    requests: Family<Requested, Counter>,
    /// Without a value until a certificate is loaded.
    certificate_expiry: Family<Unlabelled, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unlabelled {}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    code: String,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookRequest {
    webhook: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Webhook {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookReview {
    webhook: &'static str,
    outcome: &'static str,
}

/// A conversion takes a fraction of a millisecond; an API server waits for ten seconds.
const LATENCIES: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// A queue has the name of its controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    name: &'static str,
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    result: ReconcileResult,
}

/// Result of a reconcile, with controller-runtime's label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResult {
    Success,
    RequeueAfter,
    Error,
}

impl EncodeLabelValue for ReconcileResult {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let word = match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Error => "error",
        };
        EncodeLabelValue::encode(&word, encoder)
    }
}

/// Bytes of a part of the text.
const PIECE: usize = 64 * 1024;

/// From a reconcile that finds nothing to do to one whose calls are all slow.
const RECONCILE_SECONDS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

impl Metrics {
    /// `register` adds the measurements of single controllers.
    pub fn new<T>(started: Timestamp, register: impl FnOnce(&mut Registry) -> T) -> (Self, T) {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("steersman_build", "Version of this program", build);
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(started.as_duration().as_secs_f64());
        registry.register("process_start_time_seconds", "Start time of this process, in seconds since 1970", start);
        let leads = Family::<Lease, Gauge>::default();
        let help = "Whether this process holds the Lease of this name: 1 yes, 0 no";
        registry.register("leader_election_master_status", help, leads.clone());
        let reconciles = Family::<Reconciled, Counter>::default();
        let help = "Reconciles by controller and result; a reconcile of va covers the whole fleet";
        registry.register("controller_runtime_reconcile", help, reconciles.clone());
        let failed_reconciles = Family::<Controller, Counter>::default();
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciles by controller",
            failed_reconciles.clone(),
        );
        let reconcile_time =
            Family::<Controller, Histogram>::new_with_constructor(|| Histogram::new(RECONCILE_SECONDS));
        let help = "Duration of reconciles by controller";
        registry.register("controller_runtime_reconcile_time_seconds", help, reconcile_time.clone());
        let queue_depth = Family::<Queue, Gauge>::default();
        registry.register("workqueue_depth", "Objects that wait for a reconcile, by controller", queue_depth.clone());
        let active_workers = Family::<Controller, Gauge>::default();
        let help = "Objects whose reconcile has started and has not ended, by controller";
        registry.register("controller_runtime_active_workers", help, active_workers.clone());
        let webhook_requests = Family::<WebhookRequest, Counter>::default();
        let help = "Requests to the webhooks, by path and HTTP status of the response";
        registry.register("controller_runtime_webhook_requests", help, webhook_requests.clone());
        let latency: fn() -> Histogram = || Histogram::new(LATENCIES);
        let webhook_latency = Family::<Webhook, Histogram, fn() -> Histogram>::new_with_constructor(latency);
        let help = "Time in which the webhooks answered requests, by path";
        registry.register("controller_runtime_webhook_latency_seconds", help, webhook_latency.clone());
        let webhook_reviews = Family::<WebhookReview, Counter>::default();
        let help = "Reviews by the path of their webhook and their outcome: answered, denied, failed or panicked";
        registry.register("steersman_webhook_reviews", help, webhook_reviews.clone());
        let requests = Family::<Requested, Counter>::default();
        let help = "Requests to the API server, by HTTP status of the response (or <error>) and method";
        registry.register("rest_client_requests", help, requests.clone());
        let certificate_expiry = Family::<Unlabelled, Gauge>::default();
        let help = "Time at which the certificate that the webhooks serve expires, in seconds since 1970";
        let name = "steersman_webhook_certificate_expiry_timestamp_seconds";
        registry.register(name, help, certificate_expiry.clone());
        let of_controllers = register(&mut registry);
        let metrics = Self {
            registry,
            leads,
            reconciles,
            failed_reconciles,
            reconcile_time,
            queue_depth,
            active_workers,
            webhook_requests,
            webhook_latency,
            webhook_reviews,
            requests,
            certificate_expiry,
        };
        (metrics, of_controllers)
    }

    /// Counts one answered review. All are answered with HTTP 200, so the outcome has a count of its own.
    pub fn reviewed(&self, webhook: &'static str, outcome: &'static str, took: Duration) {
        self.webhook_requests.get_or_create(&WebhookRequest { webhook, code: "200" }).inc();
        self.webhook_latency.get_or_create(&Webhook { webhook }).observe(took.as_secs_f64());
        self.webhook_reviews.get_or_create(&WebhookReview { webhook, outcome }).inc();
    }

    /// Sets whether this process holds the Lease `name`.
    pub fn leads(&self, name: &str, leads: bool) {
        self.leads.get_or_create(&Lease { name: name.to_owned() }).set(leads.into());
    }

    /// Sets the end of the validity of the webhooks' certificate, in seconds since 1970.
    pub fn certificate_expires(&self, at: i64) {
        self.certificate_expiry.get_or_create(&Unlabelled {}).set(at);
    }

    /// Counts one reconcile.
    pub fn reconciled(&self, controller: &'static str, result: ReconcileResult, time: Duration) {
        self.reconciles.get_or_create(&Reconciled { controller, result }).inc();
        if result == ReconcileResult::Error {
            self.failed_reconciles.get_or_create(&Controller { controller }).inc();
        }
        self.reconcile_time.get_or_create(&Controller { controller }).observe(time.as_secs_f64());
    }

    /// Sets the numbers of objects that wait for a reconcile, and of those whose reconcile has started.
    pub fn queued(&self, controller: &'static str, waiting: usize, started: usize) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&Queue { name: controller, controller }).set(gauge(waiting));
        self.active_workers.get_or_create(&Controller { controller }).set(gauge(started));
    }

    /// Counts one request to the API server. No status: there was no answer.
    pub fn requested(&self, method: &'static str, status: Option<u16>) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        self.requests.get_or_create(&Requested { code, method }).inc();
    }

    /// The exposition text, in pieces that follow one another.
    pub fn pieces(&self) -> Result<Vec<String>, fmt::Error> {
        let mut pieces = Pieces::default();
        encode(&mut pieces, &self.registry)?;
        Ok(pieces.0)
    }

    pub fn text(&self) -> Result<String, fmt::Error> {
        Ok(self.pieces()?.concat())
    }
}

/// The text in pieces. A large fleet has megabytes of text, which a growing single string would copy again and again.
#[derive(Default)]
struct Pieces(Vec<String>);

impl fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self.0.last_mut().filter(|last| last.len() + text.len() <= PIECE) {
            Some(last) => last.push_str(text),
            None => {
                let mut piece = String::with_capacity(PIECE.max(text.len()));
                piece.push_str(text);
                self.0.push(piece);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(started: &str) -> Metrics {
        Metrics::new(started.parse().unwrap(), |_| ()).0
    }

    #[test]
    fn metrics_have_controller_runtime_names() {
        let metrics = metrics("2026-11-16T00:00:00.25Z");
        metrics.leads("steersman", false);
        metrics.leads("steersman", true);
        metrics.reconciled("llsd", ReconcileResult::Success, Duration::from_millis(2));
        metrics.reconciled("llsd", ReconcileResult::Error, Duration::from_millis(30));
        metrics.queued("llsd", 3, 2);
        metrics.requested("PATCH", Some(409));
        metrics.requested("GET", None);
        let version = env!("CARGO_PKG_VERSION");
        let text = metrics.text().unwrap();
        for expected in [
            &format!("steersman_build_info{{version=\"{version}\"}} 1"),
            "# HELP process_start_time_seconds Start time of this process, in seconds since 1970.",
            "# TYPE process_start_time_seconds gauge",
            "process_start_time_seconds 1794787200.25",
            "leader_election_master_status{name=\"steersman\"} 1",
            "# TYPE controller_runtime_reconcile counter",
            "controller_runtime_reconcile_total{controller=\"llsd\",result=\"error\"} 1",
            "controller_runtime_reconcile_total{controller=\"llsd\",result=\"success\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"llsd\"} 1",
            "# TYPE controller_runtime_reconcile_time_seconds histogram",
            "controller_runtime_reconcile_time_seconds_count{controller=\"llsd\"} 2",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.025\",controller=\"llsd\"} 1",
            "workqueue_depth{name=\"llsd\",controller=\"llsd\"} 3",
            "controller_runtime_active_workers{controller=\"llsd\"} 2",
            "rest_client_requests_total{code=\"409\",method=\"PATCH\"} 1",
            "rest_client_requests_total{code=\"<error>\",method=\"GET\"} 1",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected} is not in\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn certificate_expiry_is_absent_until_known() {
        let metrics = metrics("2026-11-16T00:00:00Z");
        let name = "steersman_webhook_certificate_expiry_timestamp_seconds";
        let value = || metrics.text().unwrap().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        assert_eq!(value(), None);
        metrics.certificate_expires(1_800_000_000);
        assert_eq!(value(), Some(format!("{name}{{}} 1800000000")));
    }

    #[test]
    fn long_text_is_split_into_bounded_pieces() {
        let metrics = metrics("2026-11-16T00:00:00Z");
        (0..2_000).for_each(|number| metrics.leads(&format!("a-lease-with-a-long-name-{number:05}"), true));
        let pieces = metrics.pieces().unwrap();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.capacity() <= PIECE), "{}", pieces.len());
        let text = metrics.text().unwrap();
        assert_eq!(text.matches("\nleader_election_master_status{").count(), 2_000);
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn webhook_metrics_have_controller_runtime_names() {
        let metrics = metrics("2026-11-16T00:00:00Z");
        metrics.reviewed("/convert", "answered", Duration::from_millis(2));
        metrics.reviewed("/convert", "failed", Duration::from_millis(300));
        let text = metrics.text().unwrap();
        for line in [
            "controller_runtime_webhook_requests_total{webhook=\"/convert\",code=\"200\"} 2",
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/convert\"} 2",
            "controller_runtime_webhook_latency_seconds_bucket{le=\"0.0025\",webhook=\"/convert\"} 1",
            "steersman_webhook_reviews_total{webhook=\"/convert\",outcome=\"failed\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
