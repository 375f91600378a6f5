//! `llamastack.io/v1alpha2`: a server whose configuration is generated from providers, models and storage.

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

/// What is to run: a distribution, what its configuration shall contain, and how it runs.
#[expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "llamastack.io",
    version = "v1alpha2",
    kind = "LlamaStackDistribution",
    doc = "A Llama Stack server that the operator configures, runs and keeps running. With only a distribution given, the image's own configuration is used; every other section changes one part of it.",
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
    /// Which build of Llama Stack runs.
    pub distribution: Distribution,
    /// Providers of the server, by API. They come first and replace the distribution's providers with the same id; the
    /// others stay. Absent: the distribution's providers. Excluded by `overrideConfig`.
    pub providers: Option<Providers>,
    /// Models, tools and shields that the server registers when it starts. Absent: those of the distribution. Excluded by
    /// `overrideConfig`.
    pub resources: Option<Resources>,
    /// Where the server keeps its state. Absent: where the distribution keeps it. Excluded by `overrideConfig`.
    pub storage: Option<Storage>,
    /// APIs that the server shall not serve, such as `eval` or `postTraining`; `post_training` means the same. An API that
    /// has entries in `providers` cannot be disabled. Absent: all APIs of the distribution. Excluded by `overrideConfig`.
    pub disabled: Option<Vec<String>>,
    /// Port, certificates, exposure and who may reach the server. Absent: port 8321 inside the cluster.
    pub networking: Option<Networking>,
    /// How the server runs: replicas, resources, scaling, volumes. Absent: one replica with the defaults.
    pub workload: Option<Workload>,
    /// Providers that are installed from images of their own before the server starts. Where an id is also in the
    /// generated configuration, the external provider takes its place. Absent: none.
    pub external_providers: Option<ExternalProviders>,
    /// A ConfigMap with a complete `config.yaml`; nothing is generated then. Absent: the configuration is generated.
    pub override_config: Option<OverrideConfig>,
}

/// Name or image of a distribution: exactly one of them.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (rules::NAME_EXCLUDES_IMAGE, "only one of name or image can be specified"),
    validation = (rules::NAME_OR_IMAGE, "one of name or image must be specified")
)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    /// A distribution that the operator knows, such as `starter`. It stands for an image of this release and for the
    /// configuration that belongs to it.
    pub name: Option<String>,
    /// Any container image with a Llama Stack server in it. To have its configuration changed, the image has to carry that
    /// configuration in its labels; otherwise give `overrideConfig`.
    pub image: Option<String>,
}

/// A configuration that the user writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideConfig {
    /// A ConfigMap in the namespace of this object; its key `config.yaml` is used as it stands.
    #[schemars(length(min = 1))]
    pub config_map_name: String,
}

/// What the operator has found and done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LlamaStackDistributionStatus {
    /// Where the object stands, in one word; `conditions` say why.
    pub phase: Option<Phase>,
    /// The image that runs and the configuration it started from.
    pub resolved_distribution: Option<ResolvedDistribution>,
    /// The configuration that was generated. Absent while none is.
    pub config_generation: Option<ConfigGeneration>,
    /// Versions of the operator and of the server.
    pub version: Option<VersionInfo>,
    /// What the running server serves.
    pub distribution_config: Option<DistributionConfig>,
    /// What holds and what does not, each with a reason and what to do about it.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Findings about the spec, the most serious first. Absent: an earlier version of the operator wrote this status.
    pub findings: Option<Vec<FindingCode>>,
    /// ConfigMap with the configuration that the Deployment was last seen to use. Absent: the server runs with the
    /// configuration of its image.
    pub deployed_config_map_name: Option<String>,
    /// What keeps the newest pod from getting ready. Absent: nothing is known.
    pub pod_problem: Option<PodProblem>,
    /// Pods that are ready.
    pub available_replicas: Option<i32>,
    /// Address of the server inside the cluster.
    #[serde(rename = "serviceURL")]
    pub service_url: Option<String>,
    /// Address from outside. Absent: not exposed. Empty: exposed, but no address has been assigned yet.
    #[serde(rename = "routeURL")]
    pub route_url: Option<String>,
}

/// What the distribution turned out to be.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedDistribution {
    /// The image that runs, with its digest where that is known.
    pub image: Option<String>,
    /// Where the base configuration came from: `embedded` in the operator, or `oci-label` of the image.
    pub config_source: Option<String>,
    /// Hash of the base configuration, as `sha256:` and hexadecimal digits.
    pub config_hash: Option<String>,
}

/// The generated configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigGeneration {
    /// The ConfigMap that holds it.
    pub config_map_name: Option<String>,
    /// When this content was first generated.
    #[schemars(schema_with = "schema::time")]
    pub generated_at: Option<Time>,
    /// Number of providers in it.
    #[schemars(schema_with = "schema::integer")]
    pub provider_count: Option<i64>,
    /// Number of models, tools and shields that this object adds to it.
    #[schemars(schema_with = "schema::integer")]
    pub resource_count: Option<i64>,
    /// Version of its format.
    #[schemars(schema_with = "schema::integer")]
    pub config_version: Option<i64>,
}

/// One finding about the spec, for programs. The message of the condition `SpecAccepted` has the text for people.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingCode {
    /// How much it matters.
    pub severity: FindingSeverity,
    /// One word in CamelCase, such as `SecretNotFound`.
    pub reason: String,
    /// Field that it is about, such as `spec.networking.port`. Absent: no field alone.
    pub field: Option<String>,
}

/// `Blocker`: nothing is written until it is corrected. `Warning`: it works, but not as the spec suggests. `Info`: good to
/// know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FindingSeverity {
    Blocker,
    Warning,
    Info,
}

/// What keeps the newest pod from getting ready.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodProblem {
    /// `Unschedulable`, or the reason that the kubelet gives, such as `ImagePullBackOff`. `Unknown`: an earlier version of the
    /// operator stored the message alone.
    pub reason: String,
    /// Container that does not start. Absent: the pod has no node.
    pub container: Option<String>,
    /// Exit code of its last run.
    pub exit_code: Option<i32>,
    /// The same in words, with what to do about it.
    pub message: String,
}
