//! Types of the status that both versions have.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Summary of the object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    Pending,
    Initializing,
    Ready,
    Failed,
    Terminating,
}

/// Versions of the operator and of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionInfo {
    /// Version of the operator that wrote this status.
    pub operator_version: Option<String>,
    /// Version that the server reports. The last known version stays while the server does not respond.
    pub llama_stack_server_version: Option<String>,
    /// Time of the last change of any field of the status.
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
}

/// Distribution and providers of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DistributionConfig {
    /// Name of the distribution, or `custom` if the spec has an image.
    pub active_distribution: Option<String>,
    /// Distributions that the operator knows, with their images.
    pub available_distributions: Option<BTreeMap<String, String>>,
    /// Providers that the running server reports, with their health. Absent while not all pods are ready or the server
    /// does not respond, or if it requires credentials.
    pub providers: Option<Vec<ProviderInfo>>,
}

/// One provider of the running server. The field names are those of the server's API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderInfo {
    /// API of the provider, such as `inference` or `vector_io`.
    pub api: String,
    /// Id of the provider in the server's configuration.
    pub provider_id: String,
    /// Type of the provider, such as `remote::vllm`.
    pub provider_type: String,
    /// Configuration of the provider. Values that look like secrets are masked.
    #[schemars(schema_with = "schema::any_json")]
    pub config: Value,
    /// Health of the provider.
    pub health: ProviderHealth,
}

/// Health of one provider at the time of the last poll.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderHealth {
    /// Status that the server reports, such as `OK`, `Error` or `Not Implemented`.
    pub status: String,
    /// Details of the provider. May be empty.
    pub message: String,
}
