//! The APIs of a server, by their names in the spec and in `config.yaml`.

use steersman_api::llamastack::v1alpha2::{ExternalProvider, ExternalProviders, ProviderForm, Providers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// Name in the spec.
    pub field: &'static str,
    /// Name in `config.yaml`.
    pub key: &'static str,
}

pub const INFERENCE: Api = Api { field: "inference", key: "inference" };
pub const SAFETY: Api = Api { field: "safety", key: "safety" };
pub const VECTOR_IO: Api = Api { field: "vectorIo", key: "vector_io" };
pub const TOOL_RUNTIME: Api = Api { field: "toolRuntime", key: "tool_runtime" };
pub const TELEMETRY: Api = Api { field: "telemetry", key: "telemetry" };

/// Names that differ between the spec and the file.
const SPELLINGS: [(&str, &str); 5] = [
    ("vectorIo", "vector_io"),
    ("toolRuntime", "tool_runtime"),
    ("postTraining", "post_training"),
    ("datasetIo", "datasetio"),
    ("fileProcessors", "file_processors"),
];

/// The providers of the spec by API, in the order in which they are written.
pub fn of(providers: &Providers) -> [(Api, Option<&ProviderForm>); 5] {
    [
        (INFERENCE, providers.inference.as_ref()),
        (SAFETY, providers.safety.as_ref()),
        (VECTOR_IO, providers.vector_io.as_ref()),
        (TOOL_RUNTIME, providers.tool_runtime.as_ref()),
        (TELEMETRY, providers.telemetry.as_ref()),
    ]
}

/// The external providers by API, in the order in which they are installed.
pub fn of_external(external: &ExternalProviders) -> [(Api, &[ExternalProvider]); 9] {
    [
        (INFERENCE, &external.inference),
        (SAFETY, &external.safety),
        (Api { field: "agents", key: "agents" }, &external.agents),
        (VECTOR_IO, &external.vector_io),
        (Api { field: "datasetIo", key: "datasetio" }, &external.dataset_io),
        (Api { field: "scoring", key: "scoring" }, &external.scoring),
        (Api { field: "eval", key: "eval" }, &external.eval),
        (TOOL_RUNTIME, &external.tool_runtime),
        (Api { field: "postTraining", key: "post_training" }, &external.post_training),
    ]
    .map(|(api, list)| (api, list.as_deref().unwrap_or_default()))
}

/// The name in `config.yaml`, for either spelling.
pub fn key(name: &str) -> &str {
    SPELLINGS.iter().find(|(spec, _)| *spec == name).map_or(name, |(_, key)| key)
}

/// The name in the spec, for a name in `config.yaml`.
pub fn field(key: &str) -> &str {
    SPELLINGS.iter().find(|(_, file)| *file == key).map_or(key, |(spec, _)| spec)
}
