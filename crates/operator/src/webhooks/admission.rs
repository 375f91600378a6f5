//! Reads and writes the AdmissionReviews of `/validate/<family>` and `/mutate/<family>`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use kube::core::admission::AdmissionRequest;
use kube::core::{DynamicObject, Status};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_runtime::cpu_bound;

use super::client_ca::ClientCa;

const KIND: &str = "AdmissionReview";
const VERSION: &str = "admission.k8s.io/v1";

/// Largest review in bytes: it holds the new and the old object, each 3 MiB at most.
pub const MAX_REVIEW_BYTES: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Allow,
    /// Allowed after these operations of a JSON patch; from `/mutate` only.
    Patch(Vec<Value>),
    Deny(Box<Status>),
}

/// Response to one request. Warnings are shown to the user whatever the verdict; keep each below 120 characters.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub verdict: Verdict,
    pub warnings: Vec<String>,
}

impl Response {
    pub fn allow() -> Self {
        Self { verdict: Verdict::Allow, warnings: Vec::new() }
    }

    pub fn patch(operations: Vec<Value>) -> Self {
        Self { verdict: Verdict::Patch(operations), warnings: Vec::new() }
    }

    pub fn deny(status: Status) -> Self {
        Self { verdict: Verdict::Deny(Box::new(status)), warnings: Vec::new() }
    }

    /// Reason code of a refusal. None: the request is allowed.
    pub fn refusal(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Deny(status) => Some(&status.reason),
            Verdict::Allow | Verdict::Patch(_) => None,
        }
    }

    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }
}

/// Handles the requests about one family. A panic in it denies the request.
pub type Handler = Arc<dyn Fn(AdmissionRequest<DynamicObject>) -> BoxFuture<'static, Response> + Send + Sync>;

/// A handler that needs nothing but the request.
pub fn handler(decide: impl Fn(AdmissionRequest<DynamicObject>) -> Response + Send + Sync + 'static) -> Handler {
    let decide = Arc::new(decide);
    Arc::new(move |request| {
        let decide = decide.clone();
        async move { cpu_bound::run(|| decide(request)) }.boxed()
    })
}

/// A handler that reads other objects before it decides. `read` and `decide` are CPU-bound, `look_up` only waits. An error of
/// `read` is the response.
pub fn lookup_handler<C, L, F>(
    read: impl Fn(AdmissionRequest<DynamicObject>) -> Result<C, Response> + Send + Sync + 'static,
    look_up: impl Fn(Arc<C>) -> F + Send + Sync + 'static,
    decide: impl Fn(&C, L) -> Response + Send + Sync + 'static,
) -> Handler
where
    C: Send + Sync + 'static,
    L: Send + 'static,
    F: Future<Output = L> + Send + 'static,
{
    let steps = Arc::new((read, look_up, decide));
    Arc::new(move |request| {
        let steps = steps.clone();
        let handling = async move {
            let (read, look_up, decide) = &*steps;
            let case = match cpu_bound::run(|| read(request)) {
                Ok(case) => Arc::new(case),
                Err(response) => return response,
            };
            let found = look_up(case.clone()).await;
            cpu_bound::run(|| decide(&case, found))
        };
        handling.boxed()
    })
}

#[derive(Clone, Default)]
pub struct Handlers {
    pub validate: BTreeMap<Family, Handler>,
    pub mutate: BTreeMap<Family, Handler>,
    /// CA of the clients that may send reviews. None: everybody may.
    pub client_ca: Option<Arc<ClientCa>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Validate,
    Mutate,
}

impl Route {
    /// Label for the metrics, with a bounded number of values.
    pub fn label(self, family: Option<Family>) -> &'static str {
        match (self, family) {
            (Self::Validate, Some(Family::Dgdr)) => "/validate/dgdr",
            (Self::Validate, Some(Family::Dgd)) => "/validate/dgd",
            (Self::Validate, Some(Family::Llsd)) => "/validate/llsd",
            (Self::Validate, Some(Family::Va)) => "/validate/va",
            (Self::Validate, None) => "/validate",
            (Self::Mutate, Some(Family::Dgdr)) => "/mutate/dgdr",
            (Self::Mutate, Some(Family::Dgd)) => "/mutate/dgd",
            (Self::Mutate, Some(Family::Llsd)) => "/mutate/llsd",
            (Self::Mutate, Some(Family::Va)) => "/mutate/va",
            (Self::Mutate, None) => "/mutate",
        }
    }
}

impl Handlers {
    pub fn on(&self, route: Route, family: Option<Family>) -> Option<Handler> {
        let handlers = match route {
            Route::Validate => &self.validate,
            Route::Mutate => &self.mutate,
        };
        handlers.get(&family?).cloned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum AdmissionReviewError {
    #[error("this is not an {KIND} of {VERSION}: {0}")]
    NotAReview(serde_json::Error),
    #[error(
        "this webhook supports {KIND} of {VERSION}, not {kind:?} of {api_version:?}; \
         set admissionReviewVersions: [\"v1\"] in the webhook configuration"
    )]
    OtherReview { kind: String, api_version: String },
    #[error("the {KIND} has no request")]
    NoRequest,
}

/// Reads the request out of a review. A failure carries the uid of the review, or `uid` if that could not be read.
pub fn read(body: &[u8], uid: &str) -> Result<AdmissionRequest<DynamicObject>, (String, AdmissionReviewError)> {
    let unknown = |failure| (uid.to_owned(), failure);
    let review: AdmissionReview =
        serde_json::from_slice(body).map_err(AdmissionReviewError::NotAReview).map_err(unknown)?;
    let given = review.request.as_ref().and_then(|request| request.get("uid")?.as_str());
    let uid = given.unwrap_or(uid).to_owned();
    if (review.kind.as_str(), review.api_version.as_str()) != (KIND, VERSION) {
        return Err((uid, AdmissionReviewError::OtherReview { kind: review.kind, api_version: review.api_version }));
    }
    let Some(request) = review.request else { return Err((uid, AdmissionReviewError::NoRequest)) };
    serde_json::from_value(request).map_err(|error| (uid, AdmissionReviewError::NotAReview(error)))
}

pub fn render(uid: &str, route: Route, response_to: &Response) -> Vec<u8> {
    let mut response = Map::from_iter([("uid".to_owned(), json!(uid))]);
    let mut put = |name: &str, value: Value| response.insert(name.to_owned(), value);
    if !response_to.warnings.is_empty() {
        put("warnings", json!(response_to.warnings));
    }
    match &response_to.verdict {
        Verdict::Patch(operations) if route == Route::Mutate => {
            put("allowed", json!(true));
            put("patchType", json!("JSONPatch"));
            put("patch", json!(ByteString(json!(operations).to_string().into_bytes())));
        }
        // The API server refuses a patch from a validating webhook.
        Verdict::Allow | Verdict::Patch(_) => _ = put("allowed", json!(true)),
        Verdict::Deny(status) => {
            put("allowed", json!(false));
            put("status", json!(status));
        }
    }
    json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().into_bytes()
}

/// Denies the request, because it could not be decided.
pub fn failure(uid: &str, code: u16, reason: &str, message: &str) -> Vec<u8> {
    let status = Status::failure(message, reason).with_code(code);
    render(uid, Route::Validate, &Response::deny(status))
}
