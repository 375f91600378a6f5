//! A namespace for one test with one request in it, and what its user does and sees there.
//! Comes in: specs, patches, and how the graph fares; goes out: the request once what was waited for has come about.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
pub use steersman_testkit::condition;
use steersman_testkit::shown::Shown;
use steersman_testkit::{Play, apply, graphs, wait};

pub use crate::judged::Scene;
use crate::profiler::Profiler;
use crate::world;

pub const REQUEST: &str = "qwen";
pub const JOB: &str = "profile-qwen";
pub const OUTPUT: &str = "dgdr-output-qwen";
pub const GRAPH: &str = "qwen-dgd";
/// What the played profiler generates beside the graph.
pub const PLANNER: &str = "planner-config-1a2b";

impl Scene {
    /// None (after saying so) where no cluster is to be had. The pods of Jobs run until the test lets them end.
    pub async fn open(prefix: &str) -> Option<Self> {
        Self::played(prefix, Play::Hang).await
    }

    /// The same with pods that do this.
    pub async fn played(prefix: &str, play: Play) -> Option<Self> {
        let scene = Self::bare(prefix).await?;
        scene.namespace.play(Some(play)).await.unwrap();
        Some(scene)
    }

    pub fn requests(&self) -> Api<DynamicObject> {
        world::requests(&self.admin, self.name(), "v1beta1")
    }

    pub fn graphs(&self) -> Api<DynamicObject> {
        world::graphs(&self.admin, self.name())
    }

    pub async fn apply(&self, manifest: Value) {
        apply::manifests(&self.admin, Some(self.name()), &manifest.to_string()).await.unwrap();
    }

    /// A request of v1beta1.
    pub async fn ask(&self, spec: Value) {
        self.apply(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": REQUEST }, "spec": spec }))
            .await;
    }

    /// A merge patch of the request.
    pub async fn change(&self, patch: Value) {
        self.requests().patch(REQUEST, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self) {
        self.requests().delete(REQUEST, &DeleteParams::default()).await.unwrap();
    }

    pub async fn claim(&self, name: &str) {
        self.apply(
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
            "storageClassName": "stock", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }),
        )
        .await;
    }

    pub async fn config_map(&self, name: &str, key: &str, text: &str) {
        self.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { key: text } }))
            .await;
    }

    /// The request in this version.
    pub async fn object(&self, version: &str) -> Value {
        json!(world::requests(&self.admin, self.name(), version).get(REQUEST).await.unwrap())
    }

    /// The request once this holds of it.
    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until_or(what, holds, String::new).await
    }

    /// The same with more to read where it never does.
    pub async fn until_or(&self, what: &str, holds: impl Fn(&Value) -> bool, more: impl Fn() -> String) -> Value {
        let requests = self.requests();
        let mut last = Value::Null;
        let seen = wait::eventually(what, async || {
            last = json!(requests.get_opt(REQUEST).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        let seen = seen.await;
        seen.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}\n{}", more(), self.world.operator.log_end()))
    }

    pub async fn until_phase(&self, phase: &str) -> Value {
        self.until(&format!("the request is {phase}"), |request| request["status"]["phase"] == phase).await
    }

    /// Until the sum of it all says this.
    pub async fn until_said(&self, part: &str) -> Value {
        let says =
            |request: &Value| condition(request, "Succeeded")["message"].as_str().is_some_and(|m| m.contains(part));
        self.until(&format!("the request says {part:?}"), says).await
    }

    pub async fn job(&self) -> Job {
        let made = async || self.all::<Job>().get_opt(JOB).await.ok()?;
        wait::eventually("there is a Job", made).await.unwrap()
    }

    /// The pod of the Job.
    pub async fn pod(&self) -> Pod {
        let uid = self.job().await.uid().unwrap();
        let pods = self.all::<Pod>();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={uid}"));
        let made = async || pods.list(&of_job).await.ok()?.items.into_iter().next();
        wait::eventually("the Job has a pod", made).await.unwrap()
    }

    /// The profiler of the Job, with the relay beside it.
    pub async fn profiler(&self) -> Profiler<'_> {
        Profiler::start(self).await
    }

    /// Profiled, with a result.
    pub async fn profiled(&self) {
        self.profiler().await.succeeds().await;
    }

    pub async fn graph(&self) -> DynamicObject {
        let made = wait::eventually("there is a graph", async || self.graphs().get_opt(GRAPH).await.ok()?);
        made.await.unwrap_or_else(|error| panic!("{error}\n{}", self.world.operator.log_end()))
    }

    /// As whoever runs graphs would say.
    pub async fn graph_is(&self, state: &str, why: &str) {
        self.graph().await;
        let components =
            json!({ "Frontend": { "replicas": 1, "availableReplicas": 1 }, "VllmDecodeWorker": { "replicas": 2 } });
        graphs::is(&self.graphs(), GRAPH, state, why, &components).await.unwrap();
    }

    /// All the way to a graph that serves.
    pub async fn deployed(&self) {
        self.profiled().await;
        self.graph_is("successful", "").await;
        self.until_phase("Deployed").await;
    }

    /// What kubectl shows now, under the name of this situation. It asks twice, and the request may move in between.
    pub fn shown(&self, situation: &str) -> Shown {
        let kubectl =
            |command: &str| self.world.cluster.kubectl(&[command, "dgdr", REQUEST, "-n", self.name()]).unwrap();
        let ageless = |table: &str| table.trim_end().rsplit_once(' ').map(|(rest, _)| rest.trim_end().to_owned());
        let mut before = kubectl("get");
        loop {
            let (description, after) = (kubectl("describe"), kubectl("get"));
            if ageless(&before) == ageless(&after) {
                return Shown::new(situation, "dgdr", after, description).unwrap();
            }
            before = after;
        }
    }
}

/// With all hardware given.
pub fn spec(more: Value) -> Value {
    let mut spec = json!({
        "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0",
        "hardware": { "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
            "interconnect": "nvlink", "rdma": false },
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}
