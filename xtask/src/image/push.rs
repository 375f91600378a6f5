//! Uploads an image to a registry. Content that the registry has already is not sent again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use k8s_openapi::ByteString;
use serde::Deserialize;
use steersman::llamastack::oci::registry::auth::Access;
use steersman::llamastack::oci::registry::{RegistryError, Session};
use steersman_plan::oci::{Credentials, ImageReference, Login, TYPE_DOCKERCONFIGJSON};
use steersman_runtime::http::{Http, HttpError, HttpRequest, HttpResponse, HttpSettings};

use super::Image;
use super::layout::MANIFEST_TYPE;
use crate::progress::Progress;

/// Time for one blob, which is sent in one request.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Most bytes of a response of the registry; only errors have a body.
const RESPONSE_LIMIT: usize = 64 * 1024;

/// Most characters of a registry's own message in ours.
const MAX_MESSAGE_LENGTH: usize = 200;

/// Numbers of blobs of an upload.
#[derive(Debug, PartialEq, Eq)]
pub struct Pushed {
    pub uploaded: usize,
    /// Blobs that the registry had.
    pub present: usize,
}

/// Uploads the image under the reference.
pub fn push(image: &Image, to: &ImageReference, plain_http: bool) -> Result<Pushed> {
    let config = DockerConfig::read()?;
    let credentials = config.credentials()?;
    let login = credentials.logins(to).into_iter().next();
    ensure!(
        !plain_http || login.is_none() || is_local(to.host()),
        "{} has credentials for {}, and --plain-http would send them unencrypted; serve the registry over https",
        config.path.display(),
        to.registry
    );
    let http = Http::new(HttpSettings { answer: UPLOAD_TIMEOUT, plain: plain_http, ..HttpSettings::from_env() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let session = Session::new(&http, to, login, Access::PullAndPush);
        let scheme = if plain_http { "http" } else { "https" };
        let mut upload = Upload { http: &http, session, to, scheme, config: &config, login };
        upload.run(image).await
    })
}

/// Whether a host (with port) is this machine.
fn is_local(host: &str) -> bool {
    let Ok(uri) = format!("http://{host}/").parse::<Uri>() else { return false };
    let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The file in which `docker login` stores credentials.
struct DockerConfig {
    path: PathBuf,
    /// `None` if there is no file.
    content: Option<Vec<u8>>,
}

impl DockerConfig {
    fn read() -> Result<Self> {
        let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = folder("DOCKER_CONFIG").or_else(|| folder("HOME").map(|home| home.join(".docker")));
        let path = path.unwrap_or_default().join("config.json");
        match fs::read(&path) {
            Ok(content) => Ok(Self { path, content: Some(content) }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self { path, content: None }),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn credentials(&self) -> Result<Credentials> {
        let mut credentials = Credentials::default();
        if let Some(content) = &self.content {
            // The file has the format of a pull secret.
            let data = BTreeMap::from([(".dockerconfigjson".to_owned(), ByteString(content.clone()))]);
            credentials.add("", TYPE_DOCKERCONFIGJSON, &data).map_err(|_| {
                anyhow!(
                    "{} is not a configuration of Docker with valid `auths`; run `docker login` again, or set DOCKER_CONFIG to \
                     another folder",
                    self.path.display()
                )
            })?;
        }
        Ok(credentials)
    }
}

struct Upload<'a> {
    http: &'a Http,
    session: Session<'a>,
    to: &'a ImageReference,
    scheme: &'static str,
    config: &'a DockerConfig,
    login: Option<&'a Login>,
}

impl Upload<'_> {
    async fn run(&mut self, image: &Image) -> Result<Pushed> {
        let mut progress = Progress::start(&format!("pushing {}", self.to));
        let mut pushed = Pushed { uploaded: 0, present: 0 };
        for layer in &image.layers {
            progress.update(&layer.digest);
            let read = || fs::read(&layer.path).with_context(|| format!("cannot read {}", layer.path.display()));
            self.blob(&layer.digest, read, &mut pushed).await?;
        }
        self.blob(&image.config.digest, || Ok(image.config.bytes.clone()), &mut pushed).await?;
        self.manifest(image).await?;
        progress.done();
        Ok(pushed)
    }

    async fn blob(&mut self, digest: &str, read: impl Fn() -> Result<Vec<u8>>, pushed: &mut Pushed) -> Result<()> {
        let found = self.send(Method::HEAD, &format!("blobs/{digest}"), HeaderMap::new(), Bytes::new()).await?;
        if found.status.is_success() {
            pushed.present += 1;
            return Ok(());
        }
        if found.status != StatusCode::NOT_FOUND {
            return Err(self.unexpected("the question whether it has a blob", &found));
        }
        let started = self.send(Method::POST, "blobs/uploads/", HeaderMap::new(), Bytes::new()).await?;
        if started.status != StatusCode::ACCEPTED {
            return Err(self.unexpected("the start of an upload", &started));
        }
        let url = self.upload_url(&started.headers, digest)?;
        let ended = self.put(url, "application/octet-stream", Bytes::from(read()?)).await?;
        if ended.status != StatusCode::CREATED {
            return Err(self.unexpected("the upload of a blob", &ended));
        }
        pushed.uploaded += 1;
        Ok(())
    }

    async fn manifest(&mut self, image: &Image) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        let path = format!("manifests/{}", self.to.version());
        let answer = self.send(Method::PUT, &path, headers, Bytes::from(image.manifest.bytes.clone())).await?;
        if answer.status != StatusCode::CREATED {
            return Err(self.unexpected("the manifest", &answer));
        }
        let stored = answer.headers.get("docker-content-digest").and_then(|digest| digest.to_str().ok());
        if let Some(stored) = stored.filter(|stored| *stored != image.digest()) {
            bail!("registry {} stored the image as {stored}, not as {}", self.to.registry, image.digest());
        }
        Ok(())
    }

    /// Sends a request about the repository.
    async fn send(&mut self, method: Method, path: &str, headers: HeaderMap, body: Bytes) -> Result<HttpResponse> {
        let url = format!("{}://{}/v2/{}/{path}", self.scheme, self.to.host(), self.to.repository);
        let url: Uri = url.parse().with_context(|| format!("{url} is not a URL"))?;
        let request = HttpRequest { method, headers, body, ..HttpRequest::get(url, RESPONSE_LIMIT) };
        self.session.request(&request).await.map_err(|error| self.explain(error))
    }

    async fn put(&mut self, url: Uri, content_type: &'static str, body: Bytes) -> Result<HttpResponse> {
        let own = url.authority().is_some_and(|authority| authority.as_str() == self.to.host());
        let mut request = HttpRequest { method: Method::PUT, body, ..HttpRequest::get(url, RESPONSE_LIMIT) };
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let sent = if own {
            self.session.request(&request).await
        } else {
            // Another host, such as an object store, has its permission in the URL and must not get the credentials.
            let unreached = |cause| RegistryError::Reach { registry: self.to.registry.clone(), cause };
            self.http.send(request).await.map_err(unreached)
        };
        sent.map_err(|error| self.explain(error))
    }

    /// The URL for the content of an upload, which the registry chose.
    fn upload_url(&self, headers: &HeaderMap, digest: &str) -> Result<Uri> {
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.and_then(|location| location.parse::<Uri>().ok());
        let invalid = || format!("registry {} gave no valid location for an upload", self.to.registry);
        let location = location.with_context(invalid)?;
        let path = location.path_and_query().with_context(invalid)?.as_str();
        let joint = if path.contains('?') { '&' } else { '?' };
        let host = location.authority().map_or(self.to.host(), |authority| authority.as_str());
        // A registry behind a proxy may not know that it is reached by https.
        let scheme = match location.scheme_str() {
            Some(scheme) if host != self.to.host() => scheme,
            _ => self.scheme,
        };
        format!("{scheme}://{host}{path}{joint}digest={digest}").parse().with_context(invalid)
    }

    fn unexpected(&self, what: &str, response: &HttpResponse) -> anyhow::Error {
        let message = registry_message(&response.body).map(|message| format!(": {message}")).unwrap_or_default();
        anyhow!("registry {} answered HTTP {} to {what}{message}", self.to.registry, response.status.as_u16())
    }

    /// The error in the words of a user who pushes; those of the operator are about pull secrets.
    fn explain(&self, error: RegistryError) -> anyhow::Error {
        let (registry, config) = (&self.to.registry, self.config.path.display());
        match error {
            RegistryError::NoCredentials { repository, code, .. } => anyhow!(
                "registry {registry} requires credentials for {repository} (HTTP {code}), and {config} has none for it; run \
                 `docker login {registry}`, or add an entry to `auths` there (credential helpers are not used)"
            ),
            RegistryError::Denied { repository, code, .. } => anyhow!(
                "registry {registry} rejects the credentials in {config} for {repository} (HTTP {code}); check that they may push \
                 there, and run `docker login {registry}` again"
            ),
            RegistryError::Challenge { why, .. } => anyhow!(
                "registry {registry} requires an authentication that this command does not support ({why}); push the archive with \
                 another client"
            ),
            RegistryError::Reach { cause: HttpError::NotHttps { host }, .. } => {
                anyhow!("registry {registry} refers to plain http at {host}; fix its external URL, or use --plain-http")
            }
            RegistryError::Reach { cause: HttpError::NotTrusted { host, cause }, .. } => anyhow!(
                "the certificate of {host} is not trusted ({cause}); set the environment variable SSL_CERT_FILE to a file with its CA"
            ),
            RegistryError::Reach { cause: HttpError::Failed { host, cause }, .. } if self.scheme == "https" => {
                anyhow!("the request to {host} failed: {cause}; if the registry serves no https, add --plain-http")
            }
            other => {
                let user = if self.login.is_some() { " (with credentials)" } else { "" };
                anyhow!("cannot push to {}{user}: {other}", self.to)
            }
        }
    }
}

/// Code and message of the first error in a response.
fn registry_message(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        errors: Vec<Reported>,
    }
    #[derive(Deserialize)]
    struct Reported {
        code: String,
        #[serde(default)]
        message: String,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let first = body.errors.into_iter().next()?;
    let text = format!("{} {}", first.code, first.message);
    Some(text.chars().filter(|one| !one.is_control()).take(MAX_MESSAGE_LENGTH).collect::<String>().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layer::digest_of;

    #[test]
    fn only_loopback_hosts_are_local() {
        for (host, local) in [
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.9.9.9", true),
            ("[::1]:5000", true),
            ("registry:5000", false),
            ("10.0.0.1", false),
            ("localhost.example.com", false),
        ] {
            assert_eq!(is_local(host), local, "{host}");
        }
    }

    #[test]
    fn registry_message_is_short_and_plain() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no\nway"},{"code":"OTHER"}]}"#;
        assert_eq!(registry_message(body).as_deref(), Some("DENIED noway"));
        assert_eq!(registry_message(b"<html>"), None);
        let long = format!(r#"{{"errors":[{{"code":"X","message":"{}"}}]}}"#, "y".repeat(5000));
        assert_eq!(registry_message(long.as_bytes()).unwrap().len(), MAX_MESSAGE_LENGTH);
    }

    fn upload_url(location: &str, plain: bool) -> Result<String> {
        let to = ImageReference::parse("registry.example/team/app:1").unwrap();
        let http = Http::new(HttpSettings::default()).unwrap();
        let config = DockerConfig { path: PathBuf::new(), content: None };
        let session = Session::new(&http, &to, None, Access::PullAndPush);
        let scheme = if plain { "http" } else { "https" };
        let upload = Upload { http: &http, session, to: &to, scheme, config: &config, login: None };
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, location.parse().unwrap());
        upload.upload_url(&headers, &digest_of(b"")).map(|url| url.to_string())
    }

    #[test]
    fn upload_url_keeps_scheme_of_registry() {
        let digest = digest_of(b"");
        for (location, plain, expected) in [
            (
                "/v2/team/app/blobs/uploads/1?_state=a",
                false,
                "https://registry.example/v2/team/app/blobs/uploads/1?_state=a&",
            ),
            ("/v2/team/app/blobs/uploads/1", true, "http://registry.example/v2/team/app/blobs/uploads/1?"),
            ("http://registry.example/v2/x", false, "https://registry.example/v2/x?"),
            ("https://store.example/x?sig=1", false, "https://store.example/x?sig=1&"),
        ] {
            assert_eq!(upload_url(location, plain).unwrap(), format!("{expected}digest={digest}"), "{location}");
        }
    }
}
