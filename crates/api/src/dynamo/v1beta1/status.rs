//! The status of a request in `nvidia.com/v1beta1`. A stored status may have been written by the Go operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// State of the request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestStatus {
    /// Pending: the request is checked, or waits for something that condition `Validation` or `Profiling` names.
    /// Profiling: the profiling Job runs. Ready: the graph is generated, and waits for `autoApply`. Deploying: the
    /// graph is being created, or does not serve yet or any more. Deployed: the graph serves. Failed: condition
    /// `Succeeded` has the reason. Absent until the first reconcile.
    pub phase: Option<Phase>,

    /// Current step of the profiler. Absent if `phase` is not Profiling.
    pub profiling_phase: Option<ProfilingPhase>,

    /// Name of the DynamoGraphDeployment, in the namespace of the request. Set when the graph is generated, even if it
    /// is not created. Absent again if the graph was deleted.
    pub dgd_name: Option<String>,

    /// Name of the profiling Job.
    pub profiling_job_name: Option<String>,

    /// `Succeeded` is the summary. `Validation`, `Profiling`, `SpecGenerated` and `DeploymentReady` report the steps.
    /// `SpecAccepted` reports fields of the spec without the expected effect, and rejected changes of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions_by_type")]
    pub conditions: Vec<Condition>,

    /// Result of profiling. Absent until profiling has succeeded.
    pub profiling_results: Option<ProfilingResults>,

    /// Replicas of the graph. Absent if the graph does not exist. While the cluster does not serve graphs, the last
    /// known values.
    pub deployment_info: Option<DeploymentInfo>,

    /// The `metadata.generation` that this status is about. A rejected change of the spec does not change it.
    pub observed_generation: Option<i64>,

    /// The state in one short line, for `kubectl get`. Condition `Succeeded` has the whole text.
    pub summary: Option<String>,

    /// Value of the annotation `steersman.dev/retry` that the current attempt was started with. Another value of the
    /// annotation starts a Failed request again.
    pub last_retry: Option<String>,

    /// Codes of current problems with the spec, with missing objects, with failed writes, with the profiling Job and
    /// with images. Each was reported as an event and is not reported again. Other problems are reasons of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reported: Vec<ReportedProblem>,
}

/// A problem, identified by its code and object. Two problems are the same if all fields are equal.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedProblem {
    /// Code of the problem in CamelCase.
    pub reason: String,

    /// Kind of the object with the problem. Absent if the problem is in the spec, in the settings of the operator or in
    /// the GPUs of the cluster.
    pub kind: Option<String>,

    /// Name of the object with the problem.
    pub name: Option<String>,

    /// Container with the problem, if the object is a Pod.
    pub container: Option<String>,

    /// Field of the request with the problem, such as `spec.hardware.gpuSku`.
    pub field: Option<String>,

    /// The `metadata.generation` of the request when the problem was reported; another generation reports it again.
    /// Absent for a failed or deleted Job and for an image that cannot be pulled.
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
    /// Generated DynamoGraphDeployment as a complete manifest. `autoApply: true` creates the graph from annotation
    /// `nvidia.com/generated-dgd-spec`, which users can edit in phase Ready, and from this field if there is no
    /// annotation.
    #[schemars(schema_with = "schema::opaque")]
    pub selected_config: Option<Map<String, Value>>,

    /// Deprecated: alternative configurations. Only old profilers report them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pareto: Vec<ParetoConfig>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ParetoConfig {
    /// Configuration as the profiler reported it.
    #[schemars(schema_with = "schema::opaque")]
    pub config: Map<String, Value>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentInfo {
    /// Replicas of all components in total, as the status of the graph reports them.
    pub replicas: Option<i32>,

    /// Available replicas of all components in total, as the status of the graph reports them.
    pub available_replicas: Option<i32>,
}
