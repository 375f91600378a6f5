//! What the fleet's metrics are to the plan: a real Prometheus, scraping pods that say what a test tells them.

mod answers;
mod counting;
mod doors;
mod many;
mod scraping;
mod silence;
mod simulated;
mod values;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use steersman::variant::prometheus::{FleetPod, ModelQuery, Prometheus as Way};
use steersman_plan::variant::config::prometheus::PrometheusConfig as Settings;
use steersman_plan::variant::{MetricsError, ModelMetrics, PodMetrics, TargetName};
use steersman_reconcile::NamespacedName;
use steersman_testkit::prometheus::Door;
use steersman_testkit::{Pods, Prometheus, skip, wait};

pub const MODEL: &str = "meta/llama \"8b\"\\{x}";

/// Where no pod matters.
pub const NOBODY: &[FleetPod] = &[];

/// A Prometheus and the pods that it scrapes.
pub struct Scene {
    pub prometheus: Prometheus,
    pub pods: Pods,
}

impl Scene {
    /// None, after saying so, where Prometheus is not built.
    pub async fn start(door: Door) -> Option<Self> {
        let Some(prometheus) = Prometheus::start(door).await.unwrap() else {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            skip::skip(&test, "the local cluster is not built; `cargo xtask test` builds it");
            return None;
        };
        Some(Self { prometheus, pods: Pods::start().await.unwrap() })
    }

    /// The pod says this and is scraped.
    pub fn play(&self, namespace: &str, name: &str, text: &str) {
        self.pods.say(namespace, name, text);
        self.scrape(&format!("{namespace}-{name}"), &Pods::labels(namespace, name));
    }

    pub fn scrape(&self, name: &str, labels: &Value) {
        self.prometheus.scrape(name, &self.pods.address().to_string(), labels).unwrap();
    }

    pub fn settings(&self) -> Settings {
        Settings {
            base_url: self.prometheus.url(),
            ca_cert_path: Some(self.prometheus.file("ca.pem")),
            ..Settings::default()
        }
    }

    /// As the fleet loop asks, but without asking pods themselves.
    pub fn way(&self) -> Way {
        way(&self.settings())
    }
}

pub fn way(settings: &Settings) -> Way {
    Way::new(settings).unwrap().scraping(None).unwrap()
}

/// A pod that is ready, at an address where nobody listens.
pub fn place(namespace: &str, name: &str) -> FleetPod {
    FleetPod {
        namespace: namespace.into(),
        name: name.into(),
        target: TargetName::new("apps", "Deployment", &format!("{name}-target")).into(),
        ip: None,
        ready: true,
        started: None,
    }
}

pub fn asked(namespace: &str, model: &str) -> ModelQuery {
    ModelQuery { key: NamespacedName::new(namespace, model), retention: SignedDuration::from_mins(10) }
}

pub async fn look(way: &Way, namespace: &str, pods: &[FleetPod]) -> ModelMetrics {
    let models = [asked(namespace, MODEL)];
    way.query(&models, pods, Timestamp::now()).await.remove(&models[0].key).unwrap()
}

/// Looks until it is as expected: Prometheus scrapes and forgets on its own schedule.
pub async fn until(
    way: &Way,
    namespace: &str,
    pods: &[FleetPod],
    what: &str,
    holds: impl Fn(&ModelMetrics) -> bool,
) -> ModelMetrics {
    let mut last = None;
    let seen = wait::eventually(what, async || {
        let seen = look(way, namespace, pods).await;
        let found = holds(&seen).then(|| seen.clone());
        last = Some(seen);
        found
    });
    let found = seen.await;
    found.unwrap_or_else(|error| panic!("{error}; last seen: {last:?}"))
}

pub fn pod<'a>(seen: &'a ModelMetrics, name: &str) -> Option<&'a PodMetrics> {
    seen.pods.as_ref().ok()?.iter().find(|pod| *pod.name == *name)
}

pub fn failure(seen: &ModelMetrics) -> &str {
    match &seen.pods {
        Err(MetricsError::QueryFailed(cause)) => cause,
        other => panic!("no failure: {other:?}"),
    }
}

/// Label values as the text format writes them.
fn model() -> String {
    MODEL.replace('\\', "\\\\").replace('"', "\\\"")
}

/// What a vLLM server says: share of the KV cache, waiting requests, requests served.
pub fn vllm(kv: &str, queue: &str, served: u64) -> String {
    let model = model();
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
