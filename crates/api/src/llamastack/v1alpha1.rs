//! `llamastack.io/v1alpha1` as the Llama Stack operator released it: a server configured by a ConfigMap of the user.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, TopologySpreadConstraint, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::status::{DistributionConfig, Phase, VersionInfo};
use super::v1alpha2::rules;
use crate::meta::schema;

/// What is to run: a server, how many of it, and who may reach it.
#[expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "llamastack.io",
    version = "v1alpha1",
    kind = "LlamaStackDistribution",
    doc = "A Llama Stack server that the operator runs and keeps running. Version v1alpha2 can also generate the server's configuration.",
    namespaced,
    shortname = "llsd",
    status = "LlamaStackDistributionStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    selectable = ".spec.server.userConfig.configMapName",
    selectable = ".spec.server.userConfig.configMapNamespace",
    selectable = ".spec.server.tlsConfig.caBundle.configMapName",
    selectable = ".spec.server.tlsConfig.caBundle.configMapNamespace",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Operator Version", type_ = "string", json_path = ".status.version.operatorVersion"),
    printcolumn(name = "Server Version", type_ = "string", json_path = ".status.version.llamaStackServerVersion"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LlamaStackDistributionSpec {
    /// Number of server pods, 1 unless given. While `server.autoscaling` is set it is only a floor for the autoscaler.
    #[schemars(extend("default" = 1))]
    pub replicas: Option<i32>,
    /// The server: which distribution, in what container, with which storage and limits.
    pub server: Server,
    /// Who may reach the server. Absent: the operator's default policy, nothing exposed.
    pub network: Option<Network>,
}

/// One Llama Stack server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Which build of Llama Stack runs.
    pub distribution: Distribution,
    /// Container of the server. Absent: name, port and resources by default.
    pub container_spec: Option<ContainerSpec>,
    /// Worker processes in each pod, at least 1; also the CPU request where none is given. Absent: the server decides.
    #[schemars(range(min = 1))]
    pub workers: Option<i32>,
    /// Changes to the pod around the container.
    pub pod_overrides: Option<PodOverrides>,
    /// Limit on voluntary evictions. Absent: the operator makes one when more than one replica can run.
    pub pod_disruption_budget: Option<DisruptionBudget>,
    /// How pods spread over zones and nodes. Absent: pods of several replicas avoid each other where that is possible.
    #[serde(default)]
    #[schemars(schema_with = "schema::spread_constraints")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Scaling by a HorizontalPodAutoscaler. Absent: `replicas` counts.
    pub autoscaling: Option<Autoscaling>,
    /// Persistent storage of the server; `{}` asks for it with all defaults. Absent: its data lives as long as the pod.
    pub storage: Option<Storage>,
    /// A ConfigMap with the server's `config.yaml`. Absent: the configuration inside the image.
    pub user_config: Option<UserConfig>,
    /// Certificates that the server trusts when it calls others.
    pub tls_config: Option<TlsConfig>,
}

/// Name or image of a distribution; not both.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (rules::NAME_EXCLUDES_IMAGE, "Only one of name or image can be specified")
)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// A distribution that the operator knows, such as `starter`. It stands for an image of this release.
    pub name: Option<String>,
    /// Any container image with a Llama Stack server in it.
    pub image: Option<String>,
}

/// The container of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerSpec {
    /// Name of the container, `llama-stack` unless given.
    #[schemars(extend("default" = "llama-stack"))]
    pub name: Option<String>,
    /// Port that the server listens on. Absent: 8321.
    pub port: Option<i32>,
    /// Requests and limits. Where no request is given: one CPU for each worker and 1Gi of memory. Where `workers` is set
    /// and no limit is given, the limit equals the request.
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Environment variables, placed after those of the operator.
    #[schemars(schema_with = "schema::env")]
    pub env: Option<Vec<EnvVar>>,
    /// Replaces the command that starts the server.
    pub command: Option<Vec<String>>,
    /// Replaces the arguments of that command.
    pub args: Option<Vec<String>>,
}

/// Changes to the pod around the container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOverrides {
    /// An existing ServiceAccount to run under. Absent: the operator makes one for this server.
    pub service_account_name: Option<String>,
    /// Seconds that the server has to finish its work when a pod is stopped; 0 stops it at once. Absent: 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Volumes of the pod, beside those of the operator.
    #[schemars(schema_with = "schema::volumes")]
    pub volumes: Option<Vec<Volume>>,
    /// Mounts of the server's container, beside those of the operator.
    #[schemars(schema_with = "schema::volume_mounts")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// How many pods a drain may take away. Give one of the two.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudget {
    /// Pods that have to stay: a number, or a percentage such as `50%`.
    #[schemars(schema_with = "schema::int_or_string")]
    pub min_available: Option<IntOrString>,
    /// Pods that may be missing: a number, or a percentage such as `50%`.
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
}

/// Bounds and targets of a HorizontalPodAutoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Fewest pods; never less than `replicas`, nor than 1. Absent: `replicas`.
    pub min_replicas: Option<i32>,
    /// Most pods; must not be below `minReplicas`.
    pub max_replicas: i32,
    /// Average CPU use to aim at, in percent of the request. Absent together with the memory target: 80.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    pub target_cpu_utilization_percentage: Option<i32>,
    /// Average memory use to aim at, in percent of the request. Absent: memory does not count.
    pub target_memory_utilization_percentage: Option<i32>,
}

/// A PersistentVolumeClaim for the server's data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// Size of the claim. Absent: 10Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Option<Quantity>,
    /// Where the volume appears in the container. Absent: `/.llama`.
    pub mount_path: Option<String>,
}

/// A ConfigMap whose key `config.yaml` is the server's configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserConfig {
    /// Name of the ConfigMap; an empty name counts as none.
    pub config_map_name: String,
    /// Namespace of the ConfigMap. Absent: that of this object. One of another namespace is read only if it is labelled
    /// `llamastack.io/watch: "true"` or lies in the operator's namespace.
    pub config_map_namespace: Option<String>,
}

/// Trust in other servers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// Certificate authorities that the server trusts beside those of its image.
    pub ca_bundle: Option<CaBundle>,
}

/// A ConfigMap with certificate authorities in PEM form.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// Name of the ConfigMap.
    pub config_map_name: String,
    /// Namespace of the ConfigMap. Absent: that of this object. One of another namespace is read only if it is labelled
    /// `llamastack.io/watch: "true"` or lies in the operator's namespace.
    pub config_map_namespace: Option<String>,
    /// Keys that hold certificates, joined in this order; at most 50. Absent: `ca-bundle.crt`.
    #[schemars(length(max = 50))]
    pub config_map_keys: Option<Vec<String>>,
}

/// Who may reach the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Whether an Ingress makes the server reachable from outside the cluster; false unless given.
    #[schemars(extend("default" = false))]
    pub expose_route: Option<bool>,
    /// Namespaces that may reach the server. Given: a NetworkPolicy admits these and the operator. Absent: the operator's
    /// default policy.
    pub allowed_from: Option<AllowedFrom>,
}

/// Namespaces, by name or by label. A namespace that fits either list is admitted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedFrom {
    /// Names of namespaces; `*` stands for all.
    pub namespaces: Option<Vec<String>>,
    /// Keys of labels. A namespace that carries one of them is admitted, whatever the value.
    pub labels: Option<Vec<String>>,
}

/// What the operator has found and done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LlamaStackDistributionStatus {
    /// Where the object stands, in one word; `conditions` say why.
    pub phase: Option<Phase>,
    /// Versions of the operator and of the server.
    pub version: Option<VersionInfo>,
    /// What the running server serves.
    pub distribution_config: Option<DistributionConfig>,
    /// What holds and what does not, each with a reason and what to do about it.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Pods that are ready.
    pub available_replicas: Option<i32>,
    /// Address of the server inside the cluster.
    #[serde(rename = "serviceURL")]
    pub service_url: Option<String>,
    /// Address from outside. Absent: not exposed. Empty: exposed, but no address has been assigned yet.
    #[serde(rename = "routeURL")]
    pub route_url: Option<String>,
}
