//! Models, tool groups and shields that the server registers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::form::form;
use crate::meta::schema;

/// Models, tool groups and shields that the server registers when it starts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Models in addition to those of the distribution. Each is a name or an object.
    pub models: Option<Vec<ModelForm>>,
    /// Tool groups in addition to those of the distribution, such as `websearch`. They need a provider of the API
    /// `toolRuntime`. Servers since 0.7 ignore this list and register the tool groups of their providers.
    pub tools: Option<Vec<String>>,
    /// Shields in addition to those of the distribution, such as `llama-guard`. They need a provider of the API
    /// `safety`.
    pub shields: Option<Vec<String>>,
}

/// One model.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Name of the model at its provider.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Id of the provider that serves the model. Default: the first `inference` provider of the spec, else the first
    /// external one, else the first one of the distribution that does not depend on an environment variable.
    pub provider: Option<String>,
    /// Context length in tokens, as metadata of the model.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub context_length: Option<i64>,
    /// Type of the model: `llm`, `embedding` or `rerank`. Default: `llm`. An `embedding` model also needs the field
    /// `embeddingDimension`, the length of its vectors, unless the operator knows the model.
    pub model_type: Option<String>,
    /// Quantization of the weights, such as `fp8`, as metadata of the model.
    pub quantization: Option<String>,
    /// Unknown fields, to be reported, and `embeddingDimension`. The API server does not prune them, because the node
    /// has no type.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A model in the form in which it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ModelForm {
    Name(String),
    Model(Box<Model>),
}

impl ModelForm {
    /// The model as an object, for both forms.
    pub fn model(&self) -> Cow<'_, Model> {
        match self {
            Self::Name(name) => Cow::Owned(Model { name: name.clone(), ..Model::default() }),
            Self::Model(model) => Cow::Borrowed(model),
        }
    }
}

form! {
    ModelForm,
    "the name of a model or an object with `name` in it",
    Model => |model| ModelForm::Model(Box::new(model)),
    {
        fn visit_str<E>(self, name: &str) -> Result<ModelForm, E> {
            Ok(ModelForm::Name(name.to_owned()))
        }
    },
    |model| {
        "description": "Name of a model, or an object with `name` and other fields.",
        "x-kubernetes-preserve-unknown-fields": true,
        "minLength": 1,
        "properties": model.get("properties"),
        "required": model.get("required"),
    }
}
