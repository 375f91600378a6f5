//! The stores of the server.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{SecretRef, rules, secret};

/// The server's two stores. What is absent stays where the distribution has it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Keys and values: registries, prompts. Absent: as in the distribution.
    pub kv: Option<KvStorage>,
    /// Tables: responses, conversations. Absent: as in the distribution.
    pub sql: Option<SqlStorage>,
}

/// The store for keys and values.
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
    /// `sqlite`, a file on the server's volume, or `redis`. `sqlite` unless given.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<KvType>,
    /// Address of Redis, such as `redis://cache:6379`. Needed with `redis`, unused with `sqlite`.
    pub endpoint: Option<String>,
    /// The Secret key with the password of Redis. Absent: no password. Unused with `sqlite`.
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

/// The store for tables.
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
    /// `sqlite`, a file on the server's volume, or `postgres`. `sqlite` unless given.
    #[serde(rename = "type")]
    #[schemars(extend("default" = "sqlite"))]
    pub type_: Option<SqlType>,
    /// The Secret key with the address of PostgreSQL, such as `postgresql://user:password@host:5432/db`. Needed with
    /// `postgres`, unused with `sqlite`.
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
