//! The status of a request in `nvidia.com/v1beta1`, which the Go operator may have written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// How far the request has come. Written by the operator only.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestStatus {
    /// Where the request stands: Pending (being checked), Profiling, Ready (graph generated, not applied), Deploying
    /// (graph applied, not yet up), Deployed, or Failed. Absent until the operator has seen the request.
    pub phase: Option<Phase>,

    /// What the profiler is busy with while `phase` is Profiling; absent at all other times.
    pub profiling_phase: Option<ProfilingPhase>,

    /// Name of the graph, a DynamoGraphDeployment in the same namespace. Set when its spec has been generated, whether
    /// or not it has been created.
    pub dgd_name: Option<String>,

    /// Name of the Job that profiles or has profiled.
    pub profiling_job_name: Option<String>,

    /// Succeeded sums up the whole; Validation, Profiling, SpecGenerated and DeploymentReady tell of the single steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions_by_type")]
    pub conditions: Vec<Condition>,

    /// What profiling found. Absent until it has ended well.
    pub profiling_results: Option<ProfilingResults>,

    /// How much of the created graph runs. Absent while there is none.
    pub deployment_info: Option<DeploymentInfo>,

    /// The `metadata.generation` that this status speaks of.
    pub observed_generation: Option<i64>,

    /// Problems that were reported as events and still exist. A problem is reported again only after it was gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reported: Vec<ReportedProblem>,
}

/// A problem by its code and its object. Two problems are the same if all fields are equal.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedProblem {
    /// Code of the problem, one word in CamelCase.
    pub reason: String,

    /// Kind of the object that has the problem. Absent if it is the request itself.
    pub kind: Option<String>,

    /// Name of that object.
    pub name: Option<String>,

    /// Container of that object, which is then a Pod.
    pub container: Option<String>,

    /// Field of the request, such as `spec.hardware.gpuSku`.
    pub field: Option<String>,

    /// The `metadata.generation` of the request that had the problem. Absent if the spec does not matter for it.
    pub generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Phase {
    #[default]
    Pending,
    Profiling,
    Ready,
    Deploying,
    Deployed,
    Failed,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ProfilingPhase {
    Initializing,
    SweepingPrefill,
    SweepingDecode,
    SelectingConfig,
    BuildingCurves,
    #[serde(rename = "GeneratingDGD")]
    GeneratingDgd,
    Done,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfilingResults {
    /// The generated DynamoGraphDeployment as a complete manifest: what `autoApply` creates, and what can be reviewed
    /// and applied by hand without it.
    #[schemars(schema_with = "schema::opaque")]
    pub selected_config: Option<Map<String, Value>>,

    /// Deprecated: other configurations that were worth considering. Only old profilers deliver any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pareto: Vec<ParetoConfig>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ParetoConfig {
    /// The configuration as the profiler described it.
    #[schemars(schema_with = "schema::opaque")]
    pub config: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentInfo {
    /// Replicas that the components of the graph shall have, in sum.
    pub replicas: Option<i32>,

    /// Replicas of all components that can serve now.
    pub available_replicas: Option<i32>,
}
