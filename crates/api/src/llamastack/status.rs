//! The parts of the status that both versions share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Where the object stands: `Pending` until the distribution is resolved, `Initializing` while the server starts, `Ready`
/// once it answers, `Failed` when something has to be done first, `Terminating` while the object is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    Pending,
    Initializing,
    Ready,
    Failed,
    Terminating,
}

/// Who runs here, in which version.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionInfo {
    /// Version of the operator that wrote this status.
    pub operator_version: Option<String>,
    /// Version that the server reports of itself. The last known one stays while the server does not answer; absent until
    /// it has answered once.
    pub llama_stack_server_version: Option<String>,
    /// When these versions were last written.
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
}

/// What the server serves, as it says itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DistributionConfig {
    /// Name of the distribution that runs, or `custom` where the object names an image.
    pub active_distribution: Option<String>,
    /// Names of distributions that this operator knows, each with its image.
    pub available_distributions: Option<BTreeMap<String, String>>,
    /// Providers that the running server has loaded, with their health.
    pub providers: Option<Vec<ProviderInfo>>,
}

/// One provider of the running server. The names are the server's own, hence the underscores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderInfo {
    /// API that this provider serves, such as `inference` or `vector_io`.
    pub api: String,
    /// Name under which the server knows the provider.
    pub provider_id: String,
    /// Kind of provider, such as `remote::vllm`.
    pub provider_type: String,
    /// Settings that the server runs the provider with; the server masks secrets in them.
    #[schemars(schema_with = "schema::any_json")]
    pub config: Value,
    /// How the provider is doing.
    pub health: ProviderHealth,
}

/// Health of one provider at the time of the last poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderHealth {
    /// One word, such as `OK`, `Error` or `Not Implemented`.
    pub status: String,
    /// What the provider adds to it; may be empty.
    pub message: String,
}
