//! Replaces the storage backends of the file by those of the spec, each independently of the other.

mod postgres;
mod redis;

use serde_json::{Map, Value, json};
use steersman_api::llamastack::v1alpha2::{KvStorage, KvType, SecretRef, SqlStorage, SqlType, rules};
use steersman_reconcile::{FieldPath, message, path};

use super::draft::{self, Draft, text};
use super::layout::Layout;
use super::problem::reason;
use super::{FieldError, providers, secrets};

pub use postgres::{Parts, exports, parse};

#[derive(Clone, Copy)]
pub(super) struct Store {
    prefix: &'static str,
    /// Default name of the backend under `storage.backends` of `config.yaml`.
    name: &'static str,
    /// Entry of `storage.stores` in `config.yaml` whose `backend` may set another name.
    named_by: &'static str,
    /// Top-level key of the backend in `config.yaml` of servers before 0.3.
    top: &'static str,
    file: &'static str,
}

pub(super) const KV: Store =
    Store { prefix: "kv_", name: "kv_default", named_by: "metadata", top: "metadata_store", file: "kvstore.db" };
pub(super) const SQL: Store =
    Store { prefix: "sql_", name: "sql_default", named_by: "inference", top: "inference_store", file: "sql_store.db" };

/// Variables of the container with values from Secrets.
pub const KV_PASSWORD: &str = "LLSD_STORAGE_KV_PASSWORD";
pub const SQL_CONNECTION_STRING: &str = "LLSD_STORAGE_SQL_CONNECTION_STRING";

/// Secret values that must be converted before the server can use them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepare {
    /// The password becomes part of a URL.
    pub kv_password: bool,
    /// The server accepts only the parts of a connection string.
    pub sql_connection_string: bool,
}

impl Prepare {
    pub fn any(self) -> bool {
        self.kv_password || self.sql_connection_string
    }

    /// Variables that the prepared file sets before the server starts.
    pub(super) fn variables(self) -> &'static [&'static str] {
        if self.sql_connection_string { &postgres::VARIABLES } else { &[] }
    }
}

/// The name of the backend that the spec's store replaces.
pub(super) fn backend(config: &Map<String, Value>, store: Store) -> String {
    let storage = config.get("storage");
    let backends = storage.and_then(|storage| storage.get("backends")).and_then(Value::as_object);
    let named = storage.and_then(|storage| text(storage.get("stores")?.get(store.named_by)?, "backend"));
    match (backends, named) {
        (Some(backends), Some(named)) if !backends.contains_key(store.name) => named.to_owned(),
        _ => store.name.to_owned(),
    }
}

/// A path in the folder of the distribution. The name of a base may be an image, which is no valid folder name.
pub(super) fn file(draft: &Draft<'_>, name: &str) -> String {
    let plain = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let said = ["distro_name", "image_name"].into_iter().filter_map(|key| draft.config.get(key)?.as_str());
    let distribution = said.chain(draft.base.map(|base| base.name.as_str())).find(plain).unwrap_or("custom");
    format!("${{env.SQLITE_STORE_DIR:=~/.llama/distributions/{distribution}}}/{name}")
}

pub(super) fn replace(draft: &mut Draft<'_>) -> Prepare {
    let mut prepare = Prepare::default();
    let Some(storage) = &draft.spec.storage else { return prepare };
    if let Some(kv) = &storage.kv {
        prepare.kv_password = key_value(draft, kv);
    }
    if let Some(sql) = &storage.sql {
        prepare.sql_connection_string = tables(draft, sql);
    }
    prepare
}

/// Returns whether there is a password to prepare.
fn key_value(draft: &mut Draft<'_>, kv: &KvStorage) -> bool {
    if kv.type_.unwrap_or_default() == KvType::Sqlite {
        unused(draft, path!(spec.storage.kv), "endpoint", "redis", kv.endpoint.is_some());
        unused(draft, path!(spec.storage.kv), "password", "redis", kv.password.is_some());
        sqlite(draft, KV);
        return false;
    }
    let path = path!(spec.storage.kv.endpoint);
    let Some(endpoint) = kv.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()) else {
        let message = "endpoint is required when type is redis";
        required(draft, path, rules::REDIS_NEEDS_ENDPOINT, message, "such as redis://cache:6379");
        return false;
    };
    let address = match redis::parse(endpoint) {
        Ok(address) => address,
        Err(message) => {
            let write = "Write it as redis://host:port, and put the password into a Secret that ";
            draft.refuse(path, message, message![write, path!(spec.storage.kv.password), " names."]);
            return false;
        }
    };
    let password = secret(draft, &path!(spec.storage.kv.password), kv.password.as_ref(), KV_PASSWORD);
    let config = json!({ "host": address.host(password.as_deref()), "port": address.port });
    put(draft, KV, "redis", config);
    password.is_some()
}

/// Returns whether there is a connection string to split.
fn tables(draft: &mut Draft<'_>, sql: &SqlStorage) -> bool {
    if sql.type_.unwrap_or_default() == SqlType::Sqlite {
        unused(draft, path!(spec.storage.sql), "connectionString", "postgres", sql.connection_string.is_some());
        sqlite(draft, SQL);
        return false;
    }
    let path = path!(spec.storage.sql.connectionString);
    if sql.connection_string.is_none() {
        required(
            draft,
            path,
            rules::POSTGRES_NEEDS_CONNECTION_STRING,
            "connectionString is required when type is postgres",
            "with the name and key of a Secret",
        );
        return false;
    }
    let Some(placeholder) = secret(draft, &path, sql.connection_string.as_ref(), SQL_CONNECTION_STRING) else {
        return false;
    };
    // Servers before 1.5 accept only the parts of a connection string.
    let whole = draft.server.since(1, 5);
    let config = if whole { json!({ "connection_string": placeholder }) } else { postgres::config() };
    put(draft, SQL, "postgres", config);
    !whole
}

fn secret(draft: &mut Draft<'_>, path: &FieldPath, reference: Option<&SecretRef>, variable: &str) -> Option<String> {
    let reference = reference?;
    providers::secret(draft, variable.to_owned(), reference.key(), secrets::path(path, reference))
}

fn required(draft: &mut Draft<'_>, path: FieldPath, rule: &'static str, message: &str, such_as: &str) {
    let error = FieldError::new(path, reason::INVALID, message, format!("Add it, {such_as}."));
    draft.errors.push(error.with_schema_rule(rule));
}

fn unused(draft: &mut Draft<'_>, store: FieldPath, field: &'static str, type_: &str, given: bool) {
    if given {
        draft.ignore(
            store.field(field),
            format!("{field} is only valid when type is {type_}; with sqlite it is not used"),
            format!("Set type to {type_}, or remove {field}."),
        );
    }
}

/// A base that uses a file already stays unchanged: another path would lose the data.
fn sqlite(draft: &mut Draft<'_>, store: Store) {
    let name = backend(&draft.config, store);
    let is_file = match Layout::of(draft) {
        Layout::Top => draft.config.get(store.top).and_then(|store| text(store, "type")) == Some("sqlite"),
        Layout::Sections => {
            let backends = draft.config.get("storage").and_then(|storage| storage.get("backends"));
            let type_ = backends.and_then(|backends| text(backends.get(&name)?, "type"));
            type_.is_some_and(|type_| type_ == format!("{}sqlite", store.prefix))
        }
    };
    if !is_file {
        let path = file(draft, store.file);
        put(draft, store, "sqlite", json!({ "db_path": path }));
    }
}

fn put(draft: &mut Draft<'_>, store: Store, type_: &str, config: Value) {
    let Value::Object(mut config) = config else { return };
    if Layout::of(draft) == Layout::Top {
        config.insert("type".to_owned(), Value::from(type_));
        draft.config.insert(store.top.to_owned(), Value::Object(config));
        return;
    }
    config.insert("type".to_owned(), Value::from(format!("{}{type_}", store.prefix)));
    let name = backend(&draft.config, store);
    let files = [KV, SQL].map(|store| (store, file(draft, store.file)));
    let mut storage = draft::take(&mut draft.config, "storage");
    let mut backends = draft::take(&mut storage, "backends");
    if backends.is_empty() {
        // The server's default stores need both kinds of backends.
        for (store, path) in files {
            let config = json!({ "type": format!("{}sqlite", store.prefix), "db_path": path });
            backends.insert(store.name.to_owned(), config);
        }
    }
    backends.insert(name, Value::Object(config));
    storage.insert("backends".to_owned(), Value::Object(backends));
    draft.config.insert("storage".to_owned(), Value::Object(storage));
}
