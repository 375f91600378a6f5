//! What users of a real cluster do: names and manifests that `cargo xtask up --real` and the suite `real` share.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use super::RealCluster;
use crate::{apply, wait};

/// The image with the packages of llama-stack.
pub const LLAMA_STACK_IMAGE: &str = "localhost/llama-stack:0.7.1";

/// The image with Dynamo's frontend, engine simulator and profiler.
pub const DYNAMO_IMAGE: &str = "localhost/dynamo:1.5.1";

/// The image of Prometheus.
pub const PROMETHEUS_IMAGE: &str = "localhost/prometheus:1";

/// The model that the engine simulator serves. The image of Dynamo has its tokenizer.
pub const MODEL: &str = "steersman/echo-1b";

/// Namespace of the users' objects.
pub const NAMESPACE: &str = "real";

/// The engine simulator behind Dynamo's frontend: the namespace, a Deployment and a Service.
pub const ENGINE: &str = include_str!("../../../../cluster/real/engine.yaml");

/// Prometheus, which scrapes the engine and the operator. It needs the Secret `prometheus-certificate`.
pub const PROMETHEUS: &str = include_str!("../../../../cluster/real/prometheus.yaml");

/// A server whose inference provider is the engine.
pub const SERVER: &str = include_str!("../../../../cluster/real/server.yaml");

/// A request that the real profiler answers.
pub const REQUEST: &str = include_str!("../../../../cluster/real/request.yaml");

/// The autoscaling of the engine.
pub const VARIANT: &str = include_str!("../../../../cluster/real/variant.yaml");

/// Namespace of the operator, and name of its release and its Deployment.
pub const OPERATOR_NAMESPACE: &str = "steersman-system";
pub const OPERATOR: &str = "steersman";

/// Replicas of the operator by default.
pub const OPERATOR_REPLICAS: i32 = 2;

const PROMETHEUS_HOST: &str = "prometheus.monitoring.svc";

/// A rollout on a loaded machine. Servers need most of a minute.
pub const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(300);

impl RealCluster {
    /// Configures the operator with the address of Prometheus.
    pub async fn configure_operator(&self) -> Result<()> {
        let authority = fs::read_to_string(self.cluster.certificate_authority())?;
        let metrics = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "workload-variant-autoscaler-variantautoscaling-config", "namespace": OPERATOR_NAMESPACE },
            "data": { "GLOBAL_OPT_INTERVAL": "10s", "PROMETHEUS_BASE_URL": format!("https://{PROMETHEUS_HOST}:9090"),
                      "PROMETHEUS_CA_CERT": authority } });
        apply::apply_manifests(&self.cluster.admin().await?, None, &metrics.to_string()).await?;
        Ok(())
    }

    /// Starts Prometheus. The operator and the namespace of [`ENGINE`] must exist.
    pub async fn start_prometheus(&self) -> Result<()> {
        let client = self.cluster.admin().await?;
        let certificate = self.cluster.authority.server(&[PROMETHEUS_HOST])?;
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": "prometheus-certificate", "namespace": "monitoring" },
            "stringData": { "tls.crt": certificate.certificate, "tls.key": certificate.key } });
        apply::apply_manifests(&client, None, PROMETHEUS).await?;
        apply::apply_manifests(&client, None, &secret.to_string()).await?;
        self.wait_for_rollout("monitoring", "prometheus", 1).await
    }

    /// Starts the engine and waits until it answers.
    pub async fn start_engine(&self) -> Result<()> {
        apply::apply_manifests(&self.cluster.admin().await?, None, ENGINE).await?;
        self.wait_for_rollout(NAMESPACE, "engine", 1).await?;
        let url = self.service_url(NAMESPACE, "engine").await?;
        self.wait_for_model(&url, MODEL).await?;
        Ok(())
    }

    /// Applies manifests of a user to [`NAMESPACE`]. They are refused until the API server knows the operator's webhooks.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        let client = self.cluster.admin().await?;
        let mut refusal = None;
        let applied = wait::eventually("the object is accepted", async || {
            match apply::apply_manifests(&client, Some(NAMESPACE), manifests).await {
                Ok(_) => Some(()),
                Err(error) => {
                    refusal = Some(error);
                    None
                }
            }
        });
        let applied = applied.await;
        applied.map_err(|timeout| refusal.map_or(timeout, |refusal| refusal.context("the object is not accepted")))
    }

    /// Waits until all pods of a Deployment are of its newest version and available.
    pub async fn wait_for_rollout(&self, namespace: &str, name: &str, replicas: i32) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.admin().await?, namespace);
        let complete = |deployment: &Deployment| {
            let Some(status) = &deployment.status else { return false };
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            status.observed_generation >= deployment.metadata.generation
                && counts.iter().all(|count| *count == Some(replicas))
        };
        wait::until(deployments, name, "has been rolled out", ROLLOUT_TIMEOUT, complete).await?;
        Ok(())
    }

    /// Waits until a server at `url` lists a model whose id ends with `model`, and returns the id.
    pub async fn wait_for_model(&self, url: &str, model: &str) -> Result<String> {
        let model = model.to_owned();
        let mut last = None;
        let listed = wait::eventually("the server lists the model", async || {
            let response = self.request(url, "/v1/models", None).await;
            let found = response.as_ref().ok().and_then(|(_, body)| model_id(body, &model));
            last = Some(response);
            found
        });
        let listed = listed.await;
        listed.with_context(|| format!("{url}/v1/models does not list {model}; the last response: {last:?}"))
    }

    /// Asks a server at `url` for a chat completion, and returns its text.
    pub async fn chat(&self, url: &str, model: &str) -> Result<String> {
        let (status, body) = self.request(url, "/v1/chat/completions", Some(chat_request(model, 16))).await?;
        ensure!(status.is_success(), "{url}/v1/chat/completions answered {status}: {body}");
        completion(&body).with_context(|| format!("{url}/v1/chat/completions has no text: {body}"))
    }
}

/// The body of a request for a chat completion.
pub fn chat_request(model: &str, max_tokens: u32) -> Value {
    json!({ "model": model, "max_tokens": max_tokens, "messages": [{ "role": "user", "content": "What can you do?" }] })
}

/// The text of a chat completion.
pub fn completion(body: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let text = answer["choices"][0]["message"]["content"].as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn model_id(body: &str, model: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let ids = answer["data"].as_array()?.iter().filter_map(|listed| listed["id"].as_str());
    ids.into_iter().find(|id| id.ends_with(model)).map(str::to_owned)
}
