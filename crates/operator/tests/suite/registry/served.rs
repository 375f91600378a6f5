//! A registry in the test's own process.
//! Comes in: images and faults; goes out: answers as the distribution protocol has them, and a list of what was asked.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
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
use steersman_runtime::http::{Http, HttpSettings};
use tokio::task::JoinHandle;

/// The name under which the registry is asked.
pub const HOST: &str = "registry.test";
/// Gives out tokens.
const TOKENS: &str = "auth.test";
/// Stores the blobs, where the registry sends its callers on.
const STORE: &str = "store.test";
pub const TOKEN: &str = "token-of-this-test";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wants {
    #[default]
    Nothing,
    Password,
    Token,
}

#[derive(Default)]
pub struct Inside {
    /// By path: content type and content.
    content: BTreeMap<String, (String, Bytes)>,
    pub requests: Vec<String>,
    /// Whether each request for content carried an authorization, in the order of `requests`.
    pub authorized: Vec<bool>,
    pub wants: Wants,
    pub user: String,
    pub password: String,
    /// Where tokens are to be had.
    pub realm: String,
    /// Answers every request so.
    pub fails: Option<u16>,
    /// Answers nothing any more.
    pub hangs: bool,
    /// Blobs are elsewhere.
    pub sends_on: bool,
    /// Does not name digests in headers.
    pub mute: bool,
}

pub struct Served {
    pub address: SocketAddr,
    pub inside: Arc<Mutex<Inside>>,
    server: JoinHandle<()>,
}

impl Drop for Served {
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
        // Written by hand: the library refuses names that lead out of the archive, and they are what is tested.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

impl Served {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::new(Mutex::new(Inside { realm: format!("https://{TOKENS}/token"), ..Inside::default() }));
        let router = Router::new().fallback(answer).with_state(inside.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, inside, server }
    }

    /// A way to this registry, to its place for tokens and to its store.
    pub fn settings(&self) -> HttpSettings {
        let here: http::Uri = format!("http://{}", self.address).parse().unwrap();
        let elsewhere = [HOST, TOKENS, STORE].map(|host| (host.to_owned(), here.clone())).into();
        HttpSettings { elsewhere, ..HttpSettings::default() }
    }

    pub fn registry(&self) -> Registry {
        self.registry_within(Duration::from_secs(20))
    }

    pub fn registry_within(&self, limit: Duration) -> Registry {
        Registry::new(Http::new(self.settings()).unwrap(), limit)
    }

    pub fn change(&self, change: impl FnOnce(&mut Inside)) {
        change(&mut self.inside.lock().unwrap());
    }

    /// What was asked since the last time.
    pub fn asked(&self) -> Vec<String> {
        self.change(|inside| inside.authorized.clear());
        std::mem::take(&mut self.inside.lock().unwrap().requests)
    }

    fn put(&self, path: String, kind: &str, content: impl Into<Bytes>) {
        self.change(|inside| drop(inside.content.insert(path, (kind.to_owned(), content.into()))));
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

    /// Pushes an image and gives its digest.
    pub fn push(&self, repository: &str, tag: &str, labels: Value, layers: &[Vec<u8>]) -> String {
        let contents: Vec<String> = layers.iter().map(|layer| digest(&inflated(layer))).collect();
        let config = json!({ "config": { "Labels": labels }, "rootfs": { "type": "layers", "diff_ids": contents } });
        let config = config.to_string().into_bytes();
        let described = |digest: String, size: usize| json!({ "digest": digest, "size": size });
        let size = config.len();
        let config = described(self.blob(repository, config), size);
        let layers: Vec<Value> =
            layers.iter().map(|layer| described(self.blob(repository, layer.clone()), layer.len())).collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        self.manifest(repository, tag, &json!({ "mediaType": kind, "config": config, "layers": layers }))
    }

    /// Asks for user and password, by itself or for a token.
    pub fn guard(&self, wants: Wants, user: &str, password: &str) {
        self.change(|inside| {
            inside.wants = wants;
            inside.user = user.to_owned();
            inside.password = password.to_owned();
        });
    }
}

fn inflated(layer: &[u8]) -> Vec<u8> {
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

async fn answer(State(inside): State<Arc<Mutex<Inside>>>, request: Request) -> Reply {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let whole = request.uri().to_string();
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let hangs = {
        let mut inside = inside.lock().unwrap();
        inside.requests.push(format!("{method} {whole}"));
        inside.authorized.push(headers.contains_key(AUTHORIZATION));
        inside.hangs
    };
    if hangs {
        std::future::pending::<()>().await;
    }
    let inside = inside.lock().unwrap();
    match path.as_str() {
        _ if inside.fails.is_some() => reply(inside.fails.unwrap(), "an error page with internals"),
        "/token" => token(&inside, &method, &headers, &body),
        path => content(&inside, path, &headers),
    }
}

fn knows(inside: &Inside, headers: &HeaderMap) -> bool {
    let expected = format!("Basic {}", STANDARD.encode(format!("{}:{}", inside.user, inside.password)));
    headers.get(AUTHORIZATION).is_some_and(|given| given.to_str().unwrap() == expected)
}

fn token(inside: &Inside, method: &Method, headers: &HeaderMap, body: &[u8]) -> Reply {
    let form = String::from_utf8(body.to_vec()).unwrap();
    let by_identity = *method == Method::POST
        && form.contains("grant_type=refresh_token")
        && form.contains(&format!("refresh_token={}", inside.password));
    if knows(inside, headers) || by_identity {
        reply(200, json!({ "access_token": TOKEN }).to_string())
    } else if headers.contains_key(AUTHORIZATION) || *method == Method::POST {
        reply(401, "")
    } else {
        reply(200, json!({ "token": "anonymous" }).to_string())
    }
}

fn content(inside: &Inside, path: &str, headers: &HeaderMap) -> Reply {
    let shown = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
    let stored = path.strip_prefix("/stored");
    let (allowed, challenge) = match inside.wants {
        Wants::Nothing => (true, String::new()),
        Wants::Password => (knows(inside, headers), "Basic realm=\"here\"".to_owned()),
        Wants::Token => (
            shown == Some(&format!("Bearer {TOKEN}")),
            format!("Bearer realm=\"{}\",service=\"registry, of a test\",scope=\"repository:x:pull\"", inside.realm),
        ),
    };
    if !allowed && stored.is_none() {
        let mut refused = reply(401, "");
        refused.headers_mut().insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
        return refused;
    }
    if inside.sends_on && stored.is_none() && path.contains("/blobs/") {
        let mut sent_on = reply(307, "");
        let there = format!("https://{STORE}/stored{path}?signature=SIGNED");
        sent_on.headers_mut().insert(LOCATION, there.parse().unwrap());
        return sent_on;
    }
    let Some((kind, content)) = inside.content.get(stored.unwrap_or(path)) else { return reply(404, "") };
    let mut found = reply(200, content.clone());
    found.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
    if !inside.mute {
        found.headers_mut().insert("docker-content-digest", digest(content).parse().unwrap());
    }
    found
}
