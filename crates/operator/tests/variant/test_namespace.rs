//! The namespace of one test, with methods to change workloads and objects, and to wait for their status.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
pub use steersman_testkit::condition_parts as condition;
use steersman_testkit::metrics::find_series;
use steersman_testkit::{Namespace, apply, kubectl_output, wait};

use crate::env::{self, FleetEnv};
use crate::operator::OperatorProbe;
use crate::shared_env;

/// Label of pods with the model that they serve.
pub const MODEL_LABEL: &str = "scenarios.steersman.dev/model";

/// Longer than a minute, because decisions use the measurements of the last minute.
const STATUS_TIMEOUT: Duration = Duration::from_secs(240);

pub struct TestNamespace {
    pub env: &'static FleetEnv,
    pub admin: Client,
    pub namespace: Namespace,
    /// Probe of the operator that reconciles this namespace.
    pub probe: OperatorProbe,
}

impl TestNamespace {
    /// Creates a namespace. None if the cluster is not built; the test is then listed as skipped.
    pub async fn open(prefix: &str) -> Option<Self> {
        let env = env::test_env().await?;
        let admin = env.cluster.admin().await.unwrap();
        let namespace = env.cluster.namespace(prefix).await.unwrap();
        Some(Self { env, admin, namespace, probe: env.probe.clone() })
    }

    /// Creates a namespace that the shared operator ignores, for a test with its own operator.
    pub async fn excluded(prefix: &str) -> Option<Self> {
        let env = env::test_env().await?;
        let admin = env.cluster.admin().await.unwrap();
        let exclude = [("wva.llmd.ai/exclude", "true")];
        let namespace = env.cluster.namespace_with_annotations(prefix, &exclude).await.unwrap();
        Some(Self { env, admin, namespace, probe: env.probe.clone() })
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    pub async fn apply(&self, manifest: Value) {
        apply::apply_manifests(&self.admin, Some(self.name()), &manifest.to_string()).await.unwrap();
    }

    /// Applies a Deployment that serves this model.
    pub async fn deploy(&self, name: &str, model: &str, replicas: i32) {
        self.deploy_with_resources(name, model, replicas, json!({})).await;
    }

    /// The same, with these resources for each replica.
    pub async fn deploy_with_resources(&self, name: &str, model: &str, replicas: i32, resources: Value) {
        let container = json!({ "name": "vllm", "image": "example.com/vllm:1", "resources": resources });
        let labels = json!({ "app": name, MODEL_LABEL: model });
        self.apply(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": labels },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [container] } } } }))
            .await;
    }

    pub async fn scale_workload(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.namespace.api::<Deployment>().patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn apply_config_map(&self, name: &str, data: Value) {
        self.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data }))
            .await;
    }

    pub fn variants(&self) -> Api<DynamicObject> {
        shared_env::objects(&self.admin, Family::Va, self.name(), "v1alpha1")
    }

    pub async fn apply_variant(&self, name: &str, spec: Value) {
        self.apply(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": name }, "spec": spec }))
            .await;
    }

    /// Merges a patch into the spec of a VariantAutoscaling.
    pub async fn patch_spec(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.variants().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete_variant(&self, name: &str) {
        self.variants().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn object(&self, name: &str) -> Value {
        json!(self.variants().get(name).await.unwrap())
    }

    /// Waits until `holds` is true of the object, and returns it.
    pub async fn wait_for(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let (variants, what, mut last) = (self.variants(), format!("{name}: {what}"), Value::Null);
        let found = wait::eventually_within(STATUS_TIMEOUT, &what, async || {
            last = json!(variants.get_opt(name).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        found.await.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}", self.probe.log_end()))
    }

    pub async fn wait_for_desired(&self, name: &str, replicas: i64) -> Value {
        self.wait_for(name, &format!("{replicas} replicas are desired"), |object| desired(object) == Some(replicas))
            .await
    }

    /// Waits for a condition with this status and reason, and a message that contains this text.
    pub async fn wait_for_condition(&self, name: &str, type_: &str, wanted: [&str; 3]) -> Value {
        let [status, reason, part] = wanted;
        let is = |object: &Value| {
            let (known, why, message) = condition(object, type_);
            known == status && why == reason && message.contains(part)
        };
        self.wait_for(name, &format!("{type_} is {status} with reason {reason} and message {part:?}"), is).await
    }

    /// Waits until metrics are available and this number of replicas is desired and running.
    pub async fn wait_until_settled(&self, name: &str, replicas: i64) -> Value {
        let what = format!("metrics are available, and {replicas} replicas are desired and running");
        let is = |object: &Value| {
            let metrics = condition(object, "MetricsAvailable");
            // Metrics of a new replica count as missing only once it is ready.
            let hold = object["status"]["decision"]["hold"].as_str().unwrap_or_default();
            let in_progress = hold.starts_with("waiting for an earlier decision to be carried out");
            (desired(object), current(object)) == (Some(replicas), Some(replicas))
                && metrics.0 == "True"
                && !in_progress
        };
        self.wait_for(name, &what, is).await
    }

    /// Asserts that these objects are not written during this number of reconciles, after those in progress have ended.
    pub async fn assert_unchanged_for(&self, reconciles: usize, names: &[&str]) {
        self.probe.wait_for_reconciles(2).await;
        let mut before = Vec::new();
        for name in names {
            before.push(self.object(name).await);
        }
        self.probe.wait_for_reconciles(reconciles).await;
        for (name, before) in names.iter().zip(before) {
            let after = self.object(name).await;
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&before), version(&after), "{name} was written:\n{before:#}\n{after:#}");
        }
    }

    /// Type and message of the object's events with this reason, oldest first.
    pub async fn events(&self, name: &str, reason: &str) -> Vec<(String, String)> {
        let listed = self.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
        let matches = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        let content = |event: Event| (event.type_.unwrap_or_default(), event.message.unwrap_or_default());
        listed.items.into_iter().filter(matches).map(content).collect()
    }

    /// Waits for the object's first event with this reason.
    pub async fn event(&self, name: &str, reason: &str) -> (String, String) {
        let what = format!("{name} has an event {reason}");
        let found = async || self.events(name, reason).await.into_iter().next();
        wait::eventually(&what, found).await.unwrap_or_else(|error| panic!("{error}\n{}", self.probe.log_end()))
    }

    /// The gauges of an object: desired and current replicas, and their ratio.
    pub async fn gauges(&self, name: &str) -> [Option<f64>; 3] {
        let labels = [("variant_name", name), ("namespace", self.name())];
        let text = wait::eventually("the operator serves metrics", async || self.probe.metrics().await).await.unwrap();
        ["wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"].map(|metric| {
            let found = find_series(&text, metric, &labels);
            assert!(found.len() < 2, "more than one series of {metric}: {found:?}");
            found.first().map(|(_, value)| *value)
        })
    }

    pub async fn wait_for_gauges(&self, name: &str, wanted: [Option<f64>; 3]) {
        let what = format!("the gauges of {name} are {wanted:?}");
        let mut last = [None; 3];
        let are = wait::eventually(&what, async || {
            last = self.gauges(name).await;
            (last == wanted).then_some(())
        });
        are.await.unwrap_or_else(|error| panic!("{error}; last values: {last:?}\n{}", self.probe.log_end()));
    }

    /// Records the current output of kubectl for an object under the name of this situation.
    pub async fn record_kubectl_output(&self, name: &str, situation: &str) -> String {
        let (cluster, namespace, name) = (self.env.cluster, self.name().to_owned(), name.to_owned());
        let run = move || {
            let get = ["get", "va", "-n", &namespace];
            let wide = ["get", "va", &name, "-n", &namespace, "-o", "wide"];
            let describe = ["describe", "va", &name, "-n", &namespace];
            [&get[..], &wide, &describe].map(|command| (command.join(" "), cluster.kubectl(command).unwrap()))
        };
        let outputs = tokio::task::spawn_blocking(run).await.unwrap();
        let text: String = outputs.iter().map(|(command, output)| format!("$ kubectl {command}\n{output}\n")).collect();
        kubectl_output::save_output(situation, &text).unwrap();
        text
    }
}

/// The spec of a VariantAutoscaling for a Deployment that serves this model.
pub fn spec(target: &str, model: &str, more: Value) -> Value {
    let mut spec = json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target },
        "modelID": model, "accelerator": "A100" });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

pub fn desired(object: &Value) -> Option<i64> {
    object["status"]["desiredOptimizedAlloc"]["numReplicas"].as_i64()
}

pub fn current(object: &Value) -> Option<i64> {
    object["status"]["currentAlloc"]["numReplicas"].as_i64()
}

/// Reason of the last change of the desired replicas.
pub fn reason(object: &Value) -> &str {
    object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["reason"].as_str().unwrap_or_default()
}
