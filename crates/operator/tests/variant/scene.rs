//! A namespace for one test, and what its users do and see there.
//! Comes in: workloads, objects and changes; goes out: objects once what was waited for has come about.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::metrics::find;
pub use steersman_testkit::statement as condition;
use steersman_testkit::{Namespace, apply, shown, wait};

use crate::operator::Voice;
use crate::stage;
use crate::world::{self, World};

/// On pods: the model that they serve.
pub const MODEL_LABEL: &str = "scenarios.steersman.dev/model";

/// What was measured in the last minute counts, so that some things take longer than that.
const LIMIT: Duration = Duration::from_secs(240);

pub struct Scene {
    pub world: &'static World,
    pub admin: Client,
    pub namespace: Namespace,
    /// The operator that acts here.
    pub voice: Voice,
}

impl Scene {
    /// None (after saying so) where no cluster is to be had.
    pub async fn open(prefix: &str) -> Option<Self> {
        let world = world::world().await?;
        let admin = world.cluster.admin().await.unwrap();
        let namespace = world.cluster.namespace(prefix).await.unwrap();
        Some(Self { world, admin, namespace, voice: world.voice.clone() })
    }

    /// Where the shared operator does not act.
    pub async fn apart(prefix: &str) -> Option<Self> {
        let world = world::world().await?;
        let admin = world.cluster.admin().await.unwrap();
        let left_alone = [("wva.llmd.ai/exclude", "true")];
        let namespace = world.cluster.namespace_with(prefix, &left_alone).await.unwrap();
        Some(Self { world, admin, namespace, voice: world.voice.clone() })
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    pub async fn apply(&self, manifest: Value) {
        apply::manifests(&self.admin, Some(self.name()), &manifest.to_string()).await.unwrap();
    }

    /// A workload that serves this model.
    pub async fn deploy(&self, name: &str, model: &str, replicas: i32) {
        self.deploy_with(name, model, replicas, json!({})).await;
    }

    /// The same with these resources for each replica.
    pub async fn deploy_with(&self, name: &str, model: &str, replicas: i32, resources: Value) {
        let container = json!({ "name": "vllm", "image": "example.com/vllm:1", "resources": resources });
        let labels = json!({ "app": name, MODEL_LABEL: model });
        self.apply(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": labels },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [container] } } } }))
            .await;
    }

    pub async fn scale(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.namespace.all::<Deployment>().patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn config_map(&self, name: &str, data: Value) {
        self.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data }))
            .await;
    }

    pub fn variants(&self) -> Api<DynamicObject> {
        stage::objects(&self.admin, Family::Va, self.name(), "v1alpha1")
    }

    pub async fn variant(&self, name: &str, spec: Value) {
        self.apply(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": name }, "spec": spec }))
            .await;
    }

    /// A merge patch of the object.
    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.variants().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.variants().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn object(&self, name: &str) -> Value {
        json!(self.variants().get(name).await.unwrap())
    }

    /// The object once this holds of it.
    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let (variants, what, mut last) = (self.variants(), format!("{name}: {what}"), Value::Null);
        let seen = wait::eventually_within(LIMIT, &what, async || {
            last = json!(variants.get_opt(name).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        let seen = seen.await;
        seen.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}", self.voice.last_words()))
    }

    pub async fn until_desired(&self, name: &str, replicas: i64) -> Value {
        self.until(name, &format!("{replicas} replicas are desired"), |seen| desired(seen) == Some(replicas)).await
    }

    /// Until the condition has this status and reason, and its message this part.
    pub async fn until_condition(&self, name: &str, type_: &str, wanted: [&str; 3]) -> Value {
        let [status, reason, part] = wanted;
        let is = |seen: &Value| {
            let (known, why, message) = condition(seen, type_);
            known == status && why == reason && message.contains(part)
        };
        self.until(name, &format!("{type_} is {status} because of {reason}: {part}"), is).await
    }

    /// Metrics are there, and so many replicas are desired and run.
    pub async fn until_settled(&self, name: &str, replicas: i64) -> Value {
        let what = format!("{replicas} replicas run, which are desired, by metrics");
        let is = |seen: &Value| {
            let metrics = condition(seen, "MetricsAvailable");
            // Metrics of a replica that was just asked for are missed only once it is ready.
            let hold = seen["status"]["decision"]["hold"].as_str().unwrap_or_default();
            let comes = hold.starts_with("waiting for an earlier decision to be carried out");
            (desired(seen), current(seen)) == (Some(replicas), Some(replicas)) && metrics.0 == "True" && !comes
        };
        self.until(name, &what, is).await
    }

    /// Once what was under way is done, so many passes change nothing about these objects.
    pub async fn assert_silent_for(&self, passes: usize, names: &[&str]) {
        self.voice.passes(2).await;
        let mut before = Vec::new();
        for name in names {
            before.push(self.object(name).await);
        }
        self.voice.passes(passes).await;
        for (name, before) in names.iter().zip(before) {
            let after = self.object(name).await;
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&before), version(&after), "{name} was written:\n{before:#}\n{after:#}");
        }
    }

    /// Type and message of the object's events with this reason, oldest first.
    pub async fn events(&self, name: &str, reason: &str) -> Vec<(String, String)> {
        let listed = self.namespace.all::<Event>().list(&ListParams::default()).await.unwrap();
        let of = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        let told = |event: Event| (event.type_.unwrap_or_default(), event.message.unwrap_or_default());
        listed.items.into_iter().filter(of).map(told).collect()
    }

    /// The one event of the object with this reason, once there is one.
    pub async fn event(&self, name: &str, reason: &str) -> (String, String) {
        let what = format!("an event {reason} of {name}");
        let found = async || self.events(name, reason).await.into_iter().next();
        wait::eventually(&what, found).await.unwrap_or_else(|error| panic!("{error}\n{}", self.voice.last_words()))
    }

    /// The gauges of an object: desired and current replicas, and their ratio.
    pub async fn gauges(&self, name: &str) -> [Option<f64>; 3] {
        let labels = [("variant_name", name), ("namespace", self.name())];
        let text = wait::eventually("the operator's metrics", async || self.voice.metrics().await).await.unwrap();
        ["wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"].map(|metric| {
            let found = find(&text, metric, &labels);
            assert!(found.len() < 2, "one series of {metric}: {found:?}");
            found.first().map(|(_, value)| *value)
        })
    }

    pub async fn until_gauges(&self, name: &str, wanted: [Option<f64>; 3]) {
        let what = format!("the gauges of {name} are {wanted:?}");
        let mut last = [None; 3];
        let are = wait::eventually(&what, async || {
            last = self.gauges(name).await;
            (last == wanted).then_some(())
        });
        are.await.unwrap_or_else(|error| panic!("{error}, but {last:?}\n{}", self.voice.last_words()));
    }

    /// What kubectl shows of an object now, kept under the name of this situation.
    pub async fn shown(&self, name: &str, situation: &str) -> String {
        let (cluster, namespace, name) = (self.world.cluster, self.name().to_owned(), name.to_owned());
        let ask = move || {
            let get = ["get", "va", "-n", &namespace];
            let wide = ["get", "va", &name, "-n", &namespace, "-o", "wide"];
            let describe = ["describe", "va", &name, "-n", &namespace];
            [&get[..], &wide, &describe].map(|command| (command.join(" "), cluster.kubectl(command).unwrap()))
        };
        let said = tokio::task::spawn_blocking(ask).await.unwrap();
        let text: String = said.iter().map(|(command, said)| format!("$ kubectl {command}\n{said}\n")).collect();
        shown::keep(situation, &text).unwrap();
        text
    }
}

/// For a workload that serves this model.
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

/// Why the number last changed.
pub fn reason(object: &Value) -> &str {
    object["status"]["desiredOptimizedAlloc"]["lastUpdate"]["reason"].as_str().unwrap_or_default()
}
