//! References to one key of a Secret, nested (`secretKeyRef: {name, key}`) or flat (`{name, key}`).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

const FORMS: &str = "give either name and key, or secretKeyRef with name and key";

/// Key of a Secret in the namespace of this object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// Reference to one key of a Secret, in the form in which it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "SecretRefForms")]
pub enum SecretRef {
    Nested {
        #[serde(rename = "secretKeyRef")]
        secret_key_ref: SecretKey,
    },
    Flat(SecretKey),
}

impl SecretRef {
    pub fn key(&self) -> &SecretKey {
        match self {
            Self::Nested { secret_key_ref } => secret_key_ref,
            Self::Flat(key) => key,
        }
    }
}

/// Both forms of a reference to one key of a Secret in the namespace of this object.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SecretRefForms {
    /// Name of the Secret. Set `name` and `key`, or `secretKeyRef`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    name: Option<String>,
    /// Key in the Secret. Set `name` and `key`, or `secretKeyRef`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// Name and key of the Secret. Set `name` and `key`, or `secretKeyRef`.
    #[serde(default)]
    secret_key_ref: Option<SecretKey>,
}

impl TryFrom<SecretRefForms> for SecretRef {
    type Error = String;

    fn try_from(forms: SecretRefForms) -> Result<Self, String> {
        match forms {
            SecretRefForms { secret_key_ref: Some(secret_key_ref), name: None, key: None } => {
                Ok(Self::Nested { secret_key_ref })
            }
            SecretRefForms { secret_key_ref: None, name: Some(name), key: Some(key) } => {
                Ok(Self::Flat(SecretKey { name, key }))
            }
            SecretRefForms { secret_key_ref: Some(_), .. } => Err(format!("secret reference in both forms: {FORMS}")),
            SecretRefForms { name: Some(_), key: None, .. } => Err(format!("secret reference without key: {FORMS}")),
            SecretRefForms { name: None, key: Some(_), .. } => Err(format!("secret reference without name: {FORMS}")),
            SecretRefForms { name: None, key: None, .. } => Err(format!("empty secret reference: {FORMS}")),
        }
    }
}

/// The schema for a node below one without a type, where the API server accepts no CEL rule.
impl JsonSchema for SecretRef {
    fn schema_name() -> Cow<'static, str> {
        "SecretRef".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = SecretRefForms::json_schema(generator);
        let forms = json!([{ "required": ["name", "key"] }, { "required": ["secretKeyRef"] }]);
        schema.insert("oneOf".to_owned(), forms);
        schema
    }
}

/// The schema with a CEL rule, which has a clearer message than `oneOf`.
pub(super) fn with_rule(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = SecretRefForms::json_schema(generator);
    let rule = "has(self.secretKeyRef) ? !has(self.name) && !has(self.key) : has(self.name) && has(self.key)";
    schema.insert("x-kubernetes-validations".to_owned(), json!([{ "rule": rule, "message": FORMS }]));
    schema
}
