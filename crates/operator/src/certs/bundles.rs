//! Writes the CA bundle into each `clientConfig` of CRDs and webhook configurations that names this operator, and into no
//! other.

use std::fmt;

use http::{Request, header};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::Resource;
use serde::Deserialize;
use serde_json::json;
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

use crate::admission::{self, WebhookConfiguration};
use crate::webhooks::endpoint::Reach;

/// An object with a CA bundle: it may have a `clientConfig` that names this operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleTarget {
    Crd(Family),
    Admission(WebhookConfiguration),
}

impl BundleTarget {
    pub fn all() -> Vec<Self> {
        let crds = Family::ALL.into_iter().map(Self::Crd);
        crds.chain(admission::ALL.into_iter().map(Self::Admission)).collect()
    }

    pub fn kind(self) -> &'static str {
        match self {
            Self::Crd(_) => "CRD",
            Self::Admission(configuration) => configuration.kind(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Crd(family) => family.crd_name(),
            Self::Admission(configuration) => configuration.name(),
        }
    }

    fn path(self) -> String {
        let all = match self {
            Self::Crd(_) => CustomResourceDefinition::url_path(&(), None),
            Self::Admission(configuration) => configuration.url_path(),
        };
        format!("{all}/{}", self.name())
    }
}

impl fmt::Display for BundleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {}", self.kind(), self.name())
    }
}

/// A target as it was read, with the `clientConfig`s that name this operator.
#[derive(Clone, Debug)]
pub struct ObservedTarget {
    pub target: BundleTarget,
    resource_version: String,
    clients: Vec<LocatedClient>,
}

#[derive(Clone, Debug)]
struct LocatedClient {
    /// JSON pointer to the webhook in the object.
    pointer: String,
    config: WebhookClientConfig,
}

/// The fields used here, of both kinds: a CRD may have a megabyte.
#[derive(Deserialize)]
struct PartialTarget {
    metadata: TargetMetadata,
    spec: Option<Spec>,
    #[serde(default)]
    webhooks: Vec<Webhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Spec {
    conversion: Option<Conversion>,
}

#[derive(Deserialize)]
struct Conversion {
    webhook: Option<Webhook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    client_config: Option<WebhookClientConfig>,
}

impl PartialTarget {
    fn clients(self) -> Vec<LocatedClient> {
        let client = |pointer, webhook: Webhook| webhook.client_config.map(|config| LocatedClient { pointer, config });
        let conversion = self.spec.and_then(|spec| spec.conversion).and_then(|conversion| conversion.webhook);
        let conversion = conversion.and_then(|webhook| client("/spec/conversion/webhook".to_owned(), webhook));
        let admission = self.webhooks.into_iter().enumerate();
        let admission = admission.filter_map(|(index, webhook)| client(format!("/webhooks/{index}"), webhook));
        conversion.into_iter().chain(admission).collect()
    }
}

impl ObservedTarget {
    pub fn has(&self, bundle: &ByteString) -> bool {
        self.clients.iter().all(|client| client.has(bundle))
    }
}

impl LocatedClient {
    fn has(&self, bundle: &ByteString) -> bool {
        self.config.ca_bundle.as_ref() == Some(bundle)
    }
}

/// Reads one object. None: it does not exist, or does not name this operator.
pub async fn read(server: &Server, target: BundleTarget, reach: &Reach) -> Result<Option<ObservedTarget>, CallError> {
    let request = checked(Request::get(target.path()).body(Vec::new()));
    let read = match server.call(async { server.client.request::<PartialTarget>(request?).await }).await {
        Ok(read) => read,
        Err(CallError::Answered { code: 404, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let resource_version = read.metadata.resource_version.clone();
    let mut clients = read.clients();
    clients.retain(|client| reach.is_named_by(&client.config));
    Ok((!clients.is_empty()).then_some(ObservedTarget { target, resource_version, clients }))
}

/// Sets the bundle in this object and changes nothing else. Fails with 409 if the object has changed since it was read,
/// perhaps by another replica that sets the same bundle.
pub async fn set(server: &Server, observed: &ObservedTarget, bundle: &ByteString) -> Result<(), CallError> {
    let mut patch =
        vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": observed.resource_version })];
    for client in observed.clients.iter().filter(|client| !client.has(bundle)) {
        patch
            .push(json!({ "op": "add", "path": format!("{}/clientConfig/caBundle", client.pointer), "value": bundle }));
    }
    let request = Request::patch(observed.target.path()).header(header::CONTENT_TYPE, "application/json-patch+json");
    let request = checked(request.body(json!(patch).to_string().into_bytes()));
    match server.call(async { server.client.request::<PartialTarget>(request?).await }).await {
        Ok(_) => Ok(()),
        // The API server answers 422 if the test of a JSON patch fails.
        Err(CallError::Answered { code: 422, reason, fields, message }) => {
            Err(CallError::Answered { code: 409, reason, fields, message })
        }
        Err(error) => Err(error),
    }
}

fn checked(request: Result<Request<Vec<u8>>, http::Error>) -> kube::Result<Request<Vec<u8>>> {
    request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_configs_are_found_with_pointers() {
        let pointers = |object: serde_json::Value| -> Vec<String> {
            let read: PartialTarget = serde_json::from_value(object).unwrap();
            read.clients().into_iter().map(|client| client.pointer).collect()
        };
        let url = json!({ "clientConfig": { "url": "https://a" } });
        let metadata = json!({ "resourceVersion": "1" });
        assert_eq!(
            pointers(json!({ "metadata": metadata, "spec": { "conversion": { "webhook": url } } })),
            ["/spec/conversion/webhook"]
        );
        assert_eq!(
            pointers(json!({ "metadata": metadata, "spec": { "conversion": { "strategy": "None" } } })),
            [""; 0]
        );
        assert_eq!(pointers(json!({ "metadata": metadata, "webhooks": [url, url] })), ["/webhooks/0", "/webhooks/1"]);
        assert_eq!(pointers(json!({ "metadata": metadata })), [""; 0], "a configuration may have no webhook");
    }
}
