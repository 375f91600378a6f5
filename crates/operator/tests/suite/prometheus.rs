//! Tests the client for the fleet's metrics with a real Prometheus that scrapes fake pods.

mod authentication;
mod error_responses;
mod large_fleet;
mod missing_metrics;
mod request_counts;
mod scraping;
mod simulated_fleet;
mod values;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus as PrometheusClient};
use steersman_plan::variant::config::prometheus::{CaCertificates, PrometheusConfig as Settings};
use steersman_plan::variant::{MetricsError, ModelMetrics, PodMetrics, TargetName};
use steersman_reconcile::NamespacedName;
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::{FakePodMetrics, PrometheusServer, skip, wait};

pub const MODEL: &str = "meta/llama \"8b\"\\{x}";

pub const NO_PODS: &[FleetPod] = &[];

/// A Prometheus and the pods that it scrapes.
pub struct TestEnv {
    pub prometheus: PrometheusServer,
    pub pods: FakePodMetrics,
}

impl TestEnv {
    /// Returns None, after reporting a skip, if Prometheus is not built.
    pub async fn start(client_auth: ClientAuth) -> Option<Self> {
        let Some(prometheus) = PrometheusServer::start(client_auth).await.unwrap() else {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
            return None;
        };
        Some(Self { prometheus, pods: FakePodMetrics::start().await.unwrap() })
    }

    /// Serves `text` as the metrics of a pod, and adds the pod to the scrape targets.
    pub fn serve_and_scrape(&self, namespace: &str, name: &str, text: &str) {
        self.pods.set(namespace, name, text);
        self.scrape(&format!("{namespace}-{name}"), &FakePodMetrics::target_labels(namespace, name));
    }

    pub fn scrape(&self, name: &str, labels: &Value) {
        self.prometheus.add_target(name, &self.pods.address().to_string(), labels).unwrap();
    }

    pub fn settings(&self) -> Settings {
        Settings {
            base_url: self.prometheus.url(),
            ca: Some(CaCertificates::File(self.prometheus.file("ca.pem"))),
            ..Settings::default()
        }
    }

    /// A client as in the fleet controller, but without scraping of pods.
    pub fn client(&self) -> PrometheusClient {
        client(&self.settings())
    }
}

pub fn client(settings: &Settings) -> PrometheusClient {
    PrometheusClient::new(settings).unwrap().scraping(None).unwrap()
}

/// A ready pod without an address.
pub fn ready_pod(namespace: &str, name: &str) -> FleetPod {
    FleetPod {
        namespace: namespace.into(),
        name: name.into(),
        target: TargetName::new("apps", "Deployment", &format!("{name}-target")).into(),
        ip: None,
        ready: true,
        ready_since: None,
        started: None,
        gpus: 0,
        worker: false,
    }
}

pub fn model_query(namespace: &str, model: &str) -> ModelQuery {
    ModelQuery { key: NamespacedName::new(namespace, model), retention: SignedDuration::from_mins(10) }
}

pub async fn query_model(client: &PrometheusClient, namespace: &str, pods: &[FleetPod]) -> ModelMetrics {
    let models = [model_query(namespace, MODEL)];
    client.query(&models, pods, Timestamp::now()).await.remove(&models[0].key).unwrap()
}

/// Queries until the result is as expected, because Prometheus scrapes on its own schedule.
pub async fn until(
    client: &PrometheusClient,
    namespace: &str,
    pods: &[FleetPod],
    what: &str,
    holds: impl Fn(&ModelMetrics) -> bool,
) -> ModelMetrics {
    let mut last = None;
    let observed = wait::eventually(what, async || {
        let observed = query_model(client, namespace, pods).await;
        let found = holds(&observed).then(|| observed.clone());
        last = Some(observed);
        found
    });
    let found = observed.await;
    found.unwrap_or_else(|error| panic!("{error}; last result: {last:?}"))
}

pub fn pod<'a>(observed: &'a ModelMetrics, name: &str) -> Option<&'a PodMetrics> {
    observed.pods.as_ref().ok()?.iter().find(|pod| *pod.name == *name)
}

pub fn failure(observed: &ModelMetrics) -> &str {
    match &observed.pods {
        Err(MetricsError::QueryFailed(cause)) => cause,
        other => panic!("expected a failure: {other:?}"),
    }
}

/// The model name, escaped as a label value of the text format.
fn escaped_model_name() -> String {
    MODEL.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Metrics of a vLLM server with this KV cache usage, queue and number of served requests.
pub fn vllm(kv: &str, queue: &str, served: u64) -> String {
    let model = escaped_model_name();
    format!(
        "# TYPE vllm:kv_cache_usage_perc gauge\n\
         vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"{model}\"}} {kv}\n\
         # TYPE vllm:num_requests_waiting gauge\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"{model}\"}} {queue}\n\
         # TYPE vllm:request_success_total counter\n\
         vllm:request_success_total{{engine=\"0\",model_name=\"{model}\",finished_reason=\"stop\"}} {served}\n\
         vllm:request_success_total{{engine=\"0\",model_name=\"{model}\",finished_reason=\"length\"}} 0\n\
         vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"1000\"}} 1\n\
         vllm:request_prompt_tokens_sum{{model_name=\"{model}\"}} {}\n\
         vllm:request_prompt_tokens_count{{model_name=\"{model}\"}} {served}\n\
         vllm:request_generation_tokens_sum{{model_name=\"{model}\"}} {}\n\
         vllm:request_generation_tokens_count{{model_name=\"{model}\"}} {served}\n\
         vllm:prefix_cache_hits_total{{model_name=\"{model}\"}} {}\n\
         vllm:prefix_cache_queries_total{{model_name=\"{model}\"}} {}\n",
        served * 200,
        served * 100,
        served * 30,
        served * 120,
    )
}
