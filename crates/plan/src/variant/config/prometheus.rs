//! Reads the address and credentials of Prometheus from the environment or the main ConfigMap, keys `PROMETHEUS_*`.
//! Paths of files come from the environment only: a ConfigMap could otherwise name any file of the operator's pod, such as
//! its own token, together with the address to send it to.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

pub const BASE_URL: &str = "PROMETHEUS_BASE_URL";
const INSECURE: &str = "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY";
const CA_CERT: &str = "PROMETHEUS_CA_CERT";
const CA_CERT_PATH: &str = "PROMETHEUS_CA_CERT_PATH";
const CLIENT_CERT_PATH: &str = "PROMETHEUS_CLIENT_CERT_PATH";
const CLIENT_KEY_PATH: &str = "PROMETHEUS_CLIENT_KEY_PATH";
const SERVER_NAME: &str = "PROMETHEUS_SERVER_NAME";
const TOKEN: &str = "PROMETHEUS_BEARER_TOKEN";
const TOKEN_PATH: &str = "PROMETHEUS_TOKEN_PATH";

pub const KEYS: [&str; 9] =
    [BASE_URL, INSECURE, CA_CERT, CA_CERT_PATH, CLIENT_CERT_PATH, CLIENT_KEY_PATH, SERVER_NAME, TOKEN, TOKEN_PATH];

/// Keys whose value is a path of a file.
const PATHS: [&str; 4] = [CA_CERT_PATH, CLIENT_CERT_PATH, CLIENT_KEY_PATH, TOKEN_PATH];

#[derive(Clone, Default, PartialEq, Eq)]
pub struct PrometheusConfig {
    pub base_url: String,
    pub insecure_skip_verify: bool,
    pub ca: Option<CaCertificates>,
    /// Certificate and key. Both are required.
    pub client_cert_path: Option<(String, String)>,
    pub server_name: Option<String>,
    pub bearer_token: Option<Token>,
    /// Used if there is no token. The file is read again and again, because tokens are rotated.
    pub token_path: Option<String>,
}

/// The certificates that sign the certificate of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaCertificates {
    Pem(String),
    File(String),
}

/// Hides the password in the address and the token.
impl fmt::Debug for PrometheusConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prometheus")
            .field("base_url", &without_secrets(&self.base_url))
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("ca", &self.ca)
            .field("client_cert_path", &self.client_cert_path)
            .field("server_name", &self.server_name)
            .field("bearer_token", &self.bearer_token)
            .field("token_path", &self.token_path)
            .finish()
    }
}

/// A secret that is neither logged nor serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusConfigError {
    pub key: &'static str,
    pub why: String,
}

pub fn has_address(source: &BTreeMap<String, String>) -> bool {
    source.get(BASE_URL).is_some_and(|url| !url.trim().is_empty())
}

/// All values come from the environment if it has an address. Otherwise paths of files come from the environment, and all
/// other values from the map.
pub fn read(
    environment: &BTreeMap<String, String>,
    map: &BTreeMap<String, String>,
    allow_http: bool,
) -> Result<PrometheusConfig, PrometheusConfigError> {
    let refused = |key, why: &str| PrometheusConfigError { key, why: why.to_owned() };
    let source = [environment, map].into_iter().find(|source| has_address(source)).ok_or_else(|| {
        let why = "no Prometheus configuration found. Please set PROMETHEUS_BASE_URL environment variable or configure via \
                   ConfigMap";
        refused(BASE_URL, why)
    })?;
    let value_in = |values: &BTreeMap<String, String>, key: &str| {
        values.get(key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let get = |key: &str| value_in(source, key);
    let path = |key: &str| value_in(environment, key);
    let base_url = get(BASE_URL).unwrap_or_default();
    let lower = base_url.to_ascii_lowercase();
    if !(lower.starts_with("https://") || (allow_http && lower.starts_with("http://"))) {
        let why = format!("HTTPS is required - URL must use https:// scheme: {}", without_secrets(&base_url));
        return Err(refused(BASE_URL, &why));
    }
    if !has_host(&base_url) {
        // The address is not shown, because it may hold a password.
        let why = "it is not a URL such as https://prometheus.monitoring.svc:9090; in a user name or password, write / as \
                   %2F, ? as %3F, # as %23 and @ as %40";
        return Err(refused(BASE_URL, why));
    }
    if let Some(key) = PATHS.into_iter().find(|key| get(key).is_some() && path(key).is_none()) {
        let certificate =
            if key == CA_CERT_PATH { ", or put the certificates themselves into PROMETHEUS_CA_CERT" } else { "" };
        let why = format!(
            "paths of files are not read from ConfigMaps; remove the key here and set {key} in the environment of \
             Steersman{certificate}"
        );
        return Err(refused(key, &why));
    }
    let client_cert_path = match (path(CLIENT_CERT_PATH), path(CLIENT_KEY_PATH)) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (cert, _) => {
            let missing = if cert.is_some() { CLIENT_KEY_PATH } else { CLIENT_CERT_PATH };
            return Err(refused(missing, &format!("{CLIENT_CERT_PATH} and {CLIENT_KEY_PATH} must be set together")));
        }
    };
    let server_name = get(SERVER_NAME);
    if let Some(name) = server_name.as_deref().filter(|name| !is_server_name(name)) {
        let why = format!("{name:?} is neither a host name nor an IP address; remove the port if it has one");
        return Err(refused(SERVER_NAME, &why));
    }
    let insecure_skip_verify = get(INSECURE).as_deref() == Some("true");
    let has_credentials = get(TOKEN).is_some() || path(TOKEN_PATH).is_some() || has_login(&base_url);
    if insecure_skip_verify && has_credentials {
        let why = "a token or login is not sent to a server whose certificate is not verified; set this to false and provide \
                   the CA of Prometheus with PROMETHEUS_CA_CERT, or remove the token or login";
        return Err(refused(INSECURE, why));
    }
    Ok(PrometheusConfig {
        insecure_skip_verify,
        // The certificates of the ConfigMap belong to its address.
        ca: get(CA_CERT).map(CaCertificates::Pem).or_else(|| path(CA_CERT_PATH).map(CaCertificates::File)),
        client_cert_path,
        server_name,
        bearer_token: get(TOKEN).map(Token),
        token_path: path(TOKEN_PATH),
        base_url,
    })
}

/// A rough check. An address that fails it must not replace a valid one; the HTTP client checks the rest.
fn has_host(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // An `@` after the host is part of a password that contains one of these three characters unescaped.
    if rest[authority.len()..].contains('@') {
        return false;
    }
    let place = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let written = url.chars().all(|c| c.is_ascii_graphic());
    written && !host.is_empty() && host.chars().all(plain) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Expects an address that passed `has_host`.
fn has_login(url: &str) -> bool {
    url.contains('@')
}

/// Follows the rules by which the TLS library checks server names.
pub fn is_server_name(name: &str) -> bool {
    let labels: Vec<&str> = name.strip_suffix('.').unwrap_or(name).split('.').collect();
    let is_label = |label: &&str| {
        let plain = label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let last_is_number = labels.last().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
    let is_host = name.len() <= 253 && labels.iter().all(is_label) && !last_is_number;
    is_host || name.parse::<IpAddr>().is_ok()
}

/// Hides login and query, which may hold secrets. All before the last `@` counts as login, because a password may hold
/// any character.
fn without_secrets(url: &str) -> String {
    let is_scheme = |(scheme, _): &(&str, &str)| scheme.chars().all(|c| c.is_ascii_alphanumeric());
    let (start, rest) = match url.split_once("://").filter(is_scheme) {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (login, place) = rest.rsplit_once('@').map_or(("", rest), |(_, place)| ("…@", place));
    let (place, query) = place.split_once(['?', '#']).map_or((place, ""), |(place, _)| (place, "?…"));
    format!("{start}{login}{place}{query}")
}
