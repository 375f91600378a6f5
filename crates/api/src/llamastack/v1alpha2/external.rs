//! External providers: init containers install them from images.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Images with providers, by API. The metadata of an image must declare the same API.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalProviders {
    /// Images with providers of the API `inference`. The metadata of each image must declare this API.
    pub inference: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `safety`. The metadata of each image must declare this API.
    pub safety: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `agents`. The metadata of each image must declare this API. Refused for a
    /// distribution with a server since 0.7 that does not have this API, such as `starter`.
    pub agents: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `vector_io`. The metadata of each image must declare this API.
    pub vector_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `datasetio`. The metadata of each image must declare this API.
    pub dataset_io: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `scoring`. The metadata of each image must declare this API.
    pub scoring: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `eval`. The metadata of each image must declare this API.
    pub eval: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `tool_runtime`. The metadata of each image must declare this API.
    pub tool_runtime: Option<Vec<ExternalProvider>>,
    /// Images with providers of the API `post_training`. The metadata of each image must declare this API. Refused for
    /// a distribution with a server since 0.7 that does not have this API, such as `starter`.
    pub post_training: Option<Vec<ExternalProvider>>,
    /// Size limit of the volume that all external providers are installed into. Default: 2Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub volume_size_limit: Option<Quantity>,
}

/// Image with a provider.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalProvider {
    /// Id of the provider in the server's configuration: at most 46 lower-case letters, digits and dashes, without a
    /// dash at the ends. It must be unique among the external providers.
    pub provider_id: String,
    /// Image with the provider: `/lls-provider/lls-provider-spec.yaml`, the wheels in `/lls-provider/packages`, and
    /// `/bin/sh` and `python3` with pip.
    pub image: String,
    /// Pull policy of the image. Default: `IfNotPresent`.
    pub image_pull_policy: Option<PullPolicy>,
    /// Configuration of the provider, passed on unchanged. Default: `{}`.
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
