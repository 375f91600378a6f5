//! `nvidia.com/v1beta1`, the storage version. Absent fields stay `None`: the schema has the defaults.

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

/// Model to serve, hardware, load and latency targets. Only `model` is required. The spec cannot be changed once
/// profiling has begun, except while `autoApply` is false: `runtimeVersionOverride` can then be changed until the graph
/// is created, and `autoApply` can be set to true in phase Ready.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type repeat the attribute `type`")]
#[kube(
    group = "nvidia.com",
    version = "v1beta1",
    kind = "DynamoGraphDeploymentRequest",
    doc = "A request to serve a model within an SLA. A profiling Job searches for the best configuration and generates a \
           DynamoGraphDeployment, which the operator creates and follows. The phases are Pending, Profiling, Deploying and \
           Deployed. With `autoApply: false`, the request stops in phase Ready with the generated graph in its status. \
           A request in phase Failed starts again if its annotation `steersman.dev/retry` gets a new value.",
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
    printcolumn(name = "Message", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "DGD", type_ = "string", json_path = ".status.dgdName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestSpec {
    /// Model to serve: a Hugging Face id such as `Qwen/Qwen3-0.6B`, or a name that the backend can resolve.
    #[schemars(length(min = 1))]
    pub model: String,

    /// Engine to profile and deploy. With `auto`, the profiler chooses one; this excludes `searchStrategy: thorough`.
    /// Default: `auto`.
    #[schemars(extend("default" = "auto"))]
    pub backend: Option<Backend>,

    /// Image of the profiling container, for example `nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0`. The profiler
    /// gives the components of the graph images of the same registry and tag. If absent, the operator's default is
    /// used; admission writes it here when the request is created. If the tag is not a version,
    /// `runtimeVersionOverride` is required.
    pub image: Option<String>,

    /// Version of the Dynamo runtime, `MAJOR.MINOR.PATCH`, for all components of the generated graph without a version.
    /// If absent, the version is the tag of `image`.
    #[schemars(regex(pattern = r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$"))]
    pub runtime_version_override: Option<String>,

    /// PersistentVolumeClaim with the model's weights. If absent, the weights are downloaded.
    pub model_cache: Option<ModelCache>,

    /// GPUs to plan for. The operator discovers absent fields in the cluster and writes them here before profiling
    /// begins. If it cannot discover them, set `gpuSku`, `vramMb`, `numGpusPerNode` and `totalGpus`.
    pub hardware: Option<Hardware>,

    /// Load to optimize for. If absent, the profiler's defaults apply.
    pub workload: Option<WorkloadSpec>,

    /// Latency targets. If absent, the profiler's defaults apply.
    pub sla: Option<Sla>,

    /// Changes to the profiling Job and to the generated graph.
    pub overrides: Option<Overrides>,

    /// Optional features of the generated graph: a planner, and simulated workers.
    pub features: Option<Features>,

    /// Search depth of profiling. `rapid` estimates the performance of configurations. `thorough` deploys and measures
    /// them, takes much longer, and requires GPUs, an operator that runs graphs, and a `backend` other than `auto`.
    /// Default: `rapid`.
    #[schemars(extend("default" = "rapid"))]
    pub search_strategy: Option<SearchStrategy>,

    /// True creates the generated graph. With false, the request stops in phase Ready with the graph in
    /// `status.profilingResults.selectedConfig`, and this field can be set to true later. Default: true.
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
    /// Name of the PersistentVolumeClaim in the namespace of the request. It is mounted read-only. If absent, nothing
    /// is mounted.
    pub pvc_name: Option<String>,

    /// Directory of the model in the volume, such as `models/llama-3.1-8b`. A path that begins with `pvcMountPath` is a
    /// path in the container; any other leading slash is ignored. Default: the root of the volume.
    pub pvc_model_path: Option<String>,

    /// Mount path of the volume in the containers. Default: `/opt/model-cache`.
    #[schemars(extend("default" = "/opt/model-cache"))]
    pub pvc_mount_path: Option<String>,
}

// Numbers keep the form in which they were written: `500` sent back as `500.0` would be a change of the spec.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Type of GPU. Discovery considers only nodes with this type. If absent, the type of the node with the most GPUs
    /// is used, and among equal nodes of the one with the most memory per GPU.
    pub gpu_sku: Option<GpuSku>,

    /// Memory of one GPU in MiB. If absent, it is discovered.
    pub vram_mb: Option<Number>,

    /// Largest number of GPUs that the generated graph may use. If absent, it is the number of GPUs on the discovered
    /// node with the most, times the number of nodes with this type of GPU, at most 32. This is too high if some of
    /// these nodes have fewer GPUs. A value in the spec is not limited to 32.
    pub total_gpus: Option<i32>,

    /// Number of GPUs per node, above 0. If absent, it is that of the discovered node with the most GPUs.
    pub num_gpus_per_node: Option<i32>,

    /// Interconnect of the GPUs within a node. Discovery by DCGM exporters writes `nvlink` or `pcie`; other discovery
    /// leaves it absent. The value is passed to the profiler and configures nothing.
    pub interconnect: Option<String>,

    /// Whether the nodes have RDMA. Discovery writes true or false, and leaves it absent if it cannot read nodes. The
    /// value is passed to the profiler and configures nothing.
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
    // Earlier versions of the API accepted any string. Stored objects with one must stay readable.
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
pub struct WorkloadSpec {
    /// Number of tokens in a typical prompt. Default: 4000.
    #[schemars(extend("default" = 4000))]
    pub isl: Option<i32>,

    /// Number of tokens in a typical response. Default: 1000.
    #[schemars(extend("default" = 1000))]
    pub osl: Option<i32>,

    /// Number of concurrent requests. It excludes `requestRate`: the profiler fails if both are set. Without both and
    /// without a planner, the profiler selects the configuration with the highest throughput.
    pub concurrency: Option<Number>,

    /// Requests per second. It excludes `concurrency`: the profiler fails if both are set. Without both and without a
    /// planner, the profiler selects the configuration with the highest throughput.
    pub request_rate: Option<Number>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sla {
    /// Time to the first token, in milliseconds, above 0. Default of the profiler without `e2eLatency`: 2000.
    pub ttft: Option<Number>,

    /// Time between two tokens, in milliseconds, above 0. Default of the profiler without `e2eLatency`: 30.
    pub itl: Option<Number>,

    /// Time for the whole response, in milliseconds, above 0. It excludes `ttft` and `itl`: the profiler fails if one
    /// of them is set as well.
    pub e2e_latency: Option<Number>,

    /// Goal of the optimization. The value is passed to the profiler, which does not use it yet; `SpecAccepted` reports
    /// that.
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
    /// Fields of the profiling Job to change. Of the Job: deadline, retries, time to live, completions, parallelism and
    /// suspend. Of its pods: labels, annotations, placement, priority, account and its token, runtime class, DNS,
    /// volumes, init containers, pull Secrets, security and grace period. Of container `profiler`: image, resources,
    /// security, environment and mounts.
    /// Of container `output-copier`: resources. All other fields are ignored, and `SpecAccepted` lists them.
    /// `template.spec.containers` is required and may be empty.
    // A map, because Kubernetes' Rust types drop fields that they do not know and turn `cpu: 2` into `cpu: "2"`.
    #[schemars(schema_with = "schema::job_spec")]
    pub profiling_job: Option<Map<String, Value>>,

    /// Partial DynamoGraphDeployment, with `apiVersion` (`nvidia.com/v1alpha1` or `nvidia.com/v1beta1`) and `kind`,
    /// that is merged over the generated one. It can change generated components and cannot add others. `metadata.name`
    /// is the name of the graph; if absent, the name is that of the request with the suffix `-dgd`.
    #[schemars(schema_with = "schema::embedded_object")]
    pub dgd: Option<Map<String, Value>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Features {
    /// Settings of Dynamo's planner, which scales the running graph. They are passed unchanged to the profiler, which
    /// validates them when it starts and fails if they are invalid. If absent, or if they disable both throughput and
    /// load scaling, the graph has no planner.
    #[schemars(schema_with = "schema::opaque")]
    pub planner: Option<Map<String, Value>>,

    /// Simulated workers, for tests without GPUs. `hardware` is still required or discovered.
    pub mocker: Option<Mocker>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mocker {
    /// True gives the graph simulated workers instead of real ones. Default: false.
    pub enabled: Option<bool>,
}
