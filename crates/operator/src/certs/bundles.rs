//! The objects that tell API servers whom to trust: for now, CRDs with a conversion webhook.
//! Comes in: a bundle of CAs; goes out: the same bundle in the `caBundle` of every CRD that names us, and in no other.

use http::{Request, header};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::Resource;
use serde::Deserialize;
use serde_json::json;

use super::reach::Reach;
use crate::client::{CallError, Server};

/// The little that matters here of a CRD, which may be a megabyte.
#[derive(Clone, Debug, Deserialize)]
pub struct Crd {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    conversion: Option<Conversion>,
}

#[derive(Clone, Debug, Deserialize)]
struct Conversion {
    webhook: Option<Webhook>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    client_config: Option<WebhookClientConfig>,
}

impl Crd {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    fn client(&self) -> Option<&WebhookClientConfig> {
        self.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()
    }

    pub fn names(&self, reach: &Reach) -> bool {
        self.client().is_some_and(|client| reach.is_named_by(client))
    }

    pub fn holds(&self, bundle: &ByteString) -> bool {
        self.client().and_then(|client| client.ca_bundle.as_ref()) == Some(bundle)
    }
}

/// Reads one CRD, if it is there.
pub async fn read(server: &Server, name: &str) -> Result<Option<Crd>, CallError> {
    let request = built(Request::get(path(name)).body(Vec::new()));
    match server.call(async { server.client.request::<Crd>(request?).await }).await {
        Ok(crd) => Ok(Some(crd)),
        Err(CallError::Answered { code: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts the bundle into this CRD and touches nothing else. 409 if the CRD is no longer as it was seen: then somebody else
/// was quicker, perhaps another replica with the same intent.
pub async fn put(server: &Server, crd: &Crd, bundle: &ByteString) -> Result<(), CallError> {
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": crd.metadata.resource_version },
        { "op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": bundle },
    ]);
    let request = Request::patch(path(crd.name())).header(header::CONTENT_TYPE, "application/json-patch+json");
    let request = built(request.body(patch.to_string().into_bytes()));
    match server.call(async { server.client.request::<Crd>(request?).await }).await {
        Ok(_) => Ok(()),
        // The API server says so when the test fails.
        Err(CallError::Answered { code: 422, message }) => Err(CallError::Answered { code: 409, message }),
        Err(error) => Err(error),
    }
}

fn path(name: &str) -> String {
    format!("{}/{name}", CustomResourceDefinition::url_path(&(), None))
}

fn built(request: Result<Request<Vec<u8>>, http::Error>) -> kube::Result<Request<Vec<u8>>> {
    request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))
}
