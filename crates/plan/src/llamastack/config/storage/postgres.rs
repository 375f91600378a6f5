//! Splits the connection string of PostgreSQL into variables, inside an init container, for servers before 1.5.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::llamastack::config::ids::placeholder;

const HOST: &str = "LLSD_STORAGE_SQL_HOST";
const PORT: &str = "LLSD_STORAGE_SQL_PORT";
const DB: &str = "LLSD_STORAGE_SQL_DB";
const USER: &str = "LLSD_STORAGE_SQL_USER";
const PASSWORD: &str = "LLSD_STORAGE_SQL_PASSWORD";

pub(super) const VARIABLES: [&str; 5] = [HOST, PORT, DB, USER, PASSWORD];

/// Parameters that can be dropped; the server's driver does not know them.
const HARMLESS: [&str; 4] = ["application_name", "connect_timeout", "client_encoding", "fallback_application_name"];

/// The password has an empty default, because the server rejects an empty variable without one.
pub(super) fn config() -> Value {
    json!({
        "host": placeholder(HOST),
        "port": placeholder(PORT),
        "db": placeholder(DB),
        "user": placeholder(USER),
        "password": placeholder(&format!("{PASSWORD}:=")),
    })
}

/// The parts of a connection string. `Debug` prints none of them, because one is a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Parts {
    pub host: String,
    pub port: u16,
    pub db: String,
    pub user: String,
    pub password: String,
    pub ssl: Option<String>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts(..)")
    }
}

/// Errors quote nothing of the connection string.
pub fn parse(connection_string: &str) -> Result<Parts, String> {
    let (scheme, rest) = connection_string
        .trim()
        .split_once("://")
        .ok_or("the connection string is not a URL; it must look like postgresql://user:password@host:5432/db")?;
    if !["postgres", "postgresql"].contains(&scheme.split('+').next().unwrap_or_default()) {
        return Err("the connection string is not for PostgreSQL; it must begin with postgresql://".to_owned());
    }
    // Splits at the last `@`, since an `@` in a password is often not encoded.
    let (login, rest) = rest.rsplit_once('@').ok_or("the connection string has no user")?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (address, db) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, db) = (decoded(user), decoded(db));
    if user.is_empty() {
        return Err("the connection string has no user".to_owned());
    }
    if address.contains(',') {
        return Err("the connection string has several hosts; the Llama Stack server supports one".to_owned());
    }
    let colon = address.rfind(':').filter(|colon| address.rfind(']').is_none_or(|bracket| bracket < *colon));
    let (host, port) = colon.map_or((address, "5432"), |colon| (&address[..colon], &address[colon + 1..]));
    let port = port.parse().ok().filter(|port| *port > 0).ok_or("the port of the connection string is not a number")?;
    if host.is_empty() {
        return Err("the connection string has no host".to_owned());
    }
    // PostgreSQL defaults to the database with the user's name.
    let db = if db.is_empty() { user.clone() } else { db };
    if db.contains(['?', '\n']) {
        return Err(
            "the database name contains a question mark or a line break, which the Llama Stack server does not support"
                .to_owned(),
        );
    }
    Ok(Parts { host: host.to_owned(), port, db, user, password: decoded(password), ssl: ssl(query)? })
}

/// The driver calls the parameter `ssl` and rejects unknown ones.
fn ssl(query: &str) -> Result<Option<String>, String> {
    let mut ssl = None;
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
        match name {
            "sslmode" | "ssl" if modes.contains(&value) => ssl = Some(value.to_owned()),
            "sslmode" | "ssl" => {
                return Err(format!("{name} of the connection string must be one of {}", modes.join(", ")));
            }
            harmless if HARMLESS.contains(&harmless) => {}
            other if other.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                return Err(format!(
                    "the Llama Stack server does not support the parameter {other} of the connection string"
                ));
            }
            _ => {
                return Err(
                    "the connection string has, after the question mark, a parameter that the Llama Stack server does \
                     not support; its name is not shown, because it may be part of a password"
                        .to_owned(),
                );
            }
        }
    }
    Ok(ssl)
}

/// The script that the start script sources before the server starts. It holds secret values.
pub fn exports(sql_connection_string: Option<&str>, kv_password: Option<&str>) -> Result<String, String> {
    let mut lines = String::new();
    let mut export = |name: &str, value: &str| {
        lines.push_str(&format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
    };
    if let Some(given) = sql_connection_string {
        let parts = parse(given)?;
        export(HOST, &parts.host);
        export(PORT, &parts.port.to_string());
        export(DB, &database(&parts));
        export(USER, &encoded(&parts.user));
        export(PASSWORD, &encoded(&parts.password));
    }
    if let Some(password) = kv_password {
        export(super::KV_PASSWORD, &encoded(password.trim_end_matches(['\r', '\n'])));
    }
    Ok(lines)
}

/// The server builds a URL that ends with the database, so options can follow it. It converts a name that looks like a number
/// or a boolean, and rejects the result; an appended `?` keeps the name a string.
fn database(parts: &Parts) -> String {
    let word = matches!(parts.db.to_ascii_lowercase().as_str(), "true" | "false" | "none" | "null");
    match &parts.ssl {
        Some(ssl) => format!("{}?ssl={ssl}", parts.db),
        None if word || parts.db.replace('_', "").parse::<f64>().is_ok() => format!("{}?", parts.db),
        None => parts.db.clone(),
    }
}

/// Encodes for a URL. The first character is always encoded, so that no value looks like a number to the server.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |(place, byte): (usize, u8)| match byte {
        byte if place > 0 && plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().enumerate().map(encode).collect()
}

/// Decodes a URL. An invalid encoding stays as it is.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Cow::into_owned)
}
