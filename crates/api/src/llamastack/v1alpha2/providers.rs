//! Providers by API, each API with one provider or a list of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::SeqAccess;
use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::SecretRef;
use super::form::form;
use crate::meta::schema;

/// Providers by API. Ids must be unique across all APIs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Providers {
    /// Providers that run models. One provider, or a list; with more than one entry, each needs an `id`. The first is
    /// the default for models without a provider.
    pub inference: Option<ProviderForm>,
    /// Providers that check inputs and outputs of models. One provider, or a list; with more than one entry, each needs
    /// an `id`.
    pub safety: Option<ProviderForm>,
    /// Providers that store vectors. One provider, or a list; with more than one entry, each needs an `id`.
    pub vector_io: Option<ProviderForm>,
    /// Providers that run tools. One provider, or a list; with more than one entry, each needs an `id`.
    pub tool_runtime: Option<ProviderForm>,
    /// Providers that receive traces and metrics. One provider, or a list; with more than one entry, each needs an
    /// `id`. Servers since 0.3 do not have this API: the entries are left out, and condition `SpecAccepted` reports it.
    pub telemetry: Option<ProviderForm>,
}

/// One provider of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "a provider: an object with `provider` in it")]
pub struct Provider {
    /// Id of the provider in the server's configuration. Default: the last part of `provider`, such as `vllm` of
    /// `remote::vllm`. Required if the API has several providers in the spec.
    pub id: Option<String>,
    /// Type of the provider, such as `vllm` or `inline::faiss`. A name without `remote::` or `inline::` gets the prefix
    /// that the provider is known with, or else `remote::`.
    #[schemars(length(min = 1))]
    pub provider: String,
    /// URL of the service that the provider calls. If absent, the provider's default applies; some providers require
    /// it.
    pub endpoint: Option<String>,
    /// Secret key with the token for that service. The server gets the value as an environment variable; it is never
    /// written to a ConfigMap.
    pub api_key: Option<SecretRef>,
    /// Other settings with values from Secrets, by the name of the setting.
    pub secret_refs: Option<BTreeMap<String, SecretRef>>,
    /// Settings of the provider, passed on unchanged. A value `secretKeyRef: {name, key}` at the top level is replaced
    /// by the value of that Secret key. `endpoint`, `apiKey` and `secretRefs` override the settings that they are
    /// written to, such as `base_url` and `api_token` of `remote::vllm`.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_json")]
    pub settings: Option<Value>,
    /// Unknown fields, to be reported. The API server does not prune them, because the node has no type.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The providers of one API in the form in which they were written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ProviderForm {
    One(Box<Provider>),
    Many(Vec<Provider>),
}

impl ProviderForm {
    /// The providers in their order, for both forms.
    pub fn all(&self) -> &[Provider] {
        match self {
            Self::One(provider) => std::slice::from_ref(provider),
            Self::Many(providers) => providers,
        }
    }
}

form! {
    ProviderForm,
    "a provider (an object with `provider` in it) or a list of them",
    Provider => |provider| ProviderForm::One(Box::new(provider)),
    {
        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ProviderForm, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list)).map(ProviderForm::Many)
        }
    },
    |provider| {
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": provider.get("properties"),
        "required": provider.get("required"),
        "items": provider,
    }
}
