//! How Prometheus is reached: environment or main ConfigMap, keys `PROMETHEUS_*`.
//! Comes in: both; goes out: the address and the credentials' places, or the words for what is missing.

use std::collections::BTreeMap;
use std::fmt;

pub const BASE_URL: &str = "PROMETHEUS_BASE_URL";

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Prometheus {
    pub base_url: String,
    pub insecure_skip_verify: bool,
    pub ca_cert_path: Option<String>,
    /// Certificate and key; one alone is of no use.
    pub client_cert_path: Option<(String, String)>,
    pub server_name: Option<String>,
    pub bearer_token: Option<Token>,
    /// Asked only where there is no token; read again and again, as tokens are rotated.
    pub token_path: Option<String>,
}

/// The address without its password; paths are no secrets, a token is mute by itself.
impl fmt::Debug for Prometheus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Prometheus")
            .field("base_url", &without_password(&self.base_url))
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("ca_cert_path", &self.ca_cert_path)
            .field("client_cert_path", &self.client_cert_path)
            .field("server_name", &self.server_name)
            .field("bearer_token", &self.bearer_token)
            .field("token_path", &self.token_path)
            .finish()
    }
}

/// Neither shown nor written anywhere.
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

/// Whether an address is set at all.
pub fn is_given(environment: &BTreeMap<String, String>, map: &BTreeMap<String, String>) -> bool {
    [environment, map].into_iter().any(has_address)
}

fn has_address(source: &BTreeMap<String, String>) -> bool {
    source.get(BASE_URL).is_some_and(|url| !url.trim().is_empty())
}

/// Where the environment has an address, all comes from it; otherwise all from the map.
pub fn read(
    environment: &BTreeMap<String, String>,
    map: &BTreeMap<String, String>,
    allow_http: bool,
) -> Result<Prometheus, String> {
    let source = [environment, map].into_iter().find(|source| has_address(source)).ok_or_else(|| {
        "no Prometheus configuration found. Please set PROMETHEUS_BASE_URL environment variable or configure via ConfigMap"
            .to_owned()
    })?;
    let get = |key: &str| source.get(key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let base_url = get(BASE_URL).unwrap_or_default();
    let lower = base_url.to_ascii_lowercase();
    if !(lower.starts_with("https://") || (allow_http && lower.starts_with("http://"))) {
        return Err(format!("HTTPS is required - URL must use https:// scheme: {}", without_password(&base_url)));
    }
    if !has_host(&base_url) {
        // It may hold a password somewhere: it is not told.
        return Err("it is not an address such as https://prometheus.monitoring.svc:9090".to_owned());
    }
    let pair = (get("PROMETHEUS_CLIENT_CERT_PATH"), get("PROMETHEUS_CLIENT_KEY_PATH"));
    let client_cert_path = match pair {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err("PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH must be set together".to_owned()),
    };
    Ok(Prometheus {
        insecure_skip_verify: get("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY").as_deref() == Some("true"),
        ca_cert_path: get("PROMETHEUS_CA_CERT_PATH"),
        client_cert_path,
        server_name: get("PROMETHEUS_SERVER_NAME"),
        bearer_token: get("PROMETHEUS_BEARER_TOKEN").map(Token),
        token_path: get("PROMETHEUS_TOKEN_PATH"),
        base_url,
    })
}

/// Whoever reads addresses for good sees more; this much must be right for one to take the place of a good one.
fn has_host(url: &str) -> bool {
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let written = url.chars().all(|c| c.is_ascii_graphic());
    written && !host.is_empty() && host.chars().all(plain) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// `user:password@` in an address is a secret too.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => url.to_owned(),
    }
}
