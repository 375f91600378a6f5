//! `nvidia.com/v1beta1`, the storage version. Fields without a value stay absent: defaults are in the schema.

use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

mod status;

pub use status::{
    DeploymentInfo, DynamoGraphDeploymentRequestStatus, ParetoConfig, Phase, ProfilingPhase, ProfilingResults,
    ReportedProblem,
};

/// What to serve, on which hardware, and how fast it must answer. Only `model` is needed; the rest is discovered,
/// measured or has a default. Once profiling has begun the spec is fixed, but for `runtimeVersionOverride` and
/// `autoApply` of a request that does not apply its result by itself.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]
#[kube(
    group = "nvidia.com",
    version = "v1beta1",
    kind = "DynamoGraphDeploymentRequest",
    doc = "Asks for a model to be served within an SLA. A profiling Job looks for the best configuration, the result \
           is written as a DynamoGraphDeployment, applied if wanted, and watched. The phase in the status goes from \
           Pending through Profiling and Deploying to Deployed; it stops at Ready if the result is not to be applied, \
           and at Failed if there is none.",
    plural = "dynamographdeploymentrequests",
    shortname = "dgdr",
    namespaced,
    status = "DynamoGraphDeploymentRequestStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Backend", type_ = "string", json_path = ".spec.backend"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Profiling", type_ = "string", json_path = ".status.profilingPhase"),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Succeeded")].reason"#),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Succeeded")].message"#
    ),
    printcolumn(name = "DGD", type_ = "string", json_path = ".status.dgdName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestSpec {
    /// The model to serve: an id on Hugging Face such as `Qwen/Qwen3-0.6B`, or a name that the backend can resolve.
    /// Must not be empty.
    #[schemars(length(min = 1))]
    pub model: String,

    /// The engine that is profiled and deployed. `auto`, the default, leaves the choice to the profiler; it cannot be
    /// combined with the search strategy `thorough`.
    #[schemars(extend("default" = "auto"))]
    pub backend: Option<Backend>,

    /// Image of the profiling container, for example `nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0`. If absent when
    /// the request is created, the operator's default is filled in. A tag that is no version needs
    /// `runtimeVersionOverride`.
    pub image: Option<String>,

    /// Version of the Dynamo runtime, `MAJOR.MINOR.PATCH`, for all components of the generated graph that do not name
    /// their own. If absent, the tag of `image` says it.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$"))]
    pub runtime_version_override: Option<String>,

    /// A volume that already holds the model's weights. If absent, they are downloaded.
    pub model_cache: Option<ModelCache>,

    /// The GPUs to plan for. What is absent is discovered in the cluster and written here before profiling begins. If
    /// discovery is not possible, set `gpuSku`, `vramMb` and `numGpusPerNode`.
    pub hardware: Option<Hardware>,

    /// The load to optimise for. If absent, the profiler assumes its own.
    pub workload: Option<Workload>,

    /// The latencies to hold. If absent, the profiler's own targets apply.
    pub sla: Option<Sla>,

    /// Changes to the objects that the operator writes: the profiling Job and the generated graph. If absent, they are
    /// used as generated.
    pub overrides: Option<Overrides>,

    /// Optional parts of the generated graph. If absent, it has workers and a frontend, no planner, and no simulation.
    pub features: Option<Features>,

    /// How far profiling searches. `rapid`, the default, estimates; `thorough` measures many more configurations, takes
    /// much longer, and needs a `backend` other than `auto`.
    #[schemars(extend("default" = "rapid"))]
    pub search_strategy: Option<SearchStrategy>,

    /// Whether the generated graph is created without being asked again. Default true. With false the request stops in
    /// phase Ready, where the graph can be read in the status and this field still be set to true.
    #[schemars(extend("default" = true))]
    pub auto_apply: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Auto,
    Sglang,
    Trtllm,
    Vllm,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchStrategy {
    Rapid,
    Thorough,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// Name of the PersistentVolumeClaim, in the namespace of the request. Without it nothing is mounted.
    pub pvc_name: Option<String>,

    /// Directory of the model inside the volume, such as `models/llama-3.1-8b`. A path that begins with `pvcMountPath`
    /// is read as a path in the container; any other leading slash is ignored. If absent, the root of the volume.
    pub pvc_model_path: Option<String>,

    /// Where the volume is mounted in the containers. Default `/opt/model-cache`.
    #[schemars(extend("default" = "/opt/model-cache"))]
    pub pvc_mount_path: Option<String>,
}

// Amounts are JSON numbers as the author wrote them: `500` sent back as `500.0` would count as a change of the spec.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// The type of GPU to use. In a cluster with several types it also says which nodes count. If absent, that
    /// of the node with most GPUs is taken, and of equal ones that with most memory.
    pub gpu_sku: Option<GpuSku>,

    /// Memory of one GPU in MiB, whatever the name says. If absent, discovered.
    pub vram_mb: Option<Number>,

    /// How many GPUs the search may use. If absent, those of the discovered nodes, at most 32; a number given here is
    /// not capped.
    pub total_gpus: Option<i32>,

    /// GPUs in one node. If absent, discovered.
    pub num_gpus_per_node: Option<i32>,

    /// How the GPUs of one node are connected; discovery writes `nvlink` or `pcie`. It tells the profiler what to
    /// expect and configures nothing, so a wrong value makes for wrong estimates.
    pub interconnect: Option<String>,

    /// Whether nodes can reach each other's memory by RDMA. It tells the profiler what to expect and configures
    /// nothing. Discovery writes true or false; absent means that nobody has looked.
    pub rdma: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(transform = only_choice)]
pub enum GpuSku {
    Gb200Sxm,
    Gb10,
    B200Sxm,
    H200Sxm,
    H100Sxm,
    H100Pcie,
    A100Sxm,
    A100Pcie,
    A30,
    L40s,
    L40,
    L4,
    V100Sxm,
    V100Pcie,
    T4,
    Mi200,
    Mi300,
    // Earlier versions of the API accepted any text, so that stored objects may have one; they must stay readable.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

/// Unwraps the single choice that is derived for an enum with a skipped variant.
fn only_choice(schema: &mut Schema) {
    let Some(Value::Array(mut choices)) = schema.remove("anyOf") else { return };
    if let (Some(Value::Object(only)), true) = (choices.pop(), choices.is_empty()) {
        schema.ensure_object().extend(only);
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Tokens in a typical prompt. Default 4000.
    #[schemars(extend("default" = 4000))]
    pub isl: Option<i32>,

    /// Tokens in a typical answer. Default 1000.
    #[schemars(extend("default" = 1000))]
    pub osl: Option<i32>,

    /// Requests in flight at the same time. Give this or `requestRate`, not both. With neither, and no planner,
    /// profiling aims at the highest throughput.
    pub concurrency: Option<Number>,

    /// Requests per second. Give this or `concurrency`, not both. With neither, and no planner, profiling aims at the
    /// highest throughput.
    pub request_rate: Option<Number>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sla {
    /// Milliseconds until the first token of an answer. If absent and `e2eLatency` is too, the profiler takes 2000.
    pub ttft: Option<Number>,

    /// Milliseconds between two tokens of an answer. If absent and `e2eLatency` is too, the profiler takes 30.
    pub itl: Option<Number>,

    /// Milliseconds for the whole answer. Give this or `ttft` and `itl`, not both.
    pub e2e_latency: Option<Number>,

    /// What to prefer where both cannot be had. It is handed to the profiler, and today's profilers do not act on it.
    pub optimization_type: Option<OptimizationType>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizationType {
    Latency,
    Throughput,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// Spec of the profiling Job, as far as it shall differ from the generated one: deadlines and retries, placement,
    /// volumes, security, and image, resources and environment of the container `profiler`. Whatever else is set is not
    /// taken over. `template.spec.containers` must be there and may be empty.
    // Raw, because Kubernetes' Rust types drop fields that are newer than they are and turn `cpu: 2` into `cpu: "2"`.
    #[schemars(schema_with = "schema::job_spec")]
    pub profiling_job: Option<Map<String, Value>>,

    /// Part of a DynamoGraphDeployment, with `apiVersion` (either version) and `kind`, that is merged over the
    /// generated one. It may change components that profiling has chosen, not add others. Its `metadata.name` names the
    /// graph; if absent, that is the name of the request with `-dgd` at the end.
    #[schemars(schema_with = "schema::embedded_object")]
    pub dgd: Option<Map<String, Value>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Features {
    /// Adds Dynamo's planner, which resizes the graph while it runs, with these settings. They go to the planner as
    /// they are, and the planner checks them when it starts. If absent, there is no planner.
    #[schemars(schema_with = "schema::opaque")]
    pub planner: Option<Map<String, Value>>,

    /// Workers that only simulate, to try things out without GPUs. If absent, the workers are real.
    pub mocker: Option<Mocker>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mocker {
    /// Whether the graph gets simulated workers in place of real ones. Absent means false.
    pub enabled: Option<bool>,
}
