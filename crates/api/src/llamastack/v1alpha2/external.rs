//! Providers from images.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Provider images by API. An image belongs under the API that its metadata declares; an empty list counts as none.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalProviders {
    /// Images with providers of the API `inference`.
    pub inference: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `safety`.
    pub safety: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `agents`.
    pub agents: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `vector_io`.
    pub vector_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `datasetio`.
    pub dataset_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `scoring`.
    pub scoring: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `eval`.
    pub eval: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `tool_runtime`.
    pub tool_runtime: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `post_training`.
    pub post_training: Option<Vec<ExternalProvider>>,
    /// Limit of the volume that all of them are installed into. Absent: 2Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub volume_size_limit: Option<Quantity>,
}

/// One provider image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalProvider {
    /// Name under which the server knows the provider: lower-case letters, digits and dashes, different from all others.
    pub provider_id: String,
    /// Image with the provider's packages and metadata.
    pub image: String,
    /// When the image is pulled: `Always`, `Never` or `IfNotPresent`. Absent: `IfNotPresent`.
    pub image_pull_policy: Option<PullPolicy>,
    /// Settings of the provider, passed on as they are. Absent: none.
    #[serde(default)]
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
