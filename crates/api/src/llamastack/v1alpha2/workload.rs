//! Replicas, resources, scaling and volumes of the server, which v1alpha1 has in `spec` and `spec.server`.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, TopologySpreadConstraint, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{Autoscaling, DisruptionBudget};
use crate::meta::schema;

/// How the server runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// Number of server pods, 1 unless given. While `autoscaling` is set it is only a floor for the autoscaler.
    #[schemars(extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Worker processes in each pod, at least 1; also the CPU request where none is given. Absent: the server decides.
    #[schemars(range(min = 1))]
    pub workers: Option<i32>,
    /// Requests and limits. Where no request is given: one CPU for each worker and 1Gi of memory. Where `workers` is set
    /// and no limit is given, the limit equals the request.
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Scaling by a HorizontalPodAutoscaler. Absent: `replicas` counts.
    pub autoscaling: Option<Autoscaling>,
    /// Persistent storage of the server; `{}` asks for it with all defaults. Absent: its data lives as long as the pod.
    pub storage: Option<VolumeStorage>,
    /// Limit on voluntary evictions. Absent: the operator makes one when more than one replica can run.
    pub pod_disruption_budget: Option<DisruptionBudget>,
    /// How pods spread over zones and nodes. Absent: pods of several replicas avoid each other where that is possible.
    #[schemars(schema_with = "schema::spread_constraints")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Changes to the pod and its container.
    pub overrides: Option<Overrides>,
}

/// A PersistentVolumeClaim for the server's data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStorage {
    /// Size of the claim. Absent: 10Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Option<Quantity>,
    /// Where the volume appears in the container, `/.llama` unless given.
    #[schemars(extend("default" = "/.llama"))]
    pub mount_path: Option<String>,
}

/// Changes to the pod and its container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// An existing ServiceAccount to run under. Absent: the operator makes one for this server.
    pub service_account_name: Option<String>,
    /// Seconds that the server has to finish its work when a pod is stopped; 0 stops it at once. Absent: 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Environment variables, placed after those of the operator.
    #[schemars(schema_with = "schema::env")]
    pub env: Option<Vec<EnvVar>>,
    /// Replaces the command that starts the server.
    pub command: Option<Vec<String>>,
    /// Replaces the arguments of that command.
    pub args: Option<Vec<String>>,
    /// Volumes of the pod, beside those of the operator.
    #[schemars(schema_with = "schema::volumes")]
    pub volumes: Option<Vec<Volume>>,
    /// Mounts of the server's container, beside those of the operator.
    #[schemars(schema_with = "schema::volume_mounts")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}
