//! Replicas, resources, scaling and volumes of the server, which are in `spec` and `spec.server` of v1alpha1.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, TopologySpreadConstraint, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{Autoscaling, DisruptionBudget};
use crate::meta::schema;

/// Replicas, resources, scaling and volumes of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// Number of server pods. Default: 1. 0 stops the server. With `autoscaling`, it is a lower bound for the
    /// autoscaler. It has no effect while another autoscaler or field manager sets the replicas of the Deployment;
    /// `SpecAccepted` reports that.
    #[schemars(extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Number of worker processes in each pod, at least 1. Default: 1. Without a CPU request, the container requests as
    /// many CPUs. The start script of the operator, which runs whenever a configuration is mounted, starts the
    /// processes of servers since 0.3; any other command has to read the variable `LLS_WORKERS`.
    #[schemars(range(min = 1))]
    pub workers: Option<i32>,
    /// Requests and limits of the container. Default requests: one CPU for each worker and 1Gi of memory; a request of
    /// 0 means the default. If `workers` is set, limits of CPU and memory default to the requests; otherwise there are
    /// no default limits. Init containers have limits of their own.
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// HorizontalPodAutoscaler for the server. If absent, the server has a fixed number of `replicas`.
    pub autoscaling: Option<Autoscaling>,
    /// PersistentVolumeClaim for the server's data; `{}` requests one with all defaults. Updates then stop the old pod
    /// before they start the new one. If absent, the data is lost with the pod.
    pub storage: Option<VolumeStorage>,
    /// Limit on voluntary evictions of pods. If absent, at most one pod may be unavailable if the server can have more
    /// than one replica; a single replica has no limit.
    pub pod_disruption_budget: Option<DisruptionBudget>,
    /// Rules for spreading the pods over nodes and zones. Each pair of `topologyKey` and `whenUnsatisfiable` may occur
    /// once. If absent or empty, pods are spread over regions, zones and nodes where that is possible.
    #[schemars(schema_with = "schema::spread_constraints")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Changes to the pod and to its container.
    pub overrides: Option<Overrides>,
}

/// PersistentVolumeClaim for the server's data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStorage {
    /// Size of the claim. Default: 10Gi. An existing claim is never resized; `SpecAccepted` reports a difference.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Option<Quantity>,
    /// Mount path of the volume in the container. Default: `/.llama`.
    #[schemars(extend("default" = "/.llama"))]
    pub mount_path: Option<String>,
}

/// Changes to the pod and its container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// Existing ServiceAccount of the pods. Its pull secrets are also used to read the labels of the image. Default:
    /// the one that the operator creates for each server, with the suffix `-sa`.
    pub service_account_name: Option<String>,
    /// Seconds that the server has to shut down before it is killed. 0 kills it at once. Default: 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Environment variables of the container. They override variables of the same name that the operator sets. If a
    /// name occurs twice, the last entry counts.
    #[schemars(schema_with = "schema::env")]
    pub env: Option<Vec<EnvVar>>,
    /// Command of the container. It replaces the start script of the operator and the entrypoint of the image. If
    /// `storage` has a password or a connection string, the command must begin with `. /run/steersman/storage.env`.
    pub command: Option<Vec<String>>,
    /// Arguments of the container's command. The start script of the operator, which runs whenever a configuration is
    /// mounted, ignores them; set `command` as well then.
    pub args: Option<Vec<String>>,
    /// Volumes of the pod in addition to those of the operator. Names must be unique.
    #[schemars(schema_with = "schema::volumes")]
    pub volumes: Option<Vec<Volume>>,
    /// Volume mounts of the server's container in addition to those of the operator. Paths must be unique.
    #[schemars(schema_with = "schema::volume_mounts")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}
