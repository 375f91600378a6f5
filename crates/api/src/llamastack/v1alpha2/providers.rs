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

/// Providers by API. Each is one provider or a list; ids must differ across all APIs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Providers {
    /// Who answers requests to models. One provider, or a list in which each has an `id`; the first is the default of
    /// models that name none. Absent: the distribution's.
    pub inference: Option<ProviderForm>,
    /// Who checks what goes in and out. One provider, or a list in which each has an `id`. Absent: the distribution's.
    pub safety: Option<ProviderForm>,
    /// Who keeps vectors. One provider, or a list in which each has an `id`. Absent: the distribution's.
    pub vector_io: Option<ProviderForm>,
    /// Who runs tools. One provider, or a list in which each has an `id`. Absent: the distribution's.
    pub tool_runtime: Option<ProviderForm>,
    /// Who takes traces and metrics. One provider, or a list in which each has an `id`. Servers since 0.3 have no such API:
    /// a condition says so, and the entry is left out.
    pub telemetry: Option<ProviderForm>,
}

/// One provider of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", expecting = "a provider: an object with `provider` in it")]
pub struct Provider {
    /// Name under which the server knows this provider. Absent: the value of `provider`; needed where an API has several.
    pub id: Option<String>,
    /// Kind of provider, such as `vllm` or `pgvector`. `remote::` or `inline::` is put in front where it is missing.
    #[schemars(length(min = 1))]
    pub provider: String,
    /// Address of the service behind the provider. Absent: the provider's own default.
    pub endpoint: Option<String>,
    /// The Secret key with the token for that service. The value reaches the server as an environment variable, never by
    /// the ConfigMap.
    pub api_key: Option<SecretRef>,
    /// More settings whose values are in Secrets, by the name of the setting.
    pub secret_refs: Option<BTreeMap<String, SecretRef>>,
    /// Settings passed to the provider as they are. A setting of the form `secretKeyRef: {name, key}` at the top is taken
    /// from that Secret.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_json")]
    pub settings: Option<Value>,
    /// Fields that are none of the above. The API server prunes nothing below a node without a type, so a misspelt name
    /// is still there to be reported.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The providers of one API, as they were written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ProviderForm {
    One(Box<Provider>),
    Many(Vec<Provider>),
}

impl ProviderForm {
    /// The providers in their order, whichever way they were written.
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
