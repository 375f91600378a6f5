//! A conversion webhook for tests, on a port of this machine.
//! Comes in: ConversionReviews of the API server; goes out: objects in the other version, or a failure where told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_api::crds::{self, FAMILIES, Options};

/// An object with this annotation cannot be converted until the converter is mended.
pub const BROKEN: &str = "example.com/broken";

/// Holds what the other version cannot say, whatever the conversion under test does about it: objects must come out whole.
const REST: &str = "example.com/rest";

pub struct Converter {
    pub url: String,
    /// What the API server has to trust, as PEM.
    pub authority: String,
    flaws: Arc<Flaws>,
    handle: Handle<SocketAddr>,
}

#[derive(Default)]
struct Flaws {
    down: AtomicBool,
    mended: AtomicBool,
}

impl Converter {
    pub fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(made.signing_key);
        let certificate = vec![made.cert.der().clone()];
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(certificate, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}/convert", listener.local_addr().unwrap());
        let (handle, flaws) = (Handle::new(), Arc::new(Flaws::default()));
        let routes =
            Router::new().route("/convert", post(answer)).layer(DefaultBodyLimit::disable()).with_state(flaws.clone());
        let (serving, service) = (handle.clone(), routes.into_make_service());
        let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
        // On a thread of its own: it has to answer while a test waits for a program to end.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = axum_server::from_tcp(listener).unwrap().handle(serving);
                server.acceptor(acceptor).serve(service).await
            })
        });
        Self { url, authority: made.cert.pem(), flaws, handle }
    }

    /// From now on nothing can be converted, or everything again.
    pub fn set_down(&self, down: bool) {
        self.flaws.down.store(down, Ordering::SeqCst);
    }

    /// From now on even broken objects can be converted.
    pub fn mend(&self) {
        self.flaws.mended.store(true, Ordering::SeqCst);
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn answer(State(flaws): State<Arc<Flaws>>, body: Bytes) -> String {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let mended = flaws.mended.load(Ordering::SeqCst);
    let converted: Result<Vec<Value>, String> = match flaws.down.load(Ordering::SeqCst) {
        true => Err("the converter is down".to_owned()),
        false => request["objects"].as_array().unwrap().iter().map(|object| convert(object, to, mended)).collect(),
    };
    let mut response = match converted {
        Ok(objects) => json!({ "result": { "status": "Success" }, "convertedObjects": objects }),
        Err(message) => json!({ "result": { "status": "Failure", "message": message } }),
    };
    response["uid"] = request["uid"].clone();
    json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response }).to_string()
}

fn convert(object: &Value, to: &str, mended: bool) -> Result<Value, String> {
    if !mended && object["metadata"]["annotations"][BROKEN].is_string() {
        return Err(format!("{} is broken", object["metadata"]["name"]));
    }
    let converted = steersman_api::convert::convert(object.clone(), to).map_err(|error| error.to_string())?;
    let mut object = converted.object;
    if object["apiVersion"] == to && object["spec"].is_object() {
        keep_the_rest(&mut object, to);
    }
    Ok(object)
}

fn keep_the_rest(object: &mut Value, to: &str) {
    let (group, version) = to.split_once('/').unwrap();
    let family = FAMILIES.into_iter().find(|family| family.group() == group).unwrap();
    let known = &KNOWN.get_or_init(known)[&(family, version.to_owned())];
    let mut spec = object["spec"].as_object().unwrap().clone();
    let text = object["metadata"]["annotations"][REST].as_str().unwrap_or("{}");
    let rest: Map<String, Value> = serde_json::from_str(text).unwrap();
    for (key, value) in rest {
        spec.entry(key).or_insert(value);
    }
    let (spec, rest): (Map<_, _>, Map<_, _>) = spec.into_iter().partition(|(key, _)| known.contains(key));
    object["spec"] = Value::Object(spec);
    let annotations = object["metadata"]["annotations"].as_object_mut();
    if rest.is_empty() {
        annotations.map(|annotations| annotations.remove(REST));
    } else {
        object["metadata"]["annotations"][REST] = Value::Object(rest).to_string().into();
    }
}

type Known = BTreeMap<(Family, String), BTreeSet<String>>;
static KNOWN: OnceLock<Known> = OnceLock::new();

/// The fields that the spec of each version has.
fn known() -> Known {
    let crds = FAMILIES.map(|family| (family, crds::crd(family, &Options::default()).unwrap()));
    let versions = crds.into_iter().flat_map(|(family, crd)| crd.spec.versions.into_iter().map(move |v| (family, v)));
    let fields = |version: &CustomResourceDefinitionVersion| {
        let schema = serde_json::to_value(&version.schema).unwrap();
        let spec = schema["openAPIV3Schema"]["properties"]["spec"]["properties"].clone();
        spec.as_object().unwrap().keys().cloned().collect()
    };
    versions.map(|(family, version)| ((family, version.name.clone()), fields(&version))).collect()
}
