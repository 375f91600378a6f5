//! The key-value store and the SQL store of the server.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SecretRef, rules, secret};

/// Stores of the server's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Key-value store, for registries and prompts. If absent, as in the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvStorage>,
    /// SQL store, for responses and conversations. If absent, as in the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<SqlStorage>,
}

/// Key-value store.
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
    /// `sqlite`, a file on the server's volume, or `redis`. Default: `sqlite`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<KvType>,
    /// URL of Redis, such as `redis://cache:6379`: database 0, without TLS and without a password. Required with
    /// `redis`, ignored with `sqlite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Secret key with the password of Redis. If absent, there is no password. Ignored with `sqlite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// `sqlite`, a file on the server's volume, or `postgres`. Default: `sqlite`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<SqlType>,
    /// Secret key with the URL of PostgreSQL, such as `postgresql://user:password@host:5432/db`. Required with
    /// `postgres`, ignored with `sqlite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
