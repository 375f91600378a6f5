//! The status of a request in `nvidia.com/v1beta1`, which the Go operator may have written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema;

/// How far the request has come. Written by the operator only.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestStatus {
    /// Where the request stands: Pending (being checked), Profiling, Ready (graph generated, not applied), Deploying
    /// (graph applied, not yet up), Deployed, or Failed. Absent until the operator has seen the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// What the profiler is busy with while `phase` is Profiling; absent at all other times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling_phase: Option<ProfilingPhase>,

    /// Name of the graph, a DynamoGraphDeployment in the same namespace. Set when its spec has been generated, whether
    /// or not it has been created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dgd_name: Option<String>,

    /// Name of the Job that profiles or has profiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling_job_name: Option<String>,

    /// Succeeded sums up the whole; Validation, Profiling, SpecGenerated and DeploymentReady tell of the single steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions_by_type")]
    pub conditions: Vec<Condition>,

    /// What profiling found. Absent until it has ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiling_results: Option<ProfilingResults>,

    /// How much of the created graph runs. Absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_info: Option<DeploymentInfo>,

    /// The `metadata.generation` that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Problems that were reported as events and still exist. A problem is reported again only after it was gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reported: Vec<ReportedProblem>,
}

/// A problem by its code and its object. Two problems are the same if all fields are equal.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedProblem {
    /// Code of the problem, one word in CamelCase.
    pub reason: String,

    /// Kind of the object that has the problem. Absent if it is the request itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,

    /// Name of that object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Container of that object, which is then a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,

    /// Field of the request, such as `spec.hardware.gpuSku`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,

    /// The `metadata.generation` of the request that had the problem. Absent if the spec does not matter for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Phase {
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

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfilingResults {
    /// The generated DynamoGraphDeployment as a complete manifest: what `autoApply` creates, and what can be reviewed
    /// and applied by hand without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub selected_config: Option<Map<String, Value>>,

    /// Deprecated: other configurations that were worth considering. Only old profilers deliver any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pareto: Vec<ParetoConfig>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ParetoConfig {
    /// The configuration as the profiler described it.
    #[schemars(schema_with = "schema::opaque")]
    pub config: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentInfo {
    /// Replicas that the components of the graph shall have, in sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Replicas of all components that can serve now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
}
