//! The key-value store and the SQL store of the server.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{SecretRef, rules, secret};

/// Stores of the server's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Key-value store, for registries and prompts. If absent, as in the distribution.
    pub kv: Option<KvStorage>,
    /// SQL store, for responses and conversations. If absent, as in the distribution.
    pub sql: Option<SqlStorage>,
}

/// Key-value store.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (
        rules::REDIS_NEEDS_ENDPOINT,
        "endpoint is required when type is redis"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct KvStorage {
    /// `sqlite`, a file in the server's container, by default below `~/.llama`, or `redis`. Default: `sqlite`.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<KvType>,
    /// URL of Redis, such as `redis://cache:6379`: database 0, without TLS and without a password. Required with
    /// `redis`, ignored with `sqlite`.
    pub endpoint: Option<String>,
    /// Secret key with the password of Redis. If absent, there is no password. Ignored with `sqlite`.
    #[serde(default)]
    #[schemars(schema_with = "secret::with_rule")]
    pub password: Option<SecretRef>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    Sqlite,
    Redis,
}

/// SQL store.
#[skip_serializing_none]
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = (
        rules::POSTGRES_NEEDS_CONNECTION_STRING,
        "connectionString is required when type is postgres"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SqlStorage {
    /// `sqlite`, a file in the server's container, by default below `~/.llama`, or `postgres`. Default: `sqlite`.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<SqlType>,
    /// Secret key with the URL of PostgreSQL, such as `postgresql://user:password@host:5432/db`. Required with
    /// `postgres`, ignored with `sqlite`.
    #[serde(default)]
    #[schemars(schema_with = "secret::with_rule")]
    pub connection_string: Option<SecretRef>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SqlType {
    #[default]
    Sqlite,
    Postgres,
}
