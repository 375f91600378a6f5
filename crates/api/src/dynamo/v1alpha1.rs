//! `nvidia.com/v1alpha1`, deprecated and still served; controllers read its conversion to v1beta1.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// What to serve and how to profile it. In v1beta1 most of what `profilingConfig.config` holds here has fields of its
/// own.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoGraphDeploymentRequest",
    doc = "Asks for a model to be served within an SLA, in the deprecated first version of the API. It is kept as \
           v1beta1, where new requests should be written; each version can be read in the other.",
    plural = "dynamographdeploymentrequests",
    shortname = "dgdr",
    namespaced,
    status = "DynamoGraphDeploymentRequestStatus",
    derive = "PartialEq",
    storage = false,
    deprecated = "nvidia.com/v1alpha1 DynamoGraphDeploymentRequest is deprecated; \
                  use nvidia.com/v1beta1 DynamoGraphDeploymentRequest",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Backend", type_ = "string", json_path = ".status.backend"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "DGD-State", type_ = "string", json_path = ".status.deployment.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestSpec {
    /// The model to serve: an id on Hugging Face, or a name that the backend can resolve.
    pub model: String,

    /// The engine that is profiled and deployed; `auto` leaves the choice to the profiler. Has no default in this
    /// version.
    pub backend: Backend,

    /// Whether the graph gets simulated workers, which need no GPU, in place of real ones. Default false.
    #[schemars(extend("default" = false))]
    pub use_mocker: Option<bool>,

    /// How the profiling Job runs and what it searches for.
    pub profiling_config: ProfilingConfig,

    /// Version of the Dynamo runtime, `MAJOR.MINOR.PATCH`, for all components of the generated graph that do not name
    /// their own. If absent, the tag of the profiler's image says it.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$"))]
    pub runtime_version_override: Option<String>,

    /// Deprecated and without effect: GPUs are discovered whenever the operator may look at nodes. Default true.
    #[schemars(extend("default" = true))]
    pub enable_gpu_discovery: Option<bool>,

    /// Whether the generated graph is created without being asked again. Default false, unlike in v1beta1: the graph
    /// then waits in the status for review.
    #[schemars(extend("default" = false))]
    pub auto_apply: Option<bool>,

    /// Wishes for the created graph. All are kept, but only `workersImage` can have an effect; `overrides.dgd` of
    /// v1beta1 changes name, labels and annotations of the graph.
    pub deployment_overrides: Option<DeploymentOverrides>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Auto,
    Vllm,
    Sglang,
    Trtllm,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfilingConfig {
    /// Settings of the profiler. Latencies and lengths under `sla`, the volume under `deployment.modelCache` and the
    /// object `planner` are what v1beta1 has fields for; the rest is kept.
    #[serde(default)]
    #[schemars(schema_with = "schema::opaque")]
    pub config: Option<Map<String, Value>>,

    /// A ConfigMap with a graph to begin with, mounted into the profiling container under `/config`. If absent, the
    /// profiler brings its own.
    pub config_map_ref: Option<ConfigMapKey>,

    /// Image of the profiling container; becomes `image` in v1beta1.
    pub profiler_image: String,

    /// Name of a PersistentVolumeClaim, in the namespace of the request, that keeps everything profiling writes. If
    /// absent, only the results outlive the Job.
    #[serde(rename = "outputPVC")]
    pub output_pvc: Option<String>,

    /// Requests and limits of the profiling container. If absent, the operator's own.
    #[serde(default)]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<Map<String, Value>>,

    /// Taints that the profiling pod puts up with. If absent, none.
    #[serde(default)]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Map<String, Value>>>,

    /// Labels that a node must have for the profiling pod. If absent, any node will do.
    pub node_selector: Option<BTreeMap<String, String>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap, in the namespace of the request.
    pub name: String,

    /// The key whose value is the file. Default `disagg.yaml`.
    #[schemars(extend("default" = "disagg.yaml"))]
    pub key: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentOverrides {
    /// Kept without effect: the graph is called like the request with `-dgd` at the end.
    pub name: Option<String>,

    /// Kept without effect: the graph lives in the namespace of the request.
    pub namespace: Option<String>,

    /// Kept without effect.
    pub labels: Option<BTreeMap<String, String>>,

    /// Kept without effect.
    pub annotations: Option<BTreeMap<String, String>>,

    /// Image that takes the place of `profilingConfig.profilerImage` if that is empty; becomes `image` in v1beta1.
    pub workers_image: Option<String>,
}

/// How far the request has come. Written by the operator only.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestStatus {
    /// Where the request stands. Ready means that the graph is generated or, if it was to be applied, that it runs.
    #[schemars(extend("default" = "Initializing"))]
    pub state: State,

    /// The engine, for display.
    pub backend: Option<String>,

    /// The `metadata.generation` that this status speaks of.
    pub observed_generation: Option<i64>,

    /// The single steps, as in v1beta1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Where the profiler's data lies, as `configmap/` and a name. Absent until profiling has ended well.
    pub profiling_results: Option<String>,

    /// The generated DynamoGraphDeployment as a complete manifest. Absent until profiling has ended well.
    #[serde(default)]
    #[schemars(schema_with = "schema::embedded_object")]
    pub generated_deployment: Option<Map<String, Value>>,

    /// The created graph. Absent while there is none.
    pub deployment: Option<Deployment>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum State {
    Initializing,
    Pending,
    Profiling,
    Deploying,
    Ready,
    DeploymentDeleted,
    Failed,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// Name of the graph.
    pub name: Option<String>,

    /// Namespace of the graph, which is that of the request.
    pub namespace: Option<String>,

    /// How the graph itself does.
    #[schemars(extend("default" = "initializing"))]
    pub state: DeploymentState,

    /// Whether the operator has created the graph.
    pub created: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeploymentState {
    Initializing,
    Pending,
    Successful,
    Failed,
}
