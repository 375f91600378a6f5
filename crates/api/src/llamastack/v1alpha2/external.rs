//! Providers from images.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::llamastack::schema;

/// Provider images by API. An image belongs under the API that its metadata declares; an empty list counts as none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalProviders {
    /// Images with providers of the API `inference`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inference: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `safety`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `agents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `vector_io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `datasetio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `scoring`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoring: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `eval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `tool_runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_runtime: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `post_training`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_training: Option<Vec<ExternalProvider>>,
    /// Limit of the volume that all of them are installed into. Absent: 2Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub volume_size_limit: Option<Quantity>,
}

/// One provider image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalProvider {
    /// Name under which the server knows the provider: lower-case letters, digits and dashes, different from all others.
    pub provider_id: String,
    /// Image with the provider's packages and metadata.
    pub image: String,
    /// When the image is pulled: `Always`, `Never` or `IfNotPresent`. Absent: `IfNotPresent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Settings of the provider, passed on as they are. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_json")]
    pub config: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    Always,
    Never,
    #[default]
    IfNotPresent,
}
