//! Protection against hostile or broken registries: timeouts, size limits, digests, TLS and redirects.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::json;
use steersman::llamastack::oci::registry::{INFLATED_LIMIT, LAYER_LIMIT, MANIFEST_LIMIT, Registry};
use steersman_plan::llamastack::config::base::LABEL_TEXT_LIMIT;
use steersman_plan::oci::Credentials;
use steersman_runtime::http::{Http, HttpRequest, HttpSettings};
use steersman_testkit::ports::ReservedPort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fake::{FakeRegistry, HOST, digest, gzip, tar};
use super::in_label;

async fn read_error(served: &FakeRegistry, tag: &str) -> String {
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:{tag}"), &Credentials::default()).await;
    labelled.unwrap_err().to_string()
}

#[tokio::test]
async fn oversized_label_is_refused() {
    let served = FakeRegistry::start().await;
    let labels = json!({ "io.llamastack.config.base64": STANDARD.encode(vec![b'#'; LABEL_TEXT_LIMIT + 1]) });
    served.push("a/b", "label", labels, &[]);
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:label"), &Credentials::default()).await.unwrap();
    let error = labelled.base.unwrap_err().to_string();
    assert!(error.contains("holds more than 51200 bytes of configuration; put the file into a layer"), "{error}");

    served.push("a/b", "all", json!({ "long": "x".repeat(MANIFEST_LIMIT) }), &[]);
    let error = read_error(&served, "all").await;
    assert_eq!(error, "registry registry.test: the response of registry.test is longer than 4194304 bytes");
}

#[tokio::test]
async fn oversized_layer_is_not_fetched() {
    let served = FakeRegistry::start().await;
    let layer = vec![0; LAYER_LIMIT + 1];
    let labels = json!({ "io.llamastack.config.layer": digest(&layer), "io.llamastack.config.path": "config.yaml" });
    served.push("a/b", "1", labels, &[layer]);
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap();
    let error = labelled.base.unwrap_err().to_string();
    let expected = "the layer has 16777217 bytes, more than the 16777216 allowed; give config.yaml a layer of its own";
    assert!(error.ends_with(expected), "{error}");
    assert_eq!(served.take_requests().iter().filter(|request| request.contains("/blobs/")).count(), 1);
}

#[tokio::test]
async fn layer_with_false_length_is_cut_off() {
    let served = FakeRegistry::start().await;
    let layer = served.blob("a/b", vec![7; LAYER_LIMIT + 1]);
    let labels = json!({ "io.llamastack.config.layer": layer, "io.llamastack.config.path": "config.yaml" });
    let config = served.blob("a/b", json!({ "config": { "Labels": labels } }).to_string().into_bytes());
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    let layers = json!([{ "digest": layer, "size": 10 }]);
    served.manifest("a/b", "1", &json!({ "mediaType": kind, "config": { "digest": config }, "layers": layers }));
    let error = read_error(&served, "1").await;
    assert_eq!(error, "registry registry.test: the response of registry.test is longer than 16777216 bytes");
}

#[tokio::test]
async fn decompression_bomb_is_refused() {
    let served = FakeRegistry::start().await;
    let mut header = tar::Header::new_gnu();
    header.set_path("big").unwrap();
    header.set_size(INFLATED_LIMIT * 2);
    header.set_cksum();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..=INFLATED_LIMIT >> 20).for_each(|_| encoder.write_all(&zeros).unwrap());
    let layer = encoder.finish().unwrap();
    assert!(layer.len() < 1 << 20);
    let labels = json!({ "io.llamastack.config.layer": digest(&layer), "io.llamastack.config.path": "config.yaml" });
    // The label names the compressed digest, so the registry need not know the uncompressed one.
    served.push("a/b", "1", labels, &[layer]);
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap();
    let error = labelled.base.unwrap_err().to_string();
    assert!(error.contains("the layer inflates to more than 64 MiB before the file is found"), "{error}");
}

#[tokio::test]
async fn content_with_wrong_digest_is_refused() {
    let served = FakeRegistry::start().await;
    let good = served.push("a/b", "1", in_label("x"), &[]);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    // The registry returns another manifest for the digest of the pushed one.
    served.manifest("a/b", &good, &json!({ "mediaType": kind, "config": { "digest": digest(b"x") } }));
    let image = format!("{HOST}/a/b@{good}");
    let error = served.registry().labelled(&image, &Credentials::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "registry registry.test sent a manifest that cannot be used: its content does not match its digest"
    );
    // This digest would lead to another path of the registry.
    served.manifest("a/b", "2", &json!({ "mediaType": kind, "config": { "digest": "../../../token" } }));
    assert!(read_error(&served, "2").await.contains("its digest is not like sha256:<64 hex digits>"));
    served.manifest("a/b", "3", &json!({ "mediaType": kind }));
    assert!(
        read_error(&served, "3").await.ends_with("sent a manifest that cannot be used: it does not describe an image")
    );
}

#[tokio::test]
async fn hanging_registry_times_out() {
    let served = FakeRegistry::start().await;
    served.change(|state| state.hangs = true);
    let image = format!("{HOST}/a/b:1");
    let limit = Duration::from_millis(50);
    let error = served.registry_with_timeout(limit).labelled(&image, &Credentials::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "registry registry.test did not return the labels of the image within 50ms");
    let http = Http::new(HttpSettings { answer: limit, ..served.settings() }).unwrap();
    let registry = Registry::new(http, Duration::from_secs(20));
    let error = registry.labelled(&image, &Credentials::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "registry registry.test: registry.test did not respond within 50ms");
}

#[tokio::test]
async fn errors_do_not_quote_the_registry() {
    let served = FakeRegistry::start().await;
    let missing = "registry registry.test has no 9 in a/b (HTTP 404); check the name and the tag of the image";
    assert_eq!(read_error(&served, "9").await, missing);
    served.change(|state| state.error_status = Some(503));
    assert_eq!(read_error(&served, "9").await, "registry registry.test answered HTTP 503 to the request for 9");
    let bad = served.registry().labelled("registry.test/UPPER:1", &Credentials::default()).await.unwrap_err();
    assert!(
        bad.to_string().starts_with("\"registry.test/UPPER:1\" is not an image reference: the repository"),
        "{bad}"
    );
}

#[tokio::test]
async fn refused_registry_connection_is_reported() {
    let port = ReservedPort::any_free().unwrap();
    let address = format!("http://127.0.0.1:{}", port.number()).parse().unwrap();
    let settings = HttpSettings { elsewhere: [(HOST.to_owned(), address)].into(), ..HttpSettings::default() };
    let registry = Registry::new(Http::new(settings).unwrap(), Duration::from_secs(20));
    let error = registry.labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "registry registry.test: registry.test refuses connections");
}

#[tokio::test]
async fn plain_http_needs_an_explicit_setting() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let plain = format!("http://{}/v2/a/b/manifests/1", served.address);
    let request = |method| HttpRequest { method, ..HttpRequest::get(plain.parse().unwrap(), 10) };
    let error = Http::new(served.settings()).unwrap().send(request(Method::GET)).await.unwrap_err().to_string();
    assert!(error.contains("do not allow plain http to"), "{error}");

    // A registry cannot make us use plain HTTP for its tokens either.
    served.change(|state| state.realm = "http://auth.registry.test:80/token".to_owned());
    served.require_auth(super::fake::RequiredAuth::Token, "u", "p");
    served.take_requests();
    let error = read_error(&served, "1").await;
    assert!(
        error.starts_with(
            "registry registry.test: the operator's settings do not allow plain http to auth.registry.test:80"
        ),
        "{error}"
    );
    assert_eq!(served.take_requests().len(), 1);
}

/// Addresses that a registry may not make the operator reach, and the start of the reason after the address. The
/// registry itself counts as public.
const FORBIDDEN_ADDRESSES: [(&str, &str); 8] = [
    ("127.0.0.1", " is at an address of this machine"),
    ("localhost", " is at an address of this machine"),
    ("[::1]", " is at an address of this machine"),
    ("[::ffff:127.0.0.1]", " is at an address of this machine"),
    ("0.0.0.0", " is at an address of this machine"),
    ("169.254.169.254", " is at an address of this machine"),
    ("10.96.0.1", " is at a private address"),
    ("[fd00::1]", " is at a private address"),
];

/// A server at a local port, and the number of connections to it. It binds all addresses of this machine.
async fn count_connections() -> (u16, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let (port, connections) = (listener.local_addr().unwrap().port(), Arc::<std::sync::atomic::AtomicUsize>::default());
    let counter = connections.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    (port, connections)
}

#[tokio::test]
async fn registry_cannot_lead_to_forbidden_addresses() {
    let (port, connections) = count_connections().await;
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    for (address, why) in FORBIDDEN_ADDRESSES {
        let target = format!("{address}:{port}");
        let expected = format!("registry registry.test: {target}{why}");
        served.change(|state| (state.redirects_blobs, state.store) = (true, target.clone()));
        let error = read_error(&served, "1").await;
        assert!(error.starts_with(&expected), "redirect to {target}: {error}");

        // The same address as the realm of a token, for a reader without credentials.
        served.change(|state| (state.redirects_blobs, state.realm) = (false, format!("https://{target}/token")));
        served.require_auth(super::fake::RequiredAuth::Token, "u", "p");
        let error = read_error(&served, "1").await;
        assert!(error.starts_with(&expected), "realm {target}: {error}");
        served.require_auth(super::fake::RequiredAuth::Nothing, "", "");
    }
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn image_cannot_name_an_address_of_the_operator() {
    let (port, connections) = count_connections().await;
    let served = FakeRegistry::start().await;
    for host in ["127.0.0.1", "localhost", "169.254.169.254"] {
        let image = format!("{host}:{port}/a/b:1");
        let error = served.registry().labelled(&image, &Credentials::default()).await.unwrap_err().to_string();
        let expected = format!("registry {host}:{port}: {host}:{port} is at an address of this machine");
        assert!(error.starts_with(&expected), "{error}");
    }
    assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn untrusted_registry_certificate_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let pem = (certificate.pem().into_bytes(), key.serialize_pem().into_bytes());
    let tls = axum_server::tls_rustls::RustlsConfig::from_pem(pem.0, pem.1).await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address: http::Uri = format!("https://localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let router = axum::Router::new().fallback(async || "hello");
    let server = axum_server::from_tcp_rustls(listener, tls).unwrap().serve(router.into_make_service());
    let server = tokio::spawn(server);
    let request = || HttpRequest::get(address.clone(), 10);
    let error = Http::new(HttpSettings::default()).unwrap().send(request()).await.unwrap_err().to_string();
    assert!(error.contains("the certificate of localhost") && error.contains("is not trusted"), "{error}");
    let trusting = HttpSettings { roots: vec![certificate.der().clone()], ..HttpSettings::default() };
    let answer = Http::new(trusting).unwrap().send(request()).await.unwrap();
    assert_eq!(answer.body, "hello");
    server.abort();
}

#[tokio::test]
async fn proxy_tunnels_remote_hosts_only() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Matcher::builder().all(format!("http://me:secret@{}", listener.local_addr().unwrap())).build();
    let proxy_request = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.unwrap());
        }
        connection.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("x"), &[]);
    let http = Http::new(HttpSettings { proxies: Some(Arc::new(proxy)), ..served.settings() }).unwrap();
    let local = format!("https://{HOST}/v2/a/b/manifests/1").parse().unwrap();
    assert_eq!(http.send(HttpRequest::get(local, 1 << 20)).await.unwrap().status, 200);
    let error =
        http.send(HttpRequest::get("https://quay.test/v2/".parse().unwrap(), 10)).await.unwrap_err().to_string();
    assert!(error.starts_with("the request to quay.test failed: ") && !error.contains("secret"), "{error}");
    let proxy_request = proxy_request.await.unwrap();
    assert!(proxy_request.starts_with("CONNECT quay.test:443 HTTP/1.1\r\n"), "{proxy_request}");
    assert!(proxy_request.to_ascii_lowercase().contains("proxy-authorization: basic "), "{proxy_request}");
}

#[tokio::test]
async fn multiple_gzip_members_are_one_archive() {
    let served = FakeRegistry::start().await;
    let archive = tar(&[("a", b"a"), ("config.yaml", super::config("members").as_bytes())]);
    let layer = [gzip(&archive[..700]), gzip(&archive[700..])].concat();
    let labels = json!({ "io.llamastack.config.layer": digest(&layer), "io.llamastack.config.path": "config.yaml" });
    served.push("a/b", "1", labels, &[layer]);
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap();
    assert_eq!(super::distro(&labelled), "members");
}
