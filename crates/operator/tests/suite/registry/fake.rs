//! An OCI registry in the test's process that can be switched to failures and records its requests.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steersman::llamastack::oci::registry::Registry;
use steersman_runtime::http::{Http, HttpSettings, Reach};
use tokio::task::JoinHandle;

/// Host name of the registry in image references.
pub const HOST: &str = "registry.test";
/// Host name of the token server.
const TOKEN_HOST: &str = "auth.registry.test";
/// Host name of the blob store to which the registry redirects.
const STORE_HOST: &str = "store.test";
pub const TOKEN: &str = "token-of-this-test";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequiredAuth {
    #[default]
    Nothing,
    Password,
    Token,
}

#[derive(Default)]
pub struct RegistryState {
    /// Content type and content by path.
    content: BTreeMap<String, (String, Bytes)>,
    pub requests: Vec<String>,
    /// Whether each of `requests` had an Authorization header.
    pub authorized: Vec<bool>,
    pub required_auth: RequiredAuth,
    pub user: String,
    pub password: String,
    /// URL of the token server.
    pub realm: String,
    /// Status of every response, if set.
    pub error_status: Option<u16>,
    /// Never responds.
    pub hangs: bool,
    /// Redirects requests for blobs to the store.
    pub redirects_blobs: bool,
    /// Host and port of the store.
    pub store: String,
    /// Sends no `docker-content-digest` header.
    pub omits_digests: bool,
}

pub struct FakeRegistry {
    pub address: SocketAddr,
    pub state: Arc<Mutex<RegistryState>>,
    server: JoinHandle<()>,
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A tar archive of files, under exactly these names.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        // The name is written directly, because the library refuses names that lead out of the archive.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

impl FakeRegistry {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, router) = Self::routes();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, state, server }
    }

    /// Starts with TLS, with this certificate and key in PEM.
    #[allow(dead_code, reason = "only the suite hostile uses it")]
    pub async fn start_with_tls(certificate: &str, key: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = RustlsConfig::from_pem(certificate.into(), key.into()).await.unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (state, router) = Self::routes();
        let served = axum_server::from_tcp_rustls(listener, tls).unwrap().serve(router.into_make_service());
        let server = tokio::spawn(async move { served.await.unwrap() });
        Self { address, state, server }
    }

    fn routes() -> (Arc<Mutex<RegistryState>>, Router) {
        let state = Arc::new(Mutex::new(RegistryState {
            realm: format!("https://{TOKEN_HOST}/token"),
            store: STORE_HOST.to_owned(),
            ..RegistryState::default()
        }));
        (state.clone(), Router::new().fallback(respond).with_state(state))
    }

    /// HTTP settings that lead to this registry, its token server and its store.
    pub fn settings(&self) -> HttpSettings {
        let here: http::Uri = format!("http://{}", self.address).parse().unwrap();
        let elsewhere = [HOST, TOKEN_HOST, STORE_HOST].map(|host| (host.to_owned(), here.clone())).into();
        HttpSettings { elsewhere, reach: Reach::UserNamed, ..HttpSettings::default() }
    }

    pub fn registry(&self) -> Registry {
        self.registry_with_timeout(Duration::from_secs(20))
    }

    pub fn registry_with_timeout(&self, limit: Duration) -> Registry {
        Registry::new(Http::new(self.settings()).unwrap(), limit)
    }

    pub fn change(&self, change: impl FnOnce(&mut RegistryState)) {
        change(&mut self.state.lock().unwrap());
    }

    /// The requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        self.change(|state| state.authorized.clear());
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    fn put(&self, path: String, kind: &str, content: impl Into<Bytes>) {
        self.change(|state| drop(state.content.insert(path, (kind.to_owned(), content.into()))));
    }

    pub fn blob(&self, repository: &str, content: Vec<u8>) -> String {
        let digest = digest(&content);
        self.put(format!("/v2/{repository}/blobs/{digest}"), "application/octet-stream", content);
        digest
    }

    pub fn manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let content = manifest.to_string().into_bytes();
        let digest = digest(&content);
        let kind = manifest["mediaType"].as_str().unwrap().to_owned();
        for name in [tag, &digest] {
            self.put(format!("/v2/{repository}/manifests/{name}"), &kind, content.clone());
        }
        digest
    }

    /// Pushes an image and returns its digest.
    pub fn push(&self, repository: &str, tag: &str, labels: Value, layers: &[Vec<u8>]) -> String {
        let contents: Vec<String> = layers.iter().map(|layer| digest(&inflate(layer))).collect();
        let config = json!({ "config": { "Labels": labels }, "rootfs": { "type": "layers", "diff_ids": contents } });
        let config = config.to_string().into_bytes();
        let descriptor = |digest: String, size: usize| json!({ "digest": digest, "size": size });
        let size = config.len();
        let config = descriptor(self.blob(repository, config), size);
        let layers: Vec<Value> =
            layers.iter().map(|layer| descriptor(self.blob(repository, layer.clone()), layer.len())).collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.manifest(repository, tag, &json!({ "mediaType": kind, "config": config, "layers": layers }))
    }

    /// Requires user and password, at the registry or at the token server.
    pub fn require_auth(&self, required_auth: RequiredAuth, user: &str, password: &str) {
        self.change(|state| {
            state.required_auth = required_auth;
            state.user = user.to_owned();
            state.password = password.to_owned();
        });
    }
}

fn inflate(layer: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(layer), &mut content) {
        Ok(_) => content,
        Err(_) => layer.to_vec(),
    }
}

type Reply = Response<Body>;

fn reply(status: u16, body: impl Into<Body>) -> Reply {
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn respond(State(state): State<Arc<Mutex<RegistryState>>>, request: Request) -> Reply {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let whole = request.uri().to_string();
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let hangs = {
        let mut state = state.lock().unwrap();
        state.requests.push(format!("{method} {whole}"));
        state.authorized.push(headers.contains_key(AUTHORIZATION));
        state.hangs
    };
    if hangs {
        std::future::pending::<()>().await;
    }
    let state = state.lock().unwrap();
    match path.as_str() {
        _ if state.error_status.is_some() => reply(state.error_status.unwrap(), "an error page with internals"),
        "/token" => token(&state, &method, &headers, &body),
        path => content(&state, path, &headers),
    }
}

fn has_password(state: &RegistryState, headers: &HeaderMap) -> bool {
    let expected = format!("Basic {}", STANDARD.encode(format!("{}:{}", state.user, state.password)));
    headers.get(AUTHORIZATION).is_some_and(|header| header.to_str().unwrap() == expected)
}

fn token(state: &RegistryState, method: &Method, headers: &HeaderMap, body: &[u8]) -> Reply {
    let form = String::from_utf8(body.to_vec()).unwrap();
    let identity_token_valid = *method == Method::POST
        && form.contains("grant_type=refresh_token")
        && form.contains(&format!("refresh_token={}", state.password));
    if has_password(state, headers) || identity_token_valid {
        reply(200, json!({ "access_token": TOKEN }).to_string())
    } else if headers.contains_key(AUTHORIZATION) || *method == Method::POST {
        reply(401, "")
    } else {
        reply(200, json!({ "token": "anonymous" }).to_string())
    }
}

fn content(state: &RegistryState, path: &str, headers: &HeaderMap) -> Reply {
    let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
    let stored = path.strip_prefix("/stored");
    let (allowed, challenge) = match state.required_auth {
        RequiredAuth::Nothing => (true, String::new()),
        RequiredAuth::Password => (has_password(state, headers), "Basic realm=\"here\"".to_owned()),
        RequiredAuth::Token => (
            authorization == Some(&format!("Bearer {TOKEN}")),
            format!("Bearer realm=\"{}\",service=\"registry, of a test\",scope=\"repository:x:pull\"", state.realm),
        ),
    };
    if !allowed && stored.is_none() {
        let mut refused = reply(401, "");
        refused.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
        return refused;
    }
    if state.redirects_blobs && stored.is_none() && path.contains("/blobs/") {
        let mut redirect = reply(307, "");
        let location = format!("https://{}/stored{path}?signature=SIGNED", state.store);
        redirect.headers_mut().insert(LOCATION, location.parse().unwrap());
        return redirect;
    }
    let Some((kind, content)) = state.content.get(stored.unwrap_or(path)) else { return reply(404, "") };
    let mut found = reply(200, content.clone());
    found.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
    if !state.omits_digests {
        found.headers_mut().insert("docker-content-digest", digest(content).parse().unwrap());
    }
    found
}
