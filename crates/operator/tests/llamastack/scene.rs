//! A namespace for one test, with what a user does and sees there.
//! Comes in: manifests and patches; goes out: objects as they are once what was waited for has come about.

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
use steersman_testkit::audit::Written;
pub use steersman_testkit::condition;
use steersman_testkit::play::Play;
use steersman_testkit::{apply, wait};

pub use crate::judged::Scene;
use crate::world::{self, IDENTITY};

pub const STACK: &str = "stack";

/// A Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Server(pub Value);

impl Scene {
    /// None (after saying so) where no cluster is to be had.
    pub async fn open(prefix: &str) -> Option<Self> {
        Self::bare(prefix).await
    }

    /// As with `kubectl apply`; or why not.
    pub async fn try_apply(&self, manifests: &str) -> Result<(), String> {
        let applied = apply::manifests(&self.admin, Some(self.name()), manifests).await;
        applied.map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    pub async fn apply(&self, manifests: &str) {
        self.try_apply(manifests).await.unwrap();
    }

    /// A LlamaStackDistribution of v1alpha2 called `stack`.
    pub async fn stack(&self, spec: Value) {
        self.try_stack(spec).await.unwrap();
    }

    pub async fn try_stack(&self, spec: Value) -> Result<(), String> {
        let manifest = json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
            "metadata": { "name": STACK }, "spec": spec });
        self.try_apply(&manifest.to_string()).await
    }

    /// Why it is refused.
    pub async fn refused(&self, spec: Value) -> String {
        let said = self.try_stack(spec).await.expect_err("it is refused");
        let stored = world::objects(&self.admin, self.name(), "v1alpha2").get_opt(STACK).await.unwrap();
        assert!(stored.is_none(), "it is not stored");
        said
    }

    pub async fn secret(&self, name: &str, key: &str, value: &str) {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { key: value } });
        self.apply(&secret.to_string()).await;
    }

    pub async fn config_map(&self, name: &str, key: &str, text: &str) {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { key: text } });
        self.apply(&map.to_string()).await;
    }

    /// A merge patch of the stack.
    pub async fn try_patch(&self, patch: Value) -> Result<(), String> {
        let objects = world::objects(&self.admin, self.name(), "v1alpha2");
        let patched = objects.patch(STACK, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(|_| ()).map_err(|error| error.to_string())
    }

    pub async fn patch(&self, patch: Value) {
        self.try_patch(patch).await.unwrap();
    }

    pub async fn spec(&self, patch: Value) {
        self.patch(json!({ "spec": patch })).await;
    }

    /// A merge patch of what the stack's status says.
    pub async fn status(&self, patch: Value) {
        let objects = world::objects(&self.admin, self.name(), "v1alpha2");
        let patch = Patch::Merge(json!({ "status": patch }));
        objects.patch_status(STACK, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete(&self) {
        let objects = world::objects(&self.admin, self.name(), "v1alpha2");
        objects.delete(STACK, &DeleteParams::default()).await.unwrap();
    }

    /// A change that says nothing: it only brings a pass.
    pub async fn touch(&self) {
        let now = self.object(STACK, "v1alpha2").await["metadata"]["resourceVersion"].clone();
        self.patch(json!({ "metadata": { "annotations": { "example.com/touched": now } } })).await;
    }

    /// Pods that are made from now on do this; None: they run.
    pub async fn play(&self, play: Option<Play>) {
        self.namespace.play(play).await.unwrap();
    }

    /// The object in this version.
    pub async fn object(&self, name: &str, version: &str) -> Value {
        let found = world::objects(&self.admin, self.name(), version).get(name).await;
        json!(found.unwrap())
    }

    /// The object once this holds of it.
    pub async fn until_of(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let objects = world::objects(&self.admin, self.name(), "v1alpha2");
        let mut last = Value::Null;
        let seen = wait::eventually(what, async || {
            last = json!(objects.get_opt(name).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        let seen = seen.await;
        seen.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}", self.world.operator.log_end()))
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until_of(STACK, what, holds).await
    }

    /// The object once its server runs as the spec that it has now says.
    pub async fn ready(&self) -> Value {
        self.ready_of(STACK).await
    }

    pub async fn ready_of(&self, name: &str) -> Value {
        self.until_of(name, "the server is ready", |object| {
            object["status"]["phase"] == "Ready" && is_told(object, "DeploymentReady")
        })
        .await
    }

    /// The object once the condition, told of the spec that it has now, has this status and reason.
    pub async fn until_condition(&self, type_: &str, status: &str, reason: &str) -> Value {
        self.until(&format!("{type_} is {status}: {reason}"), |object| {
            let known = condition(object, type_);
            is_told(object, type_) && known["status"] == status && known["reason"] == reason
        })
        .await
    }

    pub async fn server(&self) -> Server {
        Server(json!(self.all::<Deployment>().get(STACK).await.unwrap()))
    }

    /// Every version of the Deployment after `since` that changed its spec, by the API server's own history.
    pub async fn versions(&self, since: &Server) -> Vec<Server> {
        let (deployments, last) = (self.all::<Deployment>(), self.server().await);
        let mut specs = BTreeMap::new();
        if since.version() != last.version() {
            let only = WatchParams::default().fields(&format!("metadata.name={STACK}"));
            let mut history = Box::pin(deployments.watch(&only, since.version()).await.unwrap());
            while let Some(event) = history.try_next().await.unwrap() {
                let WatchEvent::Modified(version) = event else { panic!("not a change: {event:?}") };
                let version = Server(json!(version));
                let reached = version.version() == last.version();
                specs.entry(version.generation()).or_insert(version);
                if reached {
                    break;
                }
            }
        }
        specs.into_iter().filter(|(generation, _)| *generation > since.generation()).map(|(_, seen)| seen).collect()
    }

    /// How often the operator has written the Deployment, by the audit log.
    pub fn deployment_writes(&self) -> usize {
        let path = format!("/namespaces/{}/deployments/{STACK}", self.name());
        let agent = format!(" {IDENTITY}");
        let ours = |written: &&Written| {
            let asked = written.uri.split('?').next().unwrap_or_default();
            written.succeeded() && written.user_agent.ends_with(&agent) && asked.ends_with(&path)
        };
        self.world.cluster.writes().unwrap().iter().filter(ours).count()
    }

    /// The file that the server is started with.
    pub async fn config(&self) -> Value {
        let name = self.server().await.config_map().expect("a configuration is mounted");
        let map = self.all::<ConfigMap>().get(&name).await.unwrap();
        serde_saphyr::from_str(&map.data.unwrap()["config.yaml"]).unwrap()
    }

    /// Names of the generated ConfigMaps.
    pub async fn generated(&self) -> BTreeSet<String> {
        let wanted = ListParams::default().labels("app.kubernetes.io/component=generated-config");
        let listed = self.all::<ConfigMap>().list(&wanted).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect()
    }

    pub async fn get<K>(&self, name: &str) -> Option<Value>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        self.namespace.get::<K>(name).await.unwrap()
    }

    pub async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        let gone = async || self.get::<K>(name).await.is_none().then_some(());
        wait::eventually(&format!("{name} is gone"), gone).await.unwrap();
    }

    /// Which pods there are, by their uids: one that was restarted has another.
    pub async fn pods(&self) -> BTreeSet<String> {
        let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={STACK}"));
        let listed = self.all::<Pod>().list(&own).await.unwrap();
        listed.items.iter().filter_map(ResourceExt::uid).collect()
    }

    /// How many templates the Deployment ever had pods of.
    pub async fn templates(&self) -> usize {
        self.all::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.len()
    }

    /// What the event with this reason says, and of which type it is.
    pub async fn event(&self, reason: &str) -> (String, String) {
        let told = self.namespace.event(reason).await;
        told.unwrap_or_else(|error| panic!("{error}\n{}", self.world.operator.log_end()))
    }
}

/// A spec with the distribution `starter` and these sections.
pub fn starter(sections: Value) -> Value {
    let mut spec = sections;
    spec["distribution"] = json!({ "name": "starter" });
    spec
}

/// An inference provider of the kind that most users have.
pub fn vllm() -> Value {
    json!({ "provider": "vllm", "endpoint": "http://vllm:8000/v1" })
}

/// Whether the condition speaks of the spec that the object has now.
pub fn is_told(object: &Value, type_: &str) -> bool {
    condition(object, type_)["observedGeneration"] == object["metadata"]["generation"]
}

/// The entry of this list with the name.
pub fn named<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array().into_iter().flatten().find(|entry| entry[key] == name).unwrap_or(&Value::Null)
}

impl Server {
    pub fn version(&self) -> &str {
        self.0["metadata"]["resourceVersion"].as_str().unwrap()
    }

    pub fn generation(&self) -> i64 {
        self.0["metadata"]["generation"].as_i64().unwrap()
    }

    pub fn pod(&self) -> &Value {
        &self.0["spec"]["template"]["spec"]
    }

    pub fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    pub fn image(&self) -> &str {
        self.container()["image"].as_str().unwrap()
    }

    pub fn env(&self, name: &str) -> &Value {
        named(&self.container()["env"], "name", name)
    }

    pub fn volume(&self, name: &str) -> &Value {
        named(&self.pod()["volumes"], "name", name)
    }

    pub fn mount(&self, volume: &str) -> &Value {
        named(&self.container()["volumeMounts"], "name", volume)
    }

    /// With the configuration.
    pub fn config_map(&self) -> Option<String> {
        self.volume("user-config")["configMap"]["name"].as_str().map(ToOwned::to_owned)
    }

    pub fn annotation(&self, key: &str) -> &Value {
        &self.0["spec"]["template"]["metadata"]["annotations"][key]
    }

    /// Of the configuration.
    pub fn hash(&self) -> &Value {
        self.annotation("configmap.hash/user-config")
    }

    /// The command of the server as one text.
    pub fn command(&self) -> String {
        self.container()["command"].to_string()
    }

    pub fn init_containers(&self) -> Vec<&str> {
        let listed = self.pod()["initContainers"].as_array();
        listed.into_iter().flatten().filter_map(|container| container["name"].as_str()).collect()
    }
}
