//! The namespace of one test, with methods to change the LlamaStackDistribution `stack`, and to wait for its status and
//! children.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::TryStreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use steersman_testkit::audit::AuditedWrite;
pub use steersman_testkit::condition;
use steersman_testkit::pod_behaviour::PodBehaviour;
use steersman_testkit::{apply, wait};

use crate::env::{self, IDENTITY};
pub use crate::shared_namespace::TestNamespace;

pub const STACK: &str = "stack";

/// A Deployment of a server, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Server(pub Value);

impl TestNamespace {
    /// Creates a namespace. None if the cluster is not built; the test is then listed as skipped.
    pub async fn open(prefix: &str) -> Option<Self> {
        Self::create(prefix).await
    }

    /// Applies manifests like `kubectl apply`. Err: the message of the rejection.
    pub async fn try_apply(&self, manifests: &str) -> Result<(), String> {
        let applied = apply::apply_manifests(&self.admin, Some(self.name()), manifests).await;
        applied.map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    pub async fn apply(&self, manifests: &str) {
        self.try_apply(manifests).await.unwrap();
    }

    /// Applies a LlamaStackDistribution of v1alpha2 with the name `stack`.
    pub async fn apply_stack(&self, spec: Value) {
        self.try_apply_stack(spec).await.unwrap();
    }

    pub async fn try_apply_stack(&self, spec: Value) -> Result<(), String> {
        let manifest = json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": STACK }, "spec": spec });
        self.try_apply(&manifest.to_string()).await
    }

    /// Applies a spec that must be rejected, and returns the message.
    pub async fn expect_rejection(&self, spec: Value) -> String {
        let message = self.try_apply_stack(spec).await.expect_err("the spec must be rejected");
        let stored = env::objects(&self.admin, self.name(), "v1alpha2").get_opt(STACK).await.unwrap();
        assert!(stored.is_none(), "a rejected object must not be stored");
        message
    }

    pub async fn apply_secret(&self, name: &str, key: &str, value: &str) {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { key: value } });
        self.apply(&secret.to_string()).await;
    }

    pub async fn apply_config_map(&self, name: &str, key: &str, text: &str) {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { key: text } });
        self.apply(&map.to_string()).await;
    }

    /// Merges a patch into the stack. Err: the message of the rejection.
    pub async fn try_patch(&self, patch: Value) -> Result<(), String> {
        let objects = env::objects(&self.admin, self.name(), "v1alpha2");
        let patched = objects.patch(STACK, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(|_| ()).map_err(|error| error.to_string())
    }

    pub async fn patch(&self, patch: Value) {
        self.try_patch(patch).await.unwrap();
    }

    pub async fn patch_spec(&self, patch: Value) {
        self.patch(json!({ "spec": patch })).await;
    }

    /// Merges a patch into the status of the stack.
    pub async fn patch_status(&self, patch: Value) {
        let objects = env::objects(&self.admin, self.name(), "v1alpha2");
        let patch = Patch::Merge(json!({ "status": patch }));
        objects.patch_status(STACK, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete_stack(&self) {
        let objects = env::objects(&self.admin, self.name(), "v1alpha2");
        objects.delete(STACK, &DeleteParams::default()).await.unwrap();
    }

    /// Changes an annotation, which only triggers a reconcile.
    pub async fn trigger_reconcile(&self) {
        let now = self.object(STACK, "v1alpha2").await["metadata"]["resourceVersion"].clone();
        self.patch(json!({ "metadata": { "annotations": { "example.com/touched": now } } })).await;
    }

    /// Sets the behaviour of pods that are created from now on. None: they run.
    pub async fn set_play(&self, play: Option<PodBehaviour>) {
        self.namespace.set_pod_behaviour(play).await.unwrap();
    }

    /// The object in this version.
    pub async fn object(&self, name: &str, version: &str) -> Value {
        let found = env::objects(&self.admin, self.name(), version).get(name).await;
        json!(found.unwrap())
    }

    /// Waits until `holds` is true of the object, and returns it.
    pub async fn wait_for_object(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let objects = env::objects(&self.admin, self.name(), "v1alpha2");
        let mut last = Value::Null;
        let found = wait::eventually(what, async || {
            last = json!(objects.get_opt(name).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        found.await.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}", self.env.operator.log_end()))
    }

    pub async fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_object(STACK, what, holds).await
    }

    /// Waits until the server runs with the current spec, and returns the object.
    pub async fn wait_until_ready(&self) -> Value {
        self.wait_until_object_ready(STACK).await
    }

    pub async fn wait_until_object_ready(&self, name: &str) -> Value {
        self.wait_for_object(name, "the server is ready", |object| {
            object["status"]["phase"] == "Ready" && is_condition_current(object, "DeploymentReady")
        })
        .await
    }

    /// Waits for a condition with this status and reason that observed the current generation.
    pub async fn wait_for_condition(&self, type_: &str, status: &str, reason: &str) -> Value {
        self.wait_for(&format!("{type_} is {status} with reason {reason}"), |object| {
            let known = condition(object, type_);
            is_condition_current(object, type_) && known["status"] == status && known["reason"] == reason
        })
        .await
    }

    pub async fn server(&self) -> Server {
        Server(json!(self.api::<Deployment>().get(STACK).await.unwrap()))
    }

    /// Every version of the Deployment after `since` that changed its spec, from the watch history of the API server.
    pub async fn versions_since(&self, since: &Server) -> Vec<Server> {
        let (deployments, last) = (self.api::<Deployment>(), self.server().await);
        let mut specs = BTreeMap::new();
        if since.resource_version() != last.resource_version() {
            let only = WatchParams::default().fields(&format!("metadata.name={STACK}"));
            let mut history = Box::pin(deployments.watch(&only, since.resource_version()).await.unwrap());
            while let Some(event) = history.try_next().await.unwrap() {
                let WatchEvent::Modified(version) = event else { panic!("expected a modification: {event:?}") };
                let version = Server(json!(version));
                let reached = version.resource_version() == last.resource_version();
                specs.entry(version.generation()).or_insert(version);
                if reached {
                    break;
                }
            }
        }
        specs
            .into_iter()
            .filter(|(generation, _)| *generation > since.generation())
            .map(|(_, version)| version)
            .collect()
    }

    /// Number of the operator's writes of the Deployment in the audit log.
    pub fn deployment_writes(&self) -> usize {
        let path = format!("/namespaces/{}/deployments/{STACK}", self.name());
        let agent = format!(" {IDENTITY}");
        let ours = |written: &&AuditedWrite| {
            let written_path = written.uri.split('?').next().unwrap_or_default();
            written.succeeded() && written.user_agent.ends_with(&agent) && written_path.ends_with(&path)
        };
        self.env.cluster.audited_writes().unwrap().iter().filter(ours).count()
    }

    /// The configuration file that the server mounts.
    pub async fn config(&self) -> Value {
        let name = self.server().await.config_map().expect("the server must mount a configuration");
        let map = self.api::<ConfigMap>().get(&name).await.unwrap();
        serde_saphyr::from_str(&map.data.unwrap()["config.yaml"]).unwrap()
    }

    /// Names of the generated ConfigMaps.
    pub async fn generated_config_maps(&self) -> BTreeSet<String> {
        let wanted = ListParams::default().labels("app.kubernetes.io/component=generated-config");
        let listed = self.api::<ConfigMap>().list(&wanted).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect()
    }

    pub async fn get<K>(&self, name: &str) -> Option<Value>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        self.namespace.get::<K>(name).await.unwrap()
    }

    pub async fn wait_until_deleted<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        let deleted = async || self.get::<K>(name).await.is_none().then_some(());
        wait::eventually(&format!("{name} is deleted"), deleted).await.unwrap();
    }

    /// Uids of the pods. A recreated pod has another uid.
    pub async fn pod_uids(&self) -> BTreeSet<String> {
        let of_stack = ListParams::default().labels(&format!("app.kubernetes.io/instance={STACK}"));
        let listed = self.api::<Pod>().list(&of_stack).await.unwrap();
        listed.items.iter().filter_map(ResourceExt::uid).collect()
    }

    /// Number of pod templates that the Deployment ever had.
    pub async fn template_count(&self) -> usize {
        self.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.len()
    }

    /// Waits for an event with this reason, and returns its type and message.
    pub async fn event(&self, reason: &str) -> (String, String) {
        let event = self.namespace.wait_for_event(reason).await;
        event.unwrap_or_else(|error| panic!("{error}\n{}", self.env.operator.log_end()))
    }
}

/// A spec with the distribution `starter` and these sections.
pub fn starter(sections: Value) -> Value {
    let mut spec = sections;
    spec["distribution"] = json!({ "name": "starter" });
    spec
}

/// The inference provider that most users have.
pub fn vllm() -> Value {
    json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1" })
}

/// Whether the condition observed the current generation.
pub fn is_condition_current(object: &Value, type_: &str) -> bool {
    condition(object, type_)["observedGeneration"] == object["metadata"]["generation"]
}

/// The entry of a list whose `key` has this value, or null.
pub fn find_entry<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array().into_iter().flatten().find(|entry| entry[key] == name).unwrap_or(&Value::Null)
}

impl Server {
    pub fn resource_version(&self) -> &str {
        self.0["metadata"]["resourceVersion"].as_str().unwrap()
    }

    pub fn generation(&self) -> i64 {
        self.0["metadata"]["generation"].as_i64().unwrap()
    }

    pub fn pod_spec(&self) -> &Value {
        &self.0["spec"]["template"]["spec"]
    }

    pub fn container(&self) -> &Value {
        &self.pod_spec()["containers"][0]
    }

    pub fn image(&self) -> &str {
        self.container()["image"].as_str().unwrap()
    }

    pub fn env(&self, name: &str) -> &Value {
        find_entry(&self.container()["env"], "name", name)
    }

    pub fn volume(&self, name: &str) -> &Value {
        find_entry(&self.pod_spec()["volumes"], "name", name)
    }

    pub fn mount(&self, volume: &str) -> &Value {
        find_entry(&self.container()["volumeMounts"], "name", volume)
    }

    /// Name of the ConfigMap with the configuration.
    pub fn config_map(&self) -> Option<String> {
        self.volume("user-config")["configMap"]["name"].as_str().map(ToOwned::to_owned)
    }

    pub fn annotation(&self, key: &str) -> &Value {
        &self.0["spec"]["template"]["metadata"]["annotations"][key]
    }

    /// Hash of the configuration.
    pub fn config_hash(&self) -> &Value {
        self.annotation("configmap.hash/user-config")
    }

    /// The command of the server as JSON text.
    pub fn command(&self) -> String {
        self.container()["command"].to_string()
    }

    pub fn init_containers(&self) -> Vec<&str> {
        let listed = self.pod_spec()["initContainers"].as_array();
        listed.into_iter().flatten().filter_map(|container| container["name"].as_str()).collect()
    }
}
