//! Models, tools and shields that the server registers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::form::form;
use crate::meta::schema;

/// What the server registers when it starts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Models, each as its name or as an object. Absent: those of the distribution.
    pub models: Option<Vec<ModelForm>>,
    /// Tool groups, such as `websearch`; they need a provider of the API `toolRuntime`. Absent: those of the distribution.
    pub tools: Option<Vec<String>>,
    /// Shields, such as `llama-guard`; they need a provider of the API `safety`. Absent: those of the distribution.
    pub shields: Option<Vec<String>>,
}

/// One model.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Name of the model, as its provider knows it.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Id of the provider that serves it. Absent: the first provider of the API `inference`.
    pub provider: Option<String>,
    /// Tokens that fit into one request. Absent: not told to the server.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub context_length: Option<i64>,
    /// What the model is for: `llm`, `embedding` or `rerank`. Absent: `llm`.
    pub model_type: Option<String>,
    /// How its weights are quantized, such as `fp8`. Absent: not told to the server.
    pub quantization: Option<String>,
    /// Fields that are none of the above. The API server prunes nothing below a node without a type, so a misspelt name
    /// is still there to be reported.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// One model, as it was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ModelForm {
    Name(String),
    Model(Box<Model>),
}

impl ModelForm {
    /// The model in full, whichever way it was written.
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
        "description": "The name of a model, or an object with `name` and what else is known of it.",
        "x-kubernetes-preserve-unknown-fields": true,
        "minLength": 1,
        "properties": model.get("properties"),
        "required": model.get("required"),
    }
}
