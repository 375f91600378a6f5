//! Models, tool groups and shields that the server registers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::llamastack::schema;

/// Models, tool groups and shields that the server registers when it starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Models in addition to those of the distribution. Each is a name or an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelForm>>,
    /// Tool groups in addition to those of the distribution, such as `websearch`. They need a provider of the API
    /// `toolRuntime`. Servers since 0.7 ignore this list and register the tool groups of their providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Shields in addition to those of the distribution, such as `llama-guard`. They need a provider of the API
    /// `safety`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shields: Option<Vec<String>>,
}

/// One model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Name of the model at its provider.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Id of the provider that serves the model. Default: the first `inference` provider of the spec, else the first
    /// external one, else the first one of the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Context length in tokens, as metadata of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer")]
    pub context_length: Option<i64>,
    /// Type of the model: `llm`, `embedding` or `rerank`. Default: `llm`. An `embedding` model also needs the field
    /// `embeddingDimension`, the length of its vectors, unless the operator knows the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Quantization of the weights, such as `fp8`, as metadata of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

impl<'de> Deserialize<'de> for ModelForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ModelVisitor;

        impl<'de> Visitor<'de> for ModelVisitor {
            type Value = ModelForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a model or an object with `name` in it")
            }

            fn visit_str<E>(self, name: &str) -> Result<ModelForm, E> {
                Ok(ModelForm::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelForm, A::Error> {
                Model::deserialize(MapAccessDeserializer::new(map)).map(|model| ModelForm::Model(Box::new(model)))
            }
        }

        deserializer.deserialize_any(ModelVisitor)
    }
}

/// A schema without a type, because a structural schema cannot have two; its keywords apply to the form that is used.
impl JsonSchema for ModelForm {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ModelForm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let model = Model::json_schema(generator);
        json_schema!({
            "description": "Name of a model, or an object with `name` and other fields.",
            "x-kubernetes-preserve-unknown-fields": true,
            "minLength": 1,
            "properties": model.get("properties"),
            "required": model.get("required"),
        })
    }
}
