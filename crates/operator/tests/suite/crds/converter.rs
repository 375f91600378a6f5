//! A conversion webhook on a local port that tests can switch to failures.

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

/// Objects with this annotation cannot be converted until [`Converter::convert_broken_objects`] is called.
pub const BROKEN_ANNOTATION: &str = "example.com/broken";

/// Keeps spec fields that the other version does not have, so that objects are complete whatever the conversion under test
/// does.
const UNKNOWN_FIELDS_ANNOTATION: &str = "example.com/rest";

pub struct Converter {
    pub url: String,
    /// CA certificate of the server, as PEM.
    pub authority: String,
    faults: Arc<Faults>,
    handle: Handle<SocketAddr>,
}

#[derive(Default)]
struct Faults {
    down: AtomicBool,
    converts_broken: AtomicBool,
}

impl Converter {
    pub fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certified_key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(certified_key.signing_key);
        let certificate = vec![certified_key.cert.der().clone()];
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(certificate, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}/convert", listener.local_addr().unwrap());
        let (handle, faults) = (Handle::new(), Arc::new(Faults::default()));
        let routes =
            Router::new().route("/convert", post(review)).layer(DefaultBodyLimit::disable()).with_state(faults.clone());
        let (serving, service) = (handle.clone(), routes.into_make_service());
        let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
        // The server has its own thread, because it must answer while a test blocks on a command.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = axum_server::from_tcp(listener).unwrap().handle(serving);
                server.acceptor(acceptor).serve(service).await
            })
        });
        Self { url, authority: certified_key.cert.pem(), faults, handle }
    }

    /// Makes all conversions fail, or work again.
    pub fn set_down(&self, down: bool) {
        self.faults.down.store(down, Ordering::SeqCst);
    }

    /// Makes objects with [`BROKEN_ANNOTATION`] convertible.
    pub fn convert_broken_objects(&self) {
        self.faults.converts_broken.store(true, Ordering::SeqCst);
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn review(State(faults): State<Arc<Faults>>, body: Bytes) -> String {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let converts_broken = faults.converts_broken.load(Ordering::SeqCst);
    let converted: Result<Vec<Value>, String> = match faults.down.load(Ordering::SeqCst) {
        true => Err("the converter is down".to_owned()),
        false => {
            request["objects"].as_array().unwrap().iter().map(|object| convert(object, to, converts_broken)).collect()
        }
    };
    let mut response = match converted {
        Ok(objects) => json!({ "result": { "status": "Success" }, "convertedObjects": objects }),
        Err(message) => json!({ "result": { "status": "Failure", "message": message } }),
    };
    response["uid"] = request["uid"].clone();
    json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response }).to_string()
}

fn convert(object: &Value, to: &str, converts_broken: bool) -> Result<Value, String> {
    if !converts_broken && object["metadata"]["annotations"][BROKEN_ANNOTATION].is_string() {
        return Err(format!("{} is broken", object["metadata"]["name"]));
    }
    let converted = steersman_api::convert::convert(object.clone(), to).map_err(|error| error.to_string())?;
    let mut object = converted.object;
    if object["apiVersion"] == to && object["spec"].is_object() {
        keep_unknown_fields(&mut object, to);
    }
    Ok(object)
}

fn keep_unknown_fields(object: &mut Value, to: &str) {
    let (group, version) = to.split_once('/').unwrap();
    let family = FAMILIES.into_iter().find(|family| family.group() == group).unwrap();
    let known = &SPEC_FIELDS.get_or_init(spec_fields)[&(family, version.to_owned())];
    let mut spec = object["spec"].as_object().unwrap().clone();
    let text = object["metadata"]["annotations"][UNKNOWN_FIELDS_ANNOTATION].as_str().unwrap_or("{}");
    let rest: Map<String, Value> = serde_json::from_str(text).unwrap();
    for (key, value) in rest {
        spec.entry(key).or_insert(value);
    }
    let (spec, rest): (Map<_, _>, Map<_, _>) = spec.into_iter().partition(|(key, _)| known.contains(key));
    object["spec"] = Value::Object(spec);
    let annotations = object["metadata"]["annotations"].as_object_mut();
    if rest.is_empty() {
        annotations.map(|annotations| annotations.remove(UNKNOWN_FIELDS_ANNOTATION));
    } else {
        object["metadata"]["annotations"][UNKNOWN_FIELDS_ANNOTATION] = Value::Object(rest).to_string().into();
    }
}

type SpecFields = BTreeMap<(Family, String), BTreeSet<String>>;
static SPEC_FIELDS: OnceLock<SpecFields> = OnceLock::new();

/// The spec fields of each version.
fn spec_fields() -> SpecFields {
    let crds = FAMILIES.map(|family| (family, crds::crd(family, &Options::default()).unwrap()));
    let versions = crds.into_iter().flat_map(|(family, crd)| crd.spec.versions.into_iter().map(move |v| (family, v)));
    let fields = |version: &CustomResourceDefinitionVersion| {
        let schema = serde_json::to_value(&version.schema).unwrap();
        let spec = schema["openAPIV3Schema"]["properties"]["spec"]["properties"].clone();
        spec.as_object().unwrap().keys().cloned().collect()
    };
    versions.map(|(family, version)| ((family, version.name.clone()), fields(&version))).collect()
}
