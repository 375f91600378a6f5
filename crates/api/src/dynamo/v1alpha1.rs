//! `nvidia.com/v1alpha1`, which is deprecated and still served. Controllers read objects as v1beta1.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Model to serve and settings of the profiling Job. v1beta1 has separate fields for most of `profilingConfig.config`.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type repeat the attribute `type`")]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoGraphDeploymentRequest",
    doc = "A request to serve a model within an SLA. This version is deprecated: write new requests in v1beta1. Objects are \
           stored in v1beta1 and can be read in both versions.",
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
    /// Model to serve: a Hugging Face id, or a name that the backend can resolve.
    pub model: String,

    /// Engine to profile and deploy. With `auto`, the profiler chooses one.
    pub backend: Backend,

    /// True gives the graph simulated workers, which need no GPUs, instead of real ones. Default: false.
    #[schemars(extend("default" = false))]
    pub use_mocker: Option<bool>,

    /// Settings of the profiling Job and of the profiler.
    pub profiling_config: ProfilingConfig,

    /// Version of the Dynamo runtime, `MAJOR.MINOR.PATCH`, for all components of the generated graph without a version.
    /// If absent, the version is the tag of `profilingConfig.profilerImage`.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$"))]
    pub runtime_version_override: Option<String>,

    /// Deprecated, without effect. GPUs are always discovered if `hardware` of v1beta1 is incomplete. Condition
    /// `SpecAccepted` lists the field if it is false. Default: true.
    #[schemars(extend("default" = true))]
    pub enable_gpu_discovery: Option<bool>,

    /// True creates the generated graph. With false, the graph is only written to `status.generatedDeployment`, and
    /// this field can be set to true in state Ready. Default: false, unlike in v1beta1.
    #[schemars(extend("default" = false))]
    pub auto_apply: Option<bool>,

    /// Fields that are stored without effect, except `workersImage`; condition `SpecAccepted` lists them. Use
    /// `overrides.dgd` of v1beta1 to change name, labels and annotations of the graph.
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
    /// Settings of the profiler. These keys have fields in v1beta1: `ttft`, `itl`, `isl`, `osl` and `optimizationType`
    /// of `sla`; `pvcName`, `modelPathInPvc` and `pvcMountPath` of `deployment.modelCache`; and `planner`. All other
    /// keys are stored without effect, and condition `SpecAccepted` lists them.
    #[serde(default)]
    #[schemars(schema_with = "schema::opaque")]
    pub config: Option<Map<String, Value>>,

    /// ConfigMap with a base graph, mounted as `/config/disagg.yaml` into the profiling container. Current profilers do
    /// not read this file, and condition `SpecAccepted` reports that. Use `overrides.dgd` of v1beta1 instead.
    pub config_map_ref: Option<ConfigMapKey>,

    /// Image of the profiling container: `image` in v1beta1. If empty, `deploymentOverrides.workersImage` is used, and
    /// without that the operator's default.
    pub profiler_image: String,

    /// Name of a PersistentVolumeClaim in the namespace of the request, for all files of the profiler. If absent, only
    /// the result is kept after the Job.
    #[serde(rename = "outputPVC")]
    pub output_pvc: Option<String>,

    /// Requests and limits of the profiling container. If absent, it has none.
    #[serde(default)]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<Map<String, Value>>,

    /// Tolerations of the profiling pod. The profiler gives them to the components of the graph as well.
    #[serde(default)]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Map<String, Value>>>,

    /// Node selector of the profiling pod.
    pub node_selector: Option<BTreeMap<String, String>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap in the namespace of the request.
    pub name: String,

    /// Key with the content of the file. Default: `disagg.yaml`.
    #[schemars(extend("default" = "disagg.yaml"))]
    pub key: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentOverrides {
    /// Stored without effect: the name of the graph is that of the request with the suffix `-dgd`.
    pub name: Option<String>,

    /// Stored without effect: the graph is in the namespace of the request.
    pub namespace: Option<String>,

    /// Stored without effect.
    pub labels: Option<BTreeMap<String, String>>,

    /// Stored without effect.
    pub annotations: Option<BTreeMap<String, String>>,

    /// Image of the profiling container if `profilingConfig.profilerImage` is empty; otherwise stored without effect.
    pub workers_image: Option<String>,
}

/// State of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestStatus {
    /// State of the request. Ready: the graph is generated or, if `autoApply` is true, it serves. Failed: condition
    /// `Succeeded` has the reason. DeploymentDeleted: only an earlier operator wrote it; Steersman writes Failed.
    #[schemars(extend("default" = "Initializing"))]
    pub state: RequestState,

    /// Engine, as an earlier operator wrote it. Steersman does not set this field.
    pub backend: Option<String>,

    /// The `metadata.generation` that this status is about. A rejected change of the spec does not change it.
    pub observed_generation: Option<i64>,

    /// Conditions, as in v1beta1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// ConfigMap with the profiler's data, as `configmap/NAME`, as an earlier operator wrote it. Steersman does not set
    /// this field.
    pub profiling_results: Option<String>,

    /// Generated DynamoGraphDeployment as a complete manifest. Absent until profiling has succeeded.
    #[serde(default)]
    #[schemars(schema_with = "schema::embedded_object")]
    pub generated_deployment: Option<Map<String, Value>>,

    /// The graph. Steersman sets only `name`; the other fields are those of an earlier operator. Absent until the graph
    /// is generated, and again if it was deleted.
    pub deployment: Option<Deployment>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RequestState {
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

    /// Namespace of the graph, as an earlier operator wrote it. It is that of the request.
    pub namespace: Option<String>,

    /// State of the graph, as an earlier operator wrote it.
    #[schemars(extend("default" = "initializing"))]
    pub state: DeploymentState,

    /// Whether an earlier operator created the graph.
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
