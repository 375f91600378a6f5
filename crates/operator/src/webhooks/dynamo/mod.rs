//! May this DynamoGraphDeploymentRequest be written, and what is filled into it?
//! Comes in: an admission request; goes out: the verdict of the plan's own rules, or the image that a new request lacks.
//!
//! Nothing is looked up: what a request names may come later, and is waited for.

use kube::core::admission::Operation;
use serde_json::json;
use steersman_api::Family;
use steersman_plan::dynamo::validate::{Facts, image, validate};

use crate::webhooks::admission::{Handler, Response, handler};
use crate::webhooks::case::AdmissionCase;

const FAMILY: Family = Family::Dgdr;

/// The flags of the operator that count at admission.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    pub default_image: Option<String>,
    pub discovery: bool,
}

/// Accepts or refuses.
pub fn validator(settings: AdmissionSettings) -> Handler {
    handler(move |request| match AdmissionCase::read(FAMILY, request) {
        Ok(Some(case)) => decide(&case, &settings),
        Ok(None) => Response::allow(),
        Err(response) => *response,
    })
}

fn decide(case: &AdmissionCase, settings: &AdmissionSettings) -> Response {
    let facts = Facts { default_image: settings.default_image.as_deref(), discovery: settings.discovery };
    let review = validate(&case.new, case.old.as_ref(), &facts);
    case.response(&review.errors, &review.warnings)
}

/// Fills in what new requests lack. The configuration asks about those alone; another may ask about more.
pub fn defaulter(settings: AdmissionSettings) -> Handler {
    handler(move |request| {
        let new = request.operation == Operation::Create;
        // A patch is for the object as it was sent, and in another version this place means nothing.
        let sent = request.kind.version == FAMILY.storage_version();
        let case = match AdmissionCase::read(FAMILY, request) {
            Ok(Some(case)) if new => case,
            Ok(_) => return Response::allow(),
            Err(response) => return *response,
        };
        match image(&case.new, settings.default_image.as_deref()).filter(|_| sent) {
            Some(image) => Response::patch(vec![json!({ "op": "add", "path": "/spec/image", "value": image })]),
            None => Response::allow(),
        }
    })
}
