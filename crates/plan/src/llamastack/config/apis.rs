//! The APIs of a server, by the names that users and servers have for them.
//! Comes in: a name in either spelling; goes out: the key in `config.yaml`.

use steersman_api::llamastack::v1alpha2::{ExternalProvider, ExternalProviders, ProviderForm, Providers};

/// An API that `spec.providers` has a field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// In the spec.
    pub field: &'static str,
    /// In `config.yaml`.
    pub key: &'static str,
}

pub const INFERENCE: Api = Api { field: "inference", key: "inference" };
pub const SAFETY: Api = Api { field: "safety", key: "safety" };
pub const VECTOR_IO: Api = Api { field: "vectorIo", key: "vector_io" };
pub const TOOL_RUNTIME: Api = Api { field: "toolRuntime", key: "tool_runtime" };
pub const TELEMETRY: Api = Api { field: "telemetry", key: "telemetry" };

/// Names that are spelt differently in the spec and in the file, or that a server once knew under another name.
const SPELLINGS: [(&str, &str); 5] = [
    ("vectorIo", "vector_io"),
    ("toolRuntime", "tool_runtime"),
    ("postTraining", "post_training"),
    ("datasetIo", "datasetio"),
    ("fileProcessors", "file_processors"),
];

/// The providers of the spec by API, in the order in which they are numbered, named and written.
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

/// The name in `config.yaml`, whichever way it is spelt.
pub fn key(name: &str) -> &str {
    SPELLINGS.iter().find(|(spec, _)| *spec == name).map_or(name, |(_, key)| key)
}

/// The name in the spec.
pub fn field(key: &str) -> &str {
    SPELLINGS.iter().find(|(_, file)| *file == key).map_or(key, |(spec, _)| spec)
}
