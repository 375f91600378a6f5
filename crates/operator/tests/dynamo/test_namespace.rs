//! The namespace of one test with one request, with methods to change the request and its graph, and to wait for the
//! status.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
pub use steersman_testkit::condition;
use steersman_testkit::kubectl_output::KubectlOutput;
use steersman_testkit::{PodBehaviour, apply, fake_graphs, wait};

use crate::env;
use crate::profiler::Profiler;
pub use crate::shared_namespace::TestNamespace;

pub const REQUEST: &str = "qwen";
pub const JOB: &str = "profile-qwen";
pub const OUTPUT: &str = "dgdr-output-qwen";
pub const GRAPH: &str = "qwen-dgd";
/// ConfigMap that the simulated profiler generates in addition to the graph.
pub const PLANNER_CONFIG: &str = "planner-config-1a2b";

impl TestNamespace {
    /// Creates a namespace in which pods of Jobs run until the test ends them. None if the cluster is not built; the test
    /// is then listed as skipped.
    pub async fn open(prefix: &str) -> Option<Self> {
        Self::with_pod_behaviour(prefix, PodBehaviour::Hang).await
    }

    /// The same, with another behaviour of pods.
    pub async fn with_pod_behaviour(prefix: &str, behaviour: PodBehaviour) -> Option<Self> {
        let ns = Self::create(prefix).await?;
        ns.namespace.set_pod_behaviour(Some(behaviour)).await.unwrap();
        Some(ns)
    }

    pub fn requests(&self) -> Api<DynamicObject> {
        env::requests(&self.admin, self.name(), "v1beta1")
    }

    pub fn graphs(&self) -> Api<DynamicObject> {
        env::graphs(&self.admin, self.name())
    }

    pub async fn apply(&self, manifest: Value) {
        apply::apply_manifests(&self.admin, Some(self.name()), &manifest.to_string()).await.unwrap();
    }

    /// Applies a request of v1beta1.
    pub async fn apply_request(&self, spec: Value) {
        self.apply(json!({ "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeploymentRequest",
            "metadata": { "name": REQUEST }, "spec": spec }))
            .await;
    }

    /// Merges a patch into the request.
    pub async fn patch_request(&self, patch: Value) {
        self.requests().patch(REQUEST, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete_request(&self) {
        self.requests().delete(REQUEST, &DeleteParams::default()).await.unwrap();
    }

    pub async fn apply_claim(&self, name: &str) {
        self.apply(
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
            "storageClassName": "stock", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }),
        )
        .await;
    }

    pub async fn apply_config_map(&self, name: &str, key: &str, text: &str) {
        self.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { key: text } }))
            .await;
    }

    /// The request in this version.
    pub async fn object(&self, version: &str) -> Value {
        json!(env::requests(&self.admin, self.name(), version).get(REQUEST).await.unwrap())
    }

    /// Waits until `holds` is true of the request, and returns it.
    pub async fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_or_show(what, holds, String::new).await
    }

    /// The same, with additional text for the message of a failure.
    pub async fn wait_for_or_show(
        &self,
        what: &str,
        holds: impl Fn(&Value) -> bool,
        more: impl Fn() -> String,
    ) -> Value {
        let requests = self.requests();
        let mut last = Value::Null;
        let found = wait::eventually(what, async || {
            last = json!(requests.get_opt(REQUEST).await.ok()?);
            holds(&last).then(|| last.clone())
        });
        found.await.unwrap_or_else(|error| panic!("{error}\n{last:#}\n{}\n{}", more(), self.env.operator.log_end()))
    }

    pub async fn wait_for_phase(&self, phase: &str) -> Value {
        self.wait_for(&format!("the request is in phase {phase}"), |request| request["status"]["phase"] == phase).await
    }

    /// Waits until the message of the condition `Succeeded` contains this text.
    pub async fn wait_for_message(&self, part: &str) -> Value {
        let has_message =
            |request: &Value| condition(request, "Succeeded")["message"].as_str().is_some_and(|m| m.contains(part));
        self.wait_for(&format!("the message of the request contains {part:?}"), has_message).await
    }

    pub async fn job(&self) -> Job {
        let created = async || self.api::<Job>().get_opt(JOB).await.ok()?;
        wait::eventually("the Job is created", created).await.unwrap()
    }

    /// The pod of the Job.
    pub async fn pod(&self) -> Pod {
        let uid = self.job().await.uid().unwrap();
        let pods = self.api::<Pod>();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={uid}"));
        let created = async || pods.list(&of_job).await.ok()?.items.into_iter().next();
        wait::eventually("the Job has a pod", created).await.unwrap()
    }

    /// Starts the simulated profiler of the Job, with the real relay.
    pub async fn profiler(&self) -> Profiler<'_> {
        Profiler::start(self).await
    }

    /// Runs the profiler to a successful end.
    pub async fn complete_profiling(&self) {
        self.profiler().await.succeed().await;
    }

    pub async fn graph(&self) -> DynamicObject {
        let created = wait::eventually("the graph is created", async || self.graphs().get_opt(GRAPH).await.ok()?);
        created.await.unwrap_or_else(|error| panic!("{error}\n{}", self.env.operator.log_end()))
    }

    /// Sets the status of the graph, as its operator would.
    pub async fn set_graph_state(&self, state: &str, why: &str) {
        self.graph().await;
        let components =
            json!({ "Frontend": { "replicas": 1, "availableReplicas": 1 }, "VllmDecodeWorker": { "replicas": 2 } });
        fake_graphs::set_status(&self.graphs(), GRAPH, state, why, &components).await.unwrap();
    }

    /// Runs the profiler and deploys the graph until the request is `Deployed`.
    pub async fn complete_deployment(&self) {
        self.complete_profiling().await;
        self.set_graph_state("successful", "").await;
        self.wait_for_phase("Deployed").await;
    }

    /// Records the output of kubectl under the name of this situation. Repeats the commands until the request does not
    /// change between them.
    pub fn kubectl_output(&self, situation: &str) -> KubectlOutput {
        let kubectl = |command: &str| self.env.cluster.kubectl(&[command, "dgdr", REQUEST, "-n", self.name()]).unwrap();
        let without_age = |table: &str| table.trim_end().rsplit_once(' ').map(|(rest, _)| rest.trim_end().to_owned());
        let mut before = kubectl("get");
        loop {
            let (description, after) = (kubectl("describe"), kubectl("get"));
            if without_age(&before) == without_age(&after) {
                return KubectlOutput::new(situation, "dgdr", after, description).unwrap();
            }
            before = after;
        }
    }
}

/// A spec with complete hardware, so that nothing is discovered.
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
