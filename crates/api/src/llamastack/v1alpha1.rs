//! `llamastack.io/v1alpha1` as the Llama Stack operator released it: a server with the configuration of its
//! distribution or of a ConfigMap.

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

/// Server to run, number of replicas, and network access.
#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type repeat the attribute `type`")]
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "llamastack.io",
    version = "v1alpha1",
    kind = "LlamaStackDistribution",
    doc = "A Llama Stack server that the operator runs. Version v1alpha2 has more fields and can generate the server's \
           configuration.",
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
    /// Number of server pods. Default: 1. 0 stops the server. With `server.autoscaling`, it is a lower bound for the
    /// autoscaler. It has no effect while another autoscaler or field manager sets the replicas of the Deployment;
    /// `SpecAccepted` reports that.
    #[schemars(extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Distribution, container, storage and scaling of the server.
    pub server: ServerSpec,
    /// Network access to the server. If absent, the server is not exposed outside the cluster.
    pub network: Option<Network>,
}

/// One Llama Stack server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerSpec {
    /// Distribution of Llama Stack to run. Set `name` or `image`, not both.
    pub distribution: DistributionType,
    /// Container of the server. If absent, name, port and resources have their defaults.
    pub container_spec: Option<ContainerSpec>,
    /// Number of worker processes in each pod, at least 1. Default: 1. Without a CPU request, the container requests as
    /// many CPUs. The start script of the operator, which runs whenever a configuration is mounted, starts the
    /// processes of servers since 0.3; any other command has to read the variable `LLS_WORKERS`.
    #[schemars(range(min = 1))]
    pub workers: Option<i32>,
    /// Changes to the pod.
    pub pod_overrides: Option<PodOverrides>,
    /// Limit on voluntary evictions of pods. If absent, at most one pod may be unavailable if the server can have more
    /// than one replica; a single replica has no limit.
    pub pod_disruption_budget: Option<DisruptionBudget>,
    /// Rules for spreading the pods over nodes and zones. Each pair of `topologyKey` and `whenUnsatisfiable` may occur
    /// once. If absent or empty, pods are spread over regions, zones and nodes where that is possible.
    #[serde(default)]
    #[schemars(schema_with = "schema::spread_constraints")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// HorizontalPodAutoscaler for the server. If absent, the server has a fixed number of `replicas`.
    pub autoscaling: Option<Autoscaling>,
    /// PersistentVolumeClaim for the server's data; `{}` requests one with all defaults. Updates then stop the old pod
    /// before they start the new one. If absent, the data is lost with the pod.
    pub storage: Option<Storage>,
    /// ConfigMap with the server's `config.yaml`. If absent, the server uses the configuration of its distribution.
    pub user_config: Option<UserConfig>,
    /// Certificate authorities that the server trusts.
    pub tls_config: Option<TlsConfig>,
}

/// Name or image of a distribution.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (rules::NAME_EXCLUDES_IMAGE, "Only one of name or image can be specified")
)]
#[serde(rename_all = "camelCase")]
pub struct DistributionType {
    /// Distribution that the operator knows, such as `starter`. `status.distributionConfig.availableDistributions`
    /// lists all with their images.
    pub name: Option<String>,
    /// Any container image with a Llama Stack server.
    pub image: Option<String>,
}

/// The container of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerSpec {
    /// Name of the container. Default: `llama-stack`.
    #[schemars(extend("default" = "llama-stack"))]
    pub name: Option<String>,
    /// Port that the server listens on, up to 65535. Default: 8321; 0 or less means the default. Distributions whose
    /// configuration the operator generates, such as `remote-vllm` without `userConfig`, need a port of at least 1024.
    /// The server gets a Service only if this field, `env`, `network` or `server.tlsConfig.caBundle` is set.
    pub port: Option<i32>,
    /// Requests and limits of the container. Default requests: one CPU for each worker and 1Gi of memory; a request of
    /// 0 means the default. If `workers` is set, limits of CPU and memory default to the requests; otherwise there are
    /// no default limits.
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Environment variables of the container. They override variables of the same name that the operator sets. If a
    /// name occurs twice, the last entry counts.
    #[schemars(schema_with = "schema::env")]
    pub env: Option<Vec<EnvVar>>,
    /// Command of the container. It replaces the start script of the operator and the entrypoint of the image.
    pub command: Option<Vec<String>>,
    /// Arguments of the container's command. The start script of the operator, which runs whenever a configuration is
    /// mounted, ignores them; set `command` as well then.
    pub args: Option<Vec<String>>,
}

/// Changes to the pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOverrides {
    /// Existing ServiceAccount of the pods. Its pull secrets are also used to read the labels of the image. Default:
    /// the one that the operator creates for each server, with the suffix `-sa`.
    pub service_account_name: Option<String>,
    /// Seconds that the server has to shut down before it is killed. 0 kills it at once. Default: 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Volumes of the pod in addition to those of the operator. Names must be unique.
    #[schemars(schema_with = "schema::volumes")]
    pub volumes: Option<Vec<Volume>>,
    /// Volume mounts of the server's container in addition to those of the operator. Paths must be unique.
    #[schemars(schema_with = "schema::volume_mounts")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// Limit on voluntary evictions. Set one of the two fields.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudget {
    /// Smallest number of available pods, or a percentage such as `50%`. It excludes `maxUnavailable`.
    #[schemars(schema_with = "schema::int_or_string")]
    pub min_available: Option<IntOrString>,
    /// Largest number of unavailable pods, or a percentage such as `50%`. It excludes `minAvailable`. Default without
    /// both: 1.
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
}

/// Bounds and targets of a HorizontalPodAutoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Smallest number of pods. The larger one of this field and `replicas` counts, and at least 1. Default:
    /// `replicas`.
    pub min_replicas: Option<i32>,
    /// Largest number of pods. It must not be below `minReplicas` and `replicas`. With 0 or less, there is no
    /// autoscaler.
    pub max_replicas: i32,
    /// Target for the average CPU usage, in percent of the request. Default: 80, unless there is a memory target.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    pub target_cpu_utilization_percentage: Option<i32>,
    /// Target for the average memory usage, in percent of the request. If absent, memory usage has no influence.
    pub target_memory_utilization_percentage: Option<i32>,
}

/// PersistentVolumeClaim for the server's data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// Size of the claim. Default: 10Gi. An existing claim is never resized; `SpecAccepted` reports a difference.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Option<Quantity>,
    /// Mount path of the volume in the container. Default: `/.llama`.
    pub mount_path: Option<String>,
}

/// ConfigMap whose key `config.yaml` is the server's configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserConfig {
    /// Name of the ConfigMap. An empty name means that there is none.
    pub config_map_name: String,
    /// Namespace of the ConfigMap. Default: the namespace of this object. A ConfigMap of another namespace is read only
    /// if it has the label `steersman.dev/shared-with` with the name of this namespace, or with `All`.
    pub config_map_namespace: Option<String>,
}

/// Certificate authorities that the server trusts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// ConfigMap with certificate authorities. The variable `SSL_CERT_FILE` of the server names a file with these and
    /// with those of ConfigMap `odh-trusted-ca-bundle`, if the namespace has that one.
    pub ca_bundle: Option<CaBundle>,
}

/// ConfigMap with certificate authorities in PEM form.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundle {
    /// Name of the ConfigMap. An empty name means that there is none.
    pub config_map_name: String,
    /// Namespace of the ConfigMap. Default: the namespace of this object. A ConfigMap of another namespace is read only
    /// if it has the label `steersman.dev/shared-with` with the name of this namespace, or with `All`.
    pub config_map_namespace: Option<String>,
    /// Keys with certificates, at most 50. Default: `ca-bundle.crt`.
    #[schemars(length(max = 50))]
    pub config_map_keys: Option<Vec<String>>,
}

/// Network access to the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// True exposes the server outside the cluster by an Ingress, or by a Route on OpenShift. Default: false.
    #[schemars(extend("default" = false))]
    pub expose_route: Option<bool>,
    /// Namespaces whose pods may connect to the server. A NetworkPolicy then allows these namespaces, the namespace of
    /// this object, the operator's namespace and OpenShift's routers, and denies all others. If absent, there is a
    /// NetworkPolicy only if ConfigMap `llama-stack-operator-config` enables `enableNetworkPolicy`; it allows the
    /// namespace of this object, the operator's namespace and, if the server is exposed, OpenShift's routers.
    pub allowed_from: Option<AllowedFrom>,
}

/// Namespaces by name or by label. A namespace in either list is allowed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedFrom {
    /// Names of namespaces. `*` allows all namespaces.
    pub namespaces: Option<Vec<String>>,
    /// Keys of labels. A namespace with one of these labels is allowed, whatever its value.
    pub labels: Option<Vec<String>>,
}

/// State of the server, as the operator observes it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LlamaStackDistributionStatus {
    /// Pending: there is no Deployment yet. Initializing: pods are starting, being replaced or scaled, or the spec
    /// waits for the labels of its image. Ready: all pods are ready. Failed: the spec is refused, or a child
    /// cannot be written; a running server keeps running. Terminating: the object is being deleted.
    pub phase: Option<Phase>,
    /// Versions of the operator and of the server.
    pub version: Option<VersionInfo>,
    /// Distribution and providers of the server.
    pub distribution_config: Option<DistributionConfig>,
    /// `SpecAccepted` reports errors in the spec and fields without effect. The others report the Deployment, storage,
    /// Service, health, Secrets and configuration of the server.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Number of ready pods.
    pub available_replicas: Option<i32>,
    /// URL of the server inside the cluster. Absent if the server has no Service.
    #[serde(rename = "serviceURL")]
    pub service_url: Option<String>,
    /// URL of the server outside the cluster: the host of the Route or the address of the Ingress's load balancer.
    /// Absent if the server is not exposed. Empty until an address is assigned, and if no router admits the Route.
    #[serde(rename = "routeURL")]
    pub route_url: Option<String>,
}
