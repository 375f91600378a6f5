//! `llamastack.io/v1alpha2`: a server whose configuration can be generated from providers, models and storage.

mod external;
mod form;
mod networking;
mod providers;
mod resources;
pub mod rules;
mod secret;
mod storage;
mod workload;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::status::{DistributionConfig, Phase, VersionInfo};
use crate::meta::schema;

pub use external::{ExternalProvider, ExternalProviders, PullPolicy};
pub use networking::{Expose, ExposeForm, Networking, Tls};
pub use providers::{Provider, ProviderForm, Providers};
pub use resources::{Model, ModelForm, Resources};
pub use secret::{SecretKey, SecretRef};
pub use storage::{KvStorage, KvType, SqlStorage, SqlType, Storage};
pub use workload::{Overrides, VolumeStorage, Workload};

// The types of v1alpha1 that did not change.
pub use super::v1alpha1::{AllowedFrom, Autoscaling, CaBundle, DisruptionBudget};

/// Distribution to run, content of its configuration, and workload.
#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type repeat the attribute `type`")]
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "llamastack.io",
    version = "v1alpha2",
    kind = "LlamaStackDistribution",
    doc = "A Llama Stack server that the operator configures and runs. The server uses the configuration of its \
           distribution. `providers`, `resources`, `storage`, `disabled` and `externalProviders` each change a part of \
           it, and `overrideConfig` replaces it.",
    namespaced,
    shortname = "llsd",
    status = "LlamaStackDistributionStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Distribution",
        type_ = "string",
        json_path = ".status.resolvedDistribution.image",
        priority = 1
    ),
    printcolumn(name = "Config", type_ = "string", json_path = ".status.configGeneration.configMapName", priority = 1),
    printcolumn(name = "Providers", type_ = "integer", json_path = ".status.configGeneration.providerCount"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (rules::PROVIDERS_EXCLUDE_OVERRIDE, "providers and overrideConfig are mutually exclusive"),
    validation = (rules::RESOURCES_EXCLUDE_OVERRIDE, "resources and overrideConfig are mutually exclusive"),
    validation = (rules::STORAGE_EXCLUDE_OVERRIDE, "storage and overrideConfig are mutually exclusive"),
    validation = (rules::DISABLED_EXCLUDE_OVERRIDE, "disabled and overrideConfig are mutually exclusive")
)]
#[serde(rename_all = "camelCase")]
pub struct LlamaStackDistributionSpec {
    /// Distribution of Llama Stack to run. Set either `name` or `image`.
    pub distribution: DistributionSpec,
    /// Providers of the server, by API. They come before the distribution's providers and replace those with the same
    /// id; the others stay. With the annotation `steersman.dev/provider-merge: replace`, they replace all of the
    /// distribution's providers of the API. Excludes `overrideConfig`.
    pub providers: Option<Providers>,
    /// Models, tool groups and shields that the server registers when it starts, in addition to those of the
    /// distribution. Excludes `overrideConfig`.
    pub resources: Option<Resources>,
    /// Storage of the server's state. If absent, as in the distribution. Excludes `overrideConfig`.
    pub storage: Option<Storage>,
    /// APIs that the server does not serve, such as `eval` or `vectorIo` (or `vector_io`). An API with entries in
    /// `providers` or `externalProviders` cannot be disabled, nor one that a provider of the spec needs, nor all APIs.
    /// If absent, the server serves all APIs of the distribution. Excludes `overrideConfig`.
    pub disabled: Option<Vec<String>>,
    /// Port, certificates, exposure and allowed clients. If absent, the server listens on port 8321; it then has a
    /// Service only if `providers`, `resources`, `storage`, `disabled`, `externalProviders` or `workload.overrides.env`
    /// is set.
    pub networking: Option<Networking>,
    /// Replicas, resources, scaling, volumes and other settings of the pods. If absent, there is one replica with the
    /// defaults.
    pub workload: Option<Workload>,
    /// Providers that init containers install from images before the server starts. An external provider replaces a
    /// provider of its API with the same id in the configuration. With `overrideConfig`, they are not installed.
    pub external_providers: Option<ExternalProviders>,
    /// ConfigMap with a complete `config.yaml`. If absent, the configuration is generated if `providers`, `resources`,
    /// `storage`, `disabled` or `externalProviders` is set or `networking.tls.enabled` is true; otherwise the server
    /// uses the configuration of its distribution. It excludes `providers`, `resources`, `storage` and `disabled`.
    pub override_config: Option<OverrideConfig>,
}

/// Name or image of a distribution.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (rules::NAME_EXCLUDES_IMAGE, "only one of name or image can be specified"),
    validation = (rules::NAME_OR_IMAGE, "one of name or image must be specified")
)]
#[serde(rename_all = "camelCase")]
pub struct DistributionSpec {
    /// Distribution that the operator knows, such as `starter`: an image with a base configuration.
    /// `status.distributionConfig.availableDistributions` lists all with their images.
    pub name: Option<String>,
    /// Any container image with a Llama Stack server. A configuration can be generated only if the image has its base
    /// configuration in OCI labels; otherwise use `overrideConfig`.
    pub image: Option<String>,
}

/// ConfigMap with a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideConfig {
    /// Name of a ConfigMap in the namespace of this object. Its key `config.yaml` is used unchanged.
    #[schemars(length(min = 1))]
    pub config_map_name: String,
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
    /// Image of the server and its base configuration.
    pub resolved_distribution: Option<ResolvedDistribution>,
    /// Generated configuration. Absent if none is generated.
    pub config_generation: Option<ConfigGeneration>,
    /// Versions of the operator and of the server.
    pub version: Option<VersionInfo>,
    /// Distribution and providers of the server.
    pub distribution_config: Option<DistributionConfig>,
    /// `SpecAccepted` reports errors in the spec and fields without effect. The others report the Deployment, storage,
    /// Service, health, Secrets and configuration of the server.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Findings about the spec, the most severe first. Absent if an earlier version of the operator wrote the status,
    /// and while the labels of a new object's image are read for the first time.
    pub findings: Option<Vec<FindingCode>>,
    /// ConfigMap with the configuration that the Deployment uses. Absent if the Deployment mounts none.
    pub deployed_config_map_name: Option<String>,
    /// Problem of the newest pod that has one. Absent if there is none, or if all pods are ready.
    pub pod_problem: Option<PodProblem>,
    /// Number of ready pods.
    pub available_replicas: Option<i32>,
    /// URL of the server inside the cluster. Absent if the server has no Service.
    #[serde(rename = "serviceURL")]
    pub service_url: Option<String>,
    /// URL of the server outside the cluster: the host of the Route, or the address of the Ingress's load balancer and,
    /// until that is assigned, the `hostname` of `expose`. Absent if the server is not exposed. Empty if there is no
    /// address yet, and if no router admits the Route.
    #[serde(rename = "routeURL")]
    pub route_url: Option<String>,
}

/// Image and base configuration of the distribution.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedDistribution {
    /// Image of the server. It has a digest if the base configuration was read from its labels.
    pub image: Option<String>,
    /// Source of the base configuration: `embedded` in the operator, or `oci-label` of the image. Absent with
    /// `overrideConfig`, and with `distribution.image` if no configuration is generated.
    pub config_source: Option<String>,
    /// Hash of the base configuration: `sha256:` and hexadecimal digits.
    pub config_hash: Option<String>,
}

/// Generated configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigGeneration {
    /// ConfigMap with the configuration.
    pub config_map_name: Option<String>,
    /// Time at which this content was generated.
    #[schemars(schema_with = "schema::time")]
    pub generated_at: Option<Time>,
    /// Number of providers in the configuration, without external ones.
    #[schemars(schema_with = "schema::integer")]
    pub provider_count: Option<i64>,
    /// Number of models, tool groups and shields that the spec adds.
    #[schemars(schema_with = "schema::integer")]
    pub resource_count: Option<i64>,
    /// Version of the configuration's format.
    #[schemars(schema_with = "schema::integer")]
    pub config_version: Option<i64>,
}

/// Finding about the spec. The message of condition `SpecAccepted` has its text.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingCode {
    /// `Blocker`: nothing is written until the cause is fixed. `Warning`: the spec is accepted, but a part of it has
    /// another effect than expected, or none, or waits. `Info`: no action is needed.
    pub severity: FindingSeverity,
    /// Code in CamelCase, such as `SecretNotFound`.
    pub reason: String,
    /// Field that the finding is about, such as `spec.networking.port`. Absent if it is not about a single field.
    pub field: Option<String>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FindingSeverity {
    Blocker,
    Warning,
    Info,
}

/// Problem of a pod that does not become ready.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProblem {
    /// `Unschedulable`, the reason for which the container waits, such as `ImagePullBackOff`, or `CrashLoopBackOff` if
    /// the container ended. `Unknown` if an earlier version of the operator stored only the message.
    pub reason: String,
    /// Container that does not start or ended. Absent if the pod is unschedulable.
    pub container: Option<String>,
    /// Exit code of the container. Absent if it did not end.
    pub exit_code: Option<i32>,
    /// Description of the problem, with the next step.
    pub message: String,
}
