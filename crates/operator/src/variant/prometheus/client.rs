//! Builds the HTTP client and headers for one Prometheus. Files are read again for every reconcile, because all of them
//! are rotated.

use std::fs;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::Serializer;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use steersman_plan::variant::config::prometheus::{CaCertificates, PrometheusConfig as Settings};
use steersman_runtime::http::{Http, HttpSettings, Identity, Trust};

/// Upstream's timeout of a query.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Connection {
    pub settings: Settings,
    url: Uri,
    login: Option<Login>,
    server_name: Option<ServerName<'static>>,
    /// The client, and the files that it was built from.
    client: Mutex<Option<(Files, Http)>>,
}

struct Login {
    header: HeaderValue,
    /// The forms in which a server may repeat it.
    secrets: Vec<String>,
}

/// Connection and headers for the queries of one reconcile.
pub struct QuerySession {
    pub http: Http,
    pub url: Uri,
    pub headers: HeaderMap,
    /// Removed from all messages of the server.
    pub secrets: Vec<String>,
    /// Source of the token, for messages.
    pub token_from: Option<String>,
    /// Evaluation time by Prometheus' clock. `None` for the current time.
    pub at: Option<f64>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Files {
    ca: Option<Vec<u8>>,
    /// Certificate and key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Connection {
    /// Fails if the settings can never work.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let (url, login) = address(&settings.base_url)?;
        let name = |name: &String| {
            let parsed = ServerName::try_from(name.clone());
            parsed.map_err(|_| format!("PROMETHEUS_SERVER_NAME {name:?} is neither a host name nor an IP address"))
        };
        let server_name = settings.server_name.as_ref().map(name).transpose()?;
        Ok(Self { settings: settings.clone(), url, login, server_name, client: Mutex::default() })
    }

    pub fn session(&self) -> Result<QuerySession, String> {
        let http = self.http_client(self.files()?)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let (token, mut secrets) = (self.token()?, Vec::new());
        if let Some((token, from)) = &token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| format!("the token from {from} has invalid characters; replace the token"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            secrets.push(token.clone());
        } else if let Some(login) = &self.login {
            headers.insert(AUTHORIZATION, login.header.clone());
            secrets.clone_from(&login.secrets);
        }
        let token_from = token.map(|(_, from)| from);
        Ok(QuerySession { http, url: self.url.clone(), headers, secrets, token_from, at: None })
    }

    /// The token and its source.
    fn token(&self) -> Result<Option<(String, String)>, String> {
        // A token is often stored with the prefix of the header.
        let bare = |text: &str| text.trim().strip_prefix("Bearer ").unwrap_or(text.trim()).trim().to_owned();
        if let Some(token) = &self.settings.bearer_token {
            return Ok(Some((bare(token.reveal()), "PROMETHEUS_BEARER_TOKEN".to_owned())));
        }
        let Some(path) = &self.settings.token_path else { return Ok(None) };
        let text =
            fs::read_to_string(path).map_err(|error| format!("failed to read bearer token from {path}: {error}"))?;
        Ok(Some((bare(&text), format!("PROMETHEUS_TOKEN_PATH {path}"))))
    }

    fn files(&self) -> Result<Files, String> {
        let read = |path: &str, what: &str| {
            fs::read(path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => format!("{what} file not found: {path}"),
                _ => format!("failed to read {what} from {path}: {error}"),
            })
        };
        // Without verification no CA is needed.
        let ca = self.settings.ca.as_ref().filter(|_| !self.settings.insecure_skip_verify);
        let ca = ca.map(|ca| match ca {
            CaCertificates::Pem(text) => Ok(text.as_bytes().to_vec()),
            CaCertificates::File(path) => read(path, "CA certificate"),
        });
        let identity = self.settings.client_cert_path.as_ref();
        Ok(Files {
            ca: ca.transpose()?,
            identity: identity
                .map(|(chain, key)| Ok::<_, String>((read(chain, "client certificate")?, read(key, "client key")?)))
                .transpose()?,
        })
    }

    fn http_client(&self, files: Files) -> Result<Http, String> {
        let mut cached = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, http)) = cached.as_ref().filter(|(of, _)| *of == files) {
            return Ok(http.clone());
        }
        let http = self.build_client(&files)?;
        *cached = Some((files, http.clone()));
        Ok(http)
    }

    fn build_client(&self, files: &Files) -> Result<Http, String> {
        let mut settings = HttpSettings {
            connect: CONNECT_TIMEOUT,
            answer: RESPONSE_TIMEOUT,
            // Plain HTTP was already rejected with the settings if it is not allowed.
            plain: self.url.scheme() == Some(&Scheme::HTTP),
            server_name: self.server_name.clone(),
            ..HttpSettings::from_env()
        };
        if let (Some(pem), Some(ca)) = (&files.ca, &self.settings.ca) {
            let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            settings.roots = parsed.ok().filter(|roots| !roots.is_empty()).ok_or_else(|| invalid_ca(ca))?;
            settings.trust = Trust::RootsAlone;
        }
        if self.settings.insecure_skip_verify {
            settings.trust = Trust::Anyone;
        }
        if let (Some((chain, key)), Some(paths)) = (&files.identity, &self.settings.client_cert_path) {
            settings.identity =
                Some(Arc::new(identity(chain, key).map_err(|why| invalid_client_certificate(paths, &why))?));
        }
        Http::new(settings).map_err(|error| match (&self.settings.client_cert_path, &self.settings.ca) {
            (_, Some(ca)) if files.ca.is_some() && files.identity.is_none() => invalid_ca(ca),
            (Some(paths), _) => invalid_client_certificate(paths, &error.to_string()),
            _ => format!("cannot build the HTTP client: {error}"),
        })
    }
}

fn invalid_ca(ca: &CaCertificates) -> String {
    let source = match ca {
        CaCertificates::Pem(_) => "PROMETHEUS_CA_CERT",
        CaCertificates::File(path) => path,
    };
    format!("failed to parse CA certificate from {source}")
}

fn invalid_client_certificate((certificate, key): &(String, String), why: &str) -> String {
    format!("failed to load client certificate from {certificate} and key from {key}: {why}")
}

fn identity(chain: &[u8], key: &[u8]) -> Result<Identity, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or("the certificate file has no PEM certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the key file has no PEM private key")?;
    Ok(Identity { chain, key })
}

/// The URL of queries, and the login in the address.
fn address(base: &str) -> Result<(Uri, Option<Login>), String> {
    // The address is not shown, because it may hold a password.
    let bad = || "PROMETHEUS_BASE_URL is not an address such as https://prometheus.monitoring.svc:9090".to_owned();
    let url: Uri = base.parse().map_err(|_| bad())?;
    let mut parts = url.into_parts();
    let authority = parts.authority.take().filter(|_| parts.scheme.is_some()).ok_or_else(bad)?;
    let (login, host) = match authority.as_str().rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority.as_str()),
    };
    parts.authority = Some(host.parse().map_err(|_| bad())?);
    let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path).trim_end_matches('/');
    parts.path_and_query = Some(format!("{path}/api/v1/query").parse().map_err(|_| bad())?);
    let login = login.map(|login| basic(login).ok_or_else(bad)).transpose()?;
    Ok((Uri::from_parts(parts).map_err(|_| bad())?, login))
}

/// `login` is `user:password` in URL encoding.
fn basic(login: &str) -> Option<Login> {
    // Percent encoding is decoded. A plus sign is literal here, unlike in a form.
    let plain = format!("={}", login.replace('+', "%2B"));
    let (_, plain) = form_urlencoded::parse(plain.as_bytes()).next()?;
    let encoded = STANDARD.encode(plain.as_bytes());
    let mut header = HeaderValue::from_str(&format!("Basic {encoded}")).ok()?;
    header.set_sensitive(true);
    let password = |login: &str| login.split_once(':').map(|(_, password)| password.to_owned());
    Some(Login { header, secrets: [Some(encoded), password(&plain), password(login)].into_iter().flatten().collect() })
}

pub fn form(query: &str, at: Option<f64>) -> String {
    let at = at.map(|at| ("time", at.to_string()));
    Serializer::new(String::new()).append_pair("query", query).extend_pairs(at).finish()
}

#[cfg(test)]
mod tests {
    use steersman_plan::variant::config::prometheus::is_server_name;

    use super::*;

    #[test]
    fn queries_extend_the_base_path() {
        for (base, expected) in [
            ("https://prom:9090", "https://prom:9090/api/v1/query"),
            ("https://prom:9090/", "https://prom:9090/api/v1/query"),
            ("https://mimir/prometheus/?x=1", "https://mimir/prometheus/api/v1/query"),
            ("http://[::1]:9090", "http://[::1]:9090/api/v1/query"),
        ] {
            let (url, login) = address(base).unwrap();
            assert_eq!((url, login.is_none()), (expected.parse().unwrap(), true), "{base}");
        }
        let (url, login) = address("https://us%40er:pa+ss@prom/").unwrap();
        assert_eq!(url, "https://prom/api/v1/query");
        let login = login.unwrap();
        let decoded = STANDARD.decode(login.header.to_str().unwrap().trim_start_matches("Basic ")).unwrap();
        assert_eq!(decoded, b"us@er:pa+ss");
    }

    #[test]
    fn all_forms_of_a_login_are_redacted() {
        for (login, expected) in [
            ("user:p%40ss", vec!["dXNlcjpwQHNz", "p@ss", "p%40ss"]),
            ("user", vec!["dXNlcg=="]),
            ("user:", vec!["dXNlcjo=", "", ""]),
        ] {
            assert_eq!(basic(login).unwrap().secrets, expected, "{login}");
        }
    }

    #[test]
    fn invalid_address_is_not_quoted() {
        for base in ["https://us er:secret@prom", "prom:9090", "", "/prometheus", "https://"] {
            let error = address(base).err().unwrap();
            assert!(error.starts_with("PROMETHEUS_BASE_URL is not an address") && !error.contains("secret"), "{error}");
        }
    }

    /// Settings that pass validation must not fail here, where no last valid value is kept.
    #[test]
    fn server_name_validation_agrees_with_rustls() {
        let long = ["a"; 127].join(".");
        let label = "a".repeat(63);
        for name in [
            "",
            ".",
            "a",
            "a.",
            "a..b",
            "-a",
            "a-",
            "a--b",
            "a_b",
            "_a.b",
            "1",
            "1a",
            "a.1",
            "a.1.",
            "1.a",
            "10.0.0.1",
            "::1",
            "[::1]",
            "fe80::1%eth0",
            "a:9090",
            "https://a",
            "*.a",
            "a b",
            "\u{e4}",
            &label,
            &format!("{label}a"),
            &long,
            &format!("{long}.a"),
            "256.1.1.1",
            "0x1.0",
        ] {
            assert_eq!(is_server_name(name), ServerName::try_from(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn missing_or_invalid_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("words"), "no certificate").unwrap();
        let base = Settings { base_url: "https://prom".to_owned(), ..Settings::default() };
        let (gone, words) = (path("gone"), path("words"));
        let cases = [
            (
                Settings { ca: Some(CaCertificates::File(gone.clone())), ..base.clone() },
                format!("CA certificate file not found: {gone}"),
            ),
            (
                Settings { ca: Some(CaCertificates::File(words.clone())), ..base.clone() },
                format!("failed to parse CA certificate from {words}"),
            ),
            (
                Settings { client_cert_path: Some((gone.clone(), words.clone())), ..base.clone() },
                format!("client certificate file not found: {gone}"),
            ),
            (
                Settings { client_cert_path: Some((words.clone(), gone.clone())), ..base.clone() },
                format!("client key file not found: {gone}"),
            ),
            (
                Settings { client_cert_path: Some((words.clone(), words.clone())), ..base.clone() },
                format!(
                    "failed to load client certificate from {words} and key from {words}: the certificate file has \
                     no PEM certificate"
                ),
            ),
            (
                Settings { token_path: Some(gone.clone()), ..base.clone() },
                format!("failed to read bearer token from {gone}: No such file or directory (os error 2)"),
            ),
        ];
        for (settings, expected) in cases {
            assert_eq!(Connection::new(&settings).unwrap().session().err(), Some(expected));
        }
        let unverified = Settings { ca: Some(CaCertificates::File(gone)), insecure_skip_verify: true, ..base };
        assert!(Connection::new(&unverified).unwrap().session().is_ok());
    }

    #[test]
    fn token_file_is_reread_and_prefixed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token").display().to_string();
        let settings =
            Settings { base_url: "https://prom".to_owned(), token_path: Some(path.clone()), ..Settings::default() };
        let connection = Connection::new(&settings).unwrap();
        for (content, expected) in [("one\n", "Bearer one"), ("Bearer two", "Bearer two")] {
            fs::write(&path, content).unwrap();
            assert_eq!(connection.session().unwrap().headers[AUTHORIZATION], expected);
        }
        fs::write(&path, "th\nree").unwrap();
        let error = connection.session().err().unwrap();
        assert!(error.contains("PROMETHEUS_TOKEN_PATH") && !error.contains("ree"), "{error}");
    }
}
